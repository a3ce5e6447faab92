"""The clean-shutdown marker: there once, gone at once, durably both."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from strandline.storage.clean_shutdown import CleanShutdown, take_marker, write_marker
from strandline.storage.memory_files import MemoryFiles

PATH = "/data/.kafka_cleanshutdown"


def disk(data: bytes | None = None) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory("/data")
    files.sync_directory("/")
    if data is not None:
        files.write_atomically(PATH, data)
    return files


def test_the_marker_is_kafkas() -> None:
    files = disk()
    write_marker(files, "/data", CleanShutdown(17))
    assert files.read_bytes(PATH) == b'{"version":0,"brokerEpoch":17}'
    assert take_marker(files.crash_clone(Random(3)), "/data") == CleanShutdown(17)


def test_c2_the_marker_names_the_processes_of_which_everything_is_there() -> None:
    """So that a directory which comes back from an older copy is not taken for complete."""
    files = disk()
    lives = ((17, 17), (20, 23))
    write_marker(files, "/data", CleanShutdown(17, lives))
    assert files.read_bytes(PATH) == b'{"version":0,"brokerEpoch":17,"lives":[[17,17],[20,23]]}'
    assert take_marker(files, "/data") == CleanShutdown(17, lives)


def test_the_marker_names_a_process_that_heard_of_no_registration() -> None:
    files = disk()
    shutdown = CleanShutdown(17, ((17, 17),), unheard_ms=1_700_000_000_000)
    write_marker(files, "/data", shutdown)
    assert b'"unheard":1700000000000}' in files.read_bytes(PATH)
    assert take_marker(files, "/data") == shutdown


def test_the_marker_names_the_logs_that_lie_beside_it() -> None:
    files = disk()
    logs = frozenset({(UUID(int=2), 7), (UUID(int=1), 3), (UUID(int=2), 0)})
    write_marker(files, "/data", CleanShutdown(17, logs=logs))
    assert files.read_bytes(PATH) == (
        b'{"version":0,"brokerEpoch":17,'
        b'"logs":{"AAAAAAAAAAAAAAAAAAAAAQ":[3],"AAAAAAAAAAAAAAAAAAAAAg":[0,7]}}'
    )
    assert take_marker(files, "/data") == CleanShutdown(17, logs=logs)
    write_marker(files, "/data", CleanShutdown(17, logs=frozenset()))
    assert take_marker(files, "/data") == CleanShutdown(17, logs=frozenset())


@pytest.mark.parametrize(
    "logs",
    ["17", "[17]", '{"x":[1]}', '{"AAAAAAAAAAAAAAAAAAAAAQ":3}', '{"AAAAAAAAAAAAAAAAAAAAAQ":["3"]}'],
)
def test_logs_that_do_not_parse_are_unknown(logs: str) -> None:
    data = f'{{"version":0,"brokerEpoch":17,"logs":{logs}}}'.encode()
    assert take_marker(disk(data), "/data") == CleanShutdown(17)


@pytest.mark.parametrize(
    "lives", ["17", "[17]", "[[17]]", "[[1,2,3]]", '[["1","2"]]', "[[1,true]]"]
)
def test_lives_that_do_not_parse_are_unknown(lives: str) -> None:
    data = f'{{"version":0,"brokerEpoch":17,"lives":{lives}}}'.encode()
    assert take_marker(disk(data), "/data") == CleanShutdown(17)


def test_r17_it_is_taken_once_whatever_crashes() -> None:
    """KAFKA-10471: a crash while logs are loaded must count as one."""
    files = disk()
    write_marker(files, "/data", CleanShutdown(17))
    assert take_marker(files, "/data") == CleanShutdown(17)
    assert take_marker(files, "/data") is None
    for seed in range(30):
        assert take_marker(files.crash_clone(Random(seed)), "/data") is None


@pytest.mark.parametrize(
    "data",
    [b"", b"{}", b"[]", b"17", b"{", b"\xff", b'{"brokerEpoch":"x"}', b'{"brokerEpoch":true}'],
)
def test_only_the_presence_matters(data: bytes) -> None:
    """Before Kafka 3.7 the marker was empty."""
    assert take_marker(disk(data), "/data") == CleanShutdown(None)
