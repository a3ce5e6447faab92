"""Real disks that fill up or vanish under a broker: which records can still be written.

A file system in memory stands for a disk that fills up. Mounting it needs a privilege; without it
that test is skipped.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count, takewhile
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient

from strandline.errors import ErrorCode
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.harness import BrokerProcess, Wire
from tests.node.messages import batch, fetch, produce, produced, values

MIB = 1 << 20
QUICK = "replica.high.watermark.checkpoint.interval.ms=100"
"""That a disk is gone is noticed by the next checkpoint after a write."""
_PATIENCE_S = 120.0

Disk = Callable[[str], Path]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """Mounts file systems of 16 MiB in memory by name."""
    mounted: list[Path] = []

    def mount(name: str) -> Path:
        path = tmp_path / name
        path.mkdir()
        done = _run("mount", "-t", "tmpfs", "-o", "size=16m", "strandline-test", str(path))
        if done.returncode != 0:
            pytest.skip(f"A file system cannot be mounted here: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        assert _run("umount", "--lazy", str(path)).returncode == 0


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    if shutil.which(command[0]) is None:
        pytest.skip(f"There is no {command[0]} here.")
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)


def write(wire: Wire, topic: str, size: int = 10) -> int:
    """The error code of a produce."""
    return int(produced(wire.ask(produce(batch(b"x" * size), topic), 9)).error_code)


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that takes a while."""
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"In vain: {what}"
        time.sleep(0.05)


def vanish(path: Path) -> None:
    """The directory is gone at once, whatever the broker is about to write into it."""
    shutil.rmtree(path.rename(path.with_name(f"{path.name}-as-it-was")))


def place_of(data: tuple[Path, ...], topic: str) -> Path:
    """The log directory that has the topic's partition."""
    (found,) = [path for path in data if (path / f"{topic}-0").is_dir()]
    return found


def test_a_full_disk_refuses_appends_until_there_is_room_again(tmp_path: Path, disk: Disk) -> None:
    data = (tmp_path / "first", disk("second"))
    with BrokerProcess(data[0], f"log.dirs={data[0]},{data[1]}") as process, ExitStack() as stack:
        wire = stack.enter_context(Wire(process.port))
        for topic in ("a", "b"):
            wire.create_topic(topic)
        small = next(topic for topic in ("a", "b") if place_of(data, topic) == data[1])
        other = "b" if small == "a" else "a"
        assert (write(wire, small), write(wire, other)) == (0, 0)
        filler = data[1] / "filler"
        with filler.open("wb") as file:
            room = shutil.disk_usage(data[1]).free
            file.write(bytes(room - MIB // 2))
        codes = [write(wire, small, MIB // 8) for _ in range(8)]
        assert set(codes) == {0, ErrorCode.KAFKA_STORAGE_ERROR}
        assert codes == sorted(codes), "once it is full it stays full"
        written = codes.count(0)
        assert write(wire, other) == 0, "the other disk has room"
        read = values(wire.ask(fetch((small, 0, 0), partition_max_bytes=4 * MIB), 11))
        assert len(read) == 1 + written, "what was written can be read"
        filler.unlink()
        assert write(wire, small, MIB // 8) == 0
        assert process.stop(), "nothing is broken"


def fill_up(path: Path) -> Path:
    """A file that takes all the room there is."""
    filler = path / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert not shutil.disk_usage(path).free
    return filler


def create(wire: Wire, topic: str) -> tuple[int, str]:
    """The error code and the sentence of a CreateTopics."""
    creatable = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    (result,) = wire.ask(CreateTopicsRequest(topics=[creatable], timeout_ms=1000), 5).topics
    return result.error_code, result.error_message or ""


def is_written(wire: Wire, topic: str) -> bool:
    """Whether a record is taken."""
    return write(wire, topic) == 0


def test_logs_and_metadata_on_one_full_disk_go_on_when_there_is_room(disk: Disk) -> None:
    data = disk("only")
    often = "log.flush.offset.checkpoint.interval.ms=100"
    with BrokerProcess(data, QUICK, often) as process, Wire(process.port) as wire:
        wire.create_topic("t")
        assert write(wire, "t") == 0
        filler = fill_up(data)
        assert not any(iter(lambda: write(wire, "t", 4096), ErrorCode.KAFKA_STORAGE_ERROR))
        answer = produced(wire.ask(produce(batch(b"x" * 4096), "t"), 9))
        assert answer.error_message == "There is no room on the broker's disk."
        made = list(
            takewhile(lambda name: create(wire, name)[0] == 0, map("new-{}".format, count()))
        )
        code, sentence = create(wire, "late")
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "No space left on device" in sentence
        assert values(wire.ask(fetch(("t", 0, 0), partition_max_bytes=MIB), 11))
        results = wire.ask(DescribeLogDirsRequest(topics=None), 4).results
        assert [result.error_code for result in results] == [0], "the directory is online"
        filler.unlink()
        assert write(wire, "t", 4096) == 0
        assert create(wire, "late")[0] == 0
        for topic in ("late", *made):
            until(partial(is_written, wire, topic), "the new topic is written to")
        assert process.stop(), "nothing is broken"
    assert "offline" not in process.errors.read_text()


def test_f46_a_disk_that_vanishes_takes_only_its_own_partitions_along(tmp_path: Path) -> None:
    data = (tmp_path / "first", tmp_path / "second")
    more = (f"log.dirs={data[0]},{data[1]}", QUICK)
    with BrokerProcess(data[0], *more) as process, ExitStack() as stack:
        wire = stack.enter_context(Wire(process.port))
        for topic in ("a", "b"):
            wire.create_topic(topic)
        lost = next(topic for topic in ("a", "b") if place_of(data, topic) == data[1])
        kept = "b" if lost == "a" else "a"
        assert (write(wire, lost), write(wire, kept)) == (0, 0)
        vanish(data[1])
        until(
            lambda: write(wire, lost) == ErrorCode.KAFKA_STORAGE_ERROR, "the disk is found to fail"
        )
        assert write(wire, kept) == 0
        results = wire.ask(DescribeLogDirsRequest(topics=None), 4).results
        codes = {Path(result.log_dir): result.error_code for result in results}
        assert codes == {data[0]: 0, data[1]: ErrorCode.KAFKA_STORAGE_ERROR}
        until(lambda: _leader(wire, lost) == (-1, [1]), "the partition has no leader any more")
        assert _leader(wire, kept) == (1, [])
        wire.create_topic("new")
        assert write(wire, "new") == 0, "new partitions go where there is a disk"
        _check_with_librdkafka(process.port, lost, kept)


def test_the_last_disk_that_vanishes_ends_the_broker(tmp_path: Path) -> None:
    data = tmp_path / "only"
    command = [sys.executable, "-m", "strandline.cli", "serve", "--listen", "127.0.0.1:0"]
    serving = subprocess.Popen(
        [*command, "--data-dir", str(data), "--set", QUICK],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert serving.stdout is not None
        said = ""
        for line in serving.stdout:
            said += line
            if "ready" in line:
                break
        port = re.search(r"PLAINTEXT://127\.0\.0\.1:(\d+)", said)
        assert port is not None
        with Wire(int(port[1])) as wire:
            wire.create_topic("t")
            vanish(data)
            with suppress(ConnectionError):  # it may have noticed already
                write(wire, "t")
            _, errors = serving.communicate(timeout=_PATIENCE_S)
    finally:
        serving.kill()
        serving.communicate(timeout=_PATIENCE_S)
    assert serving.returncode == 1
    assert "Every log directory is offline" in errors


def _leader(wire: Wire, topic: str) -> tuple[int, list[int]]:
    answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
    (partition,) = answer.topics[0].partitions
    return partition.leader_id, partition.offline_replicas


def _check_with_librdkafka(port: int, lost: str, kept: str) -> None:
    """What a client library makes of it: one topic times out, the other goes on."""
    address = f"127.0.0.1:{port}"
    outcomes: dict[str, KafkaError | None] = {}
    for topic, timeout_ms in ((lost, 2000), (kept, 60_000)):
        producer = Producer(
            {"bootstrap.servers": address, "message.timeout.ms": timeout_ms, "log_level": 0}
        )
        producer.produce(
            topic,
            b"v",
            partition=0,
            on_delivery=lambda error, message: outcomes.__setitem__(str(message.topic()), error),
        )
        producer.flush(_PATIENCE_S)
    assert outcomes[kept] is None
    error = outcomes[lost]
    assert error is not None
    assert error.code() == KafkaError._MSG_TIMED_OUT
    described = AdminClient({"bootstrap.servers": address}).list_topics(timeout=_PATIENCE_S)
    trouble = described.topics[lost].partitions[0].error
    assert trouble is not None
    assert trouble.code() == KafkaError.LEADER_NOT_AVAILABLE
