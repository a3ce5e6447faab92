"""Start, stop, and what a start finds: locks, ports, clean and unclean ends, damaged tails."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.broker.reserved_ports import ReservedPort
from strandline.errors import InvalidSetting, StorageError
from tests.alone import run_alone
from tests.broker.harness import BrokerProcess, LocalBroker, Wire, works
from tests.descriptors import open_descriptors
from tests.node.messages import batch, fetch, fetched, list_offsets, produce, produced, values

MARKER = ".kafka_cleanshutdown"


def fill(port: int, count: int) -> None:
    with Wire(port) as wire:
        for i in range(count):
            assert produced(wire.ask(produce(batch(b"v%d" % i)), 9)).error_code == 0


def read_all(port: int) -> list[bytes | None]:
    with Wire(port) as wire:
        return values(wire.ask(fetch(("orders", 0, 0)), 11))


def start_filled(directory: Path, count: int = 5) -> LocalBroker:
    broker = LocalBroker(directory)
    with Wire(broker.port) as wire:
        wire.create_topic("orders")
    fill(broker.port, count)
    return broker


def test_sigterm_ends_cleanly_and_a_kill_does_not(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with BrokerProcess(directory) as first, Wire(first.port) as wire:
        wire.create_topic("orders")
        wire.send((fetch(("orders", 0, 0), max_wait_ms=60_000), 11))
        fill(first.port, 3)
        assert first.stop(), "a waiting client does not hold it up"
    assert (directory / MARKER).exists()
    with BrokerProcess(directory) as second:
        assert second.report["was_clean"]
        assert not (directory / MARKER).exists(), "the marker speaks of one end only"
        fill(second.port, 2)
        second.kill()
    with BrokerProcess(directory) as third:
        assert not third.report["was_clean"]
        assert len(read_all(third.port)) == 5
        assert third.stop()


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with LocalBroker(directory) as broker:
        with BrokerProcess(directory) as second:
            refusal = second.refusal()
        assert refusal["kind"] == "LockHeld"
        assert str(directory) in refusal["refused"]
        with pytest.raises(StorageError, match=re.escape(str(directory))):
            LocalBroker(directory)
        assert works(broker.port)


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with LocalBroker(tmp_path / "first") as broker:
        taken = f"127.0.0.1:{broker.port}"
        with pytest.raises(InvalidSetting, match=f"{taken} cannot be bound: Address already"):
            LocalBroker(tmp_path / "second", port=broker.port)
        # One of two listeners being taken lets the other go again.
        free = ReservedPort()  # kept from other tests' processes
        both = f"listeners=PLAINTEXT://127.0.0.1:{free.number},SECOND://127.0.0.1:{broker.port}"
        names = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECOND:PLAINTEXT"
        with pytest.raises(InvalidSetting, match=f"{taken} cannot be bound"):
            LocalBroker(tmp_path / "third", both, names)
        with LocalBroker(tmp_path / "third", port=free.number) as third:
            assert works(third.port)
        free.release()


def test_a_failed_start_lets_everything_go(tmp_path: Path) -> None:
    run_alone(fail_to_start, str(tmp_path / "data"))


def fail_to_start(data: str) -> None:
    directory = Path(data)
    start_filled(directory).stop()
    properties = directory / "meta.properties"
    text = properties.read_text()
    properties.write_text(re.sub(r"cluster\.id=.*", "cluster.id=another-ones-00000000000", text))
    before = open_descriptors()
    for _ in range(3):
        with pytest.raises(StorageError):
            LocalBroker(directory)
    assert open_descriptors() <= before
    properties.write_text(text)
    with LocalBroker(directory) as broker:
        assert len(read_all(broker.port)) == 5


def test_a_start_and_a_stop_leave_no_descriptors(tmp_path: Path) -> None:
    run_alone(start_and_stop, str(tmp_path / "data"))


def start_and_stop(data: str) -> None:
    directory = Path(data)
    start_filled(directory).stop()
    before = open_descriptors()
    for _ in range(3):
        with LocalBroker(directory) as broker:
            assert works(broker.port)
    assert open_descriptors() <= before


def test_stopping_under_load_is_clean(tmp_path: Path) -> None:
    broker = start_filled(tmp_path / "data", 1)
    wires = [Wire(broker.port) for _ in range(10)]
    for wire in wires:
        wire.send(*[(produce(batch(b"x" * 1000)), 9)] * 50)
        wire.send((fetch(("orders", 0, 10_000), max_wait_ms=60_000), 11))
    for i in range(5):
        wires[0].send((list_offsets(-1, f"missing{i}"), 7))
    assert broker.stop()
    for wire in wires:
        wire.close()
    with LocalBroker(tmp_path / "data") as again:
        assert again.report.was_clean
        assert 1 <= len(read_all(again.port)) <= 501


def test_leaders_have_a_new_epoch_after_each_start(tmp_path: Path) -> None:
    epochs = []
    start_filled(tmp_path / "data").stop()
    for _ in range(3):
        with LocalBroker(tmp_path / "data") as broker, Wire(broker.port) as wire:
            answer = wire.ask(list_offsets(-1), 7)
            epochs.append(answer.topics[0].partitions[0].leader_epoch)
    assert epochs == sorted(set(epochs))


def test_a_log_that_the_metadata_does_not_know_makes_way_for_a_topic_of_its_name(
    tmp_path: Path,
) -> None:
    start_filled(tmp_path / "data").stop()
    # As a crash in the middle of a deletion leaves it: the topic is gone, its files are not.
    shutil.copytree(tmp_path / "data" / "orders-0", tmp_path / "data" / "ghost-0")
    with LocalBroker(tmp_path / "data") as broker:
        assert any("ghost-0" in notice for notice in broker.report.notices)
        with Wire(broker.port) as wire:
            wire.create_topic("ghost")
            answer = wire.ask(list_offsets(-1, topic="ghost"), 7)
            assert answer.topics[0].partitions[0].offset == 0
    kept = [path.name for path in (tmp_path / "data").iterdir() if path.name.endswith("-stray")]
    assert len(kept) == 1
    assert kept[0].startswith("ghost-0.")


# -- damaged tails ---------------------------------------------------------------------------

ONE = len(batch(b"v0"))


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        pytest.param(lambda log: log + b"\0" * 100, 5, id="zeros behind"),
        pytest.param(lambda log: log + os.urandom(5000), 5, id="noise behind"),
        pytest.param(lambda log: log + log[-ONE:], 5, id="the last batch once more"),
        pytest.param(lambda log: log[:-1], 4, id="one byte missing"),
        pytest.param(lambda log: log[: -ONE + 30], 4, id="half a header"),
        pytest.param(lambda log: log[:-1] + bytes([log[-1] ^ 1]), 4, id="a flipped bit"),
        pytest.param(lambda log: log[: 2 * ONE + 40] + b"\xff" + log[2 * ONE + 41 :], 2, id="mid"),
        pytest.param(lambda log: b"\xff" * len(log), 0, id="everything"),
        pytest.param(lambda log: b"", 0, id="an empty file"),
    ],
)
def test_the_valid_prefix_is_kept_and_the_cut_is_reported(
    tmp_path: Path, damage: Callable[[bytes], bytes], left: int
) -> None:
    directory = tmp_path / "data"
    start_filled(directory).stop()
    (directory / MARKER).unlink()
    # Nothing is known to be synced, as after a crash before the first checkpoint.
    (directory / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    file = directory / "orders-0" / ("0" * 20 + ".log")
    data = file.read_bytes()
    assert len(data) == 5 * ONE
    file.write_bytes(damage(data))
    with LocalBroker(directory) as broker:
        expected = [b"v%d" % i for i in range(left)]
        assert read_all(broker.port) == expected
        if damage(data)[left * ONE :]:
            told = [line for line in broker.report.notices if "orders-0" in line]
            assert told, broker.report.notices
        with Wire(broker.port) as wire:
            assert produced(wire.ask(produce(batch(b"new")), 9)).base_offset == left
            partition = fetched(wire.ask(fetch(("orders", 0, 0)), 11))["orders", 0]
            assert partition.high_watermark == left + 1
    assert file.read_bytes()[: left * ONE] == data[: left * ONE]
    with LocalBroker(directory) as broker:
        assert broker.report.was_clean
        assert read_all(broker.port) == [*expected, b"new"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("content", [b"", b"\xff" * 100, None])
def test_damaged_indexes_are_rebuilt(tmp_path: Path, suffix: str, content: bytes | None) -> None:
    directory = tmp_path / "data"
    start_filled(directory).stop()
    file = directory / "orders-0" / ("0" * 20 + suffix)
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    (directory / MARKER).unlink()
    with LocalBroker(directory) as broker:
        assert len(read_all(broker.port)) == 5
        with Wire(broker.port) as wire:
            assert wire.ask(list_offsets(1), 7).topics[0].partitions[0].offset == 0
