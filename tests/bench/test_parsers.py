from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from bench.brokers import COMMON_SETTINGS
from bench.environment import file_system_of, kafka_version, processor_name
from bench.kafka_jars import project_file
from bench.kafka_settings import Quorum, as_properties, kafka_settings
from bench.processes import (
    MachineTimes,
    ProcessTimes,
    parse_machine_stat,
    parse_process_stat,
    parse_resident_bytes,
)
from bench.readiness import api_versions_request
from bench.secure import Security


def test_process_times_are_found_behind_a_name_with_blanks_and_brackets() -> None:
    stat = "77 (a ) (b) S 12 77 77 0 -1 4194304 900 0 0 0 250 50 0 0 20 0 9 0 1000 1 1"

    assert parse_process_stat(stat) == ProcessTimes(parent_pid=12, cpu_ticks=300)


def test_resident_memory_is_read_in_bytes() -> None:
    status = "Name:\tjava\nVmHWM:\t  900 kB\nVmRSS:\t  512 kB\n"
    assert parse_resident_bytes(status) == 512 * 1024
    assert parse_resident_bytes(status, peak=True) == 900 * 1024


def test_a_process_that_has_ended_holds_no_memory() -> None:
    assert parse_resident_bytes("Name:\tjava\nState:\tZ (zombie)\n") == 0


def test_busy_time_leaves_out_idle_waiting_stolen_and_guest_time() -> None:
    stat = "cpu  100 20 30 4000 500 6 7 80 90 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n"

    assert parse_machine_stat(stat) == MachineTimes(busy_ticks=163, steal_ticks=80)


def test_the_readiness_probe_is_api_versions_version_0() -> None:
    assert api_versions_request() == (
        b"\x00\x00\x00\x0f\x00\x12\x00\x00\x00\x00\x00\x07\x00\x05bench"
    )


def test_kafka_gets_the_settings_that_all_brokers_get() -> None:
    told = kafka_settings(
        1, 9092, Quorum({1: 9093}), Path("/data"), {**COMMON_SETTINGS, "num.io.threads": "2"}
    )
    text = as_properties(told)

    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings.items() >= COMMON_SETTINGS.items()
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert settings["log.dirs"] == "/data"
    assert settings["num.io.threads"] == "2"


def test_a_second_listener_is_added_to_what_either_broker_is_told() -> None:
    security = Security(Path("/ca.pem"), Path("/own.pem"))
    kafka = security.added_to(kafka_settings(1, 9092, Quorum({1: 9093}), Path("/data"), {}), 9094)
    own = security.added_to({"listeners": "PLAINTEXT://127.0.0.1:9092"}, 9094)

    assert kafka["advertised.listeners"].endswith("SECURE://127.0.0.1:9094")
    assert kafka["listener.security.protocol.map"].endswith("CONTROLLER:PLAINTEXT,SECURE:SASL_SSL")
    assert own["listeners"] == "PLAINTEXT://127.0.0.1:9092,SECURE://127.0.0.1:9094"
    assert own["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL"
    assert "advertised.listeners" not in own


def test_the_maven_project_depends_on_the_broker() -> None:
    namespace = "{http://maven.apache.org/POM/4.0.0}"
    root = ElementTree.fromstring(project_file("4.3.1"))

    found = {
        tuple(part.text for part in dependency)
        for dependency in root.iter(f"{namespace}dependency")
    }
    assert ("org.apache.kafka", "kafka_2.13", "4.3.1") in found


def test_kafkas_version_is_in_the_name_of_its_jar() -> None:
    assert kafka_version(["kafka-clients-4.3.1.jar", "kafka_2.13-4.3.1.jar"]) == "4.3.1"
    assert kafka_version(["kafka-clients-4.3.1.jar"]) == "unknown"


def test_the_nearest_mount_point_names_the_file_system() -> None:
    mounts = "/dev/vda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n"

    assert file_system_of(Path("/dev/shm/run"), mounts) == "tmpfs (/dev/shm)"
    assert file_system_of(Path("/var/data"), mounts) == "ext4 (/)"


def test_the_processors_name_is_written_with_single_blanks() -> None:
    assert processor_name("processor : 0\nmodel name\t: Some  CPU @ 2 GHz\n") == "Some CPU @ 2 GHz"
    assert processor_name("processor : 0\n") == "unknown processor"
