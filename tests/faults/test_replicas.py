"""What is read from a broker's disk, and the comparison of copies."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.faults import replicas
from tests.faults.replicas import Batch, Replica


def batch(base: int, count: int, epoch: int, crc: int) -> bytes:
    """A batch with a body of ten bytes that no test reads."""
    after_size = struct.pack(">ibIhi", epoch, 2, crc, 0, count - 1) + bytes(10)
    return struct.pack(">qi", base, len(after_size)) + after_size


def write(home: Path, *segments: tuple[int, bytes]) -> Path:
    directory = home / "orders-0"
    directory.mkdir(parents=True)
    for base, data in segments:
        (directory / f"{base:020d}.log").write_bytes(data)
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 5\n")
    (home / "replication-offset-checkpoint").write_text("0\n2\norders 0 4\norders 1 9\n")
    return home


def test_a_replica_is_read_from_all_its_segments(tmp_path: Path) -> None:
    home = write(
        tmp_path, (0, batch(0, 3, 0, 1) + batch(3, 2, 0, 2)), (5, batch(5, 1, 3, 0xFFFFFFFF))
    )

    replica = replicas.read(home, "orders", 0)

    assert replica == Replica(
        batches=(Batch(0, 3, 0, 1), Batch(3, 5, 0, 2), Batch(5, 6, 3, 0xFFFFFFFF)),
        high_watermark=4,
        epochs=((0, 0), (3, 5)),
    )
    assert str(replica) == "log 0 to 6, high watermark on disk 4, epochs [(0, 0), (3, 5)]"


def test_a_batch_that_is_not_whole_is_not_there(tmp_path: Path) -> None:
    for cut in (1, 12, 30):
        data = batch(0, 3, 0, 1) + batch(3, 2, 0, 2)[:-cut]
        home = write(tmp_path / str(cut), (0, data))
        assert replicas.read(home, "orders", 0).log_end_offset == 3


def test_nothing_on_disk_is_an_empty_replica(tmp_path: Path) -> None:
    replica = replicas.read(tmp_path, "orders", 0)
    assert replica == Replica((), -1, ())
    assert replica.log_end_offset == 0


FIRST, SECOND, THIRD = Batch(0, 3, 0, 1), Batch(3, 5, 0, 2), Batch(5, 6, 1, 3)


def copy(*batches: Batch) -> Replica:
    return Replica(batches, -1, ())


def test_equal_copies_do_not_differ() -> None:
    whole = copy(FIRST, SECOND, THIRD)
    assert replicas.differences({1: whole, 2: whole, 3: whole}) == []


def test_copies_may_start_differently() -> None:
    whole, late = copy(FIRST, SECOND, THIRD), copy(SECOND, THIRD)
    assert replicas.differences({1: whole, 2: late, 3: whole}) == []


def test_a_shorter_copy_differs() -> None:
    found = replicas.differences({1: copy(FIRST, SECOND), 2: copy(FIRST)})
    assert found == ["broker 1 ends at 5, broker 2 at 3"]
    assert replicas.differences({1: copy(FIRST), 2: copy()}) != []


def test_another_epoch_or_content_differs() -> None:
    for other in (SECOND._replace(leader_epoch=1), SECOND._replace(crc=7)):
        found = replicas.differences({1: copy(FIRST, SECOND), 3: copy(FIRST, other)})
        assert found == [f"broker 1 holds {SECOND}, broker 3 {other}"]
