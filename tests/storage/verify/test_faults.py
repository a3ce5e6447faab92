"""Each kind of fault, planted in one replica of three: found where it is, and nothing else."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import pytest

from strandline.records.batch import CRC_AT, HEADER_BYTES, iterate_headers, parse_header, set_crc
from strandline.records.builder import rebuild_batch
from strandline.records.record import read_records
from strandline.storage.leader_epochs import FILE_NAME as EPOCHS
from strandline.storage.log_directory import HIGH_WATERMARKS
from strandline.storage.partition_metadata import FILE_NAME as METADATA
from strandline.storage.partition_metadata import write_topic_id
from strandline.storage.segment import Segment
from strandline.storage.verify.directories import find_log_directories, take_inventory
from strandline.storage.verify.findings import Finding, Kind
from tests.storage.verify.replicas import (
    ACCOUNTS,
    COMPACT,
    FILES,
    ORDERS,
    Replicas,
    accounts,
    batch,
    orders,
)

pytestmark = pytest.mark.xdist_group("audit")  # the directories are made once
BROKER = 2
MIDDLE = 90
"""A segment of the middle: its base offset, under epoch 3."""
ABORTS = 54
"""The segment in which transactions end."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories without a fault, stopped cleanly."""
    replicas = Replicas(tmp_path_factory.mktemp("sound"))
    replicas.write(ORDERS, orders())
    replicas.write(ACCOUNTS, accounts(), config=COMPACT)
    replicas.compact(1)
    replicas.compact(2)
    replicas.finish()
    assert replicas.audit() == []
    return replicas.home


@pytest.fixture
def replicas(sound: Path, tmp_path: Path) -> Replicas:
    """Copies to plant faults in; those of broker 1 stay as they are."""
    copy = Replicas.__new__(Replicas)
    copy.home = tmp_path / "copy"
    copy.home.mkdir()
    (copy.home / "broker-1").symlink_to(sound / "broker-1")
    for name in ("broker-2", "broker-3"):
        shutil.copytree(sound / name, copy.home / name, copy_function=shutil.copyfile)
    return copy


def segment(replicas: Replicas, base: int = MIDDLE, kind: str = ".log") -> Path:
    return replicas.directory(BROKER) / f"{base:020d}{kind}"


def positions(path: Path) -> list[tuple[int, int]]:
    """(position, size) of each batch."""
    return [(at, header.size_bytes) for at, header in iterate_headers(path.read_bytes())]


def damage(base: int, number: int, offset: int, value: int = 0xFF) -> Callable[[Replicas], None]:
    """Change one byte of a batch, so many bytes behind its start."""

    def plant(replicas: Replicas) -> None:
        path = segment(replicas, base)
        at, _ = positions(path)[number]

        def change(data: bytearray) -> None:
            data[at + offset] ^= value

        replicas.edit(path, change)

    return plant


def rewritten(
    base: int, change: Callable[[list[bytes]], list[bytes]]
) -> Callable[[Replicas], None]:
    """Change the batches of a segment, and let its indexes be right."""

    def plant(replicas: Replicas) -> None:
        path = segment(replicas, base)
        data = path.read_bytes()
        batches = [data[at : at + size] for at, size in positions(path)]
        path.write_bytes(b"".join(change(batches)))
        made = Segment.existing(FILES, str(path.parent), base)
        made.rebuild_indexes()
        made.close()

    return plant


def other_contents(batches: list[bytes]) -> list[bytes]:
    first = parse_header(batches[2]).base_offset
    return [*batches[:2], batch(first, epoch=3, prefix=b"w"), *batches[3:]]


def other_bounds(batches: list[bytes]) -> list[bytes]:
    first = parse_header(batches[2]).base_offset
    two, one = batch(first, count=2, epoch=3), batch(first + 2, count=1, epoch=3)
    return [*batches[:2], two, one, *batches[3:]]


def other_count(batches: list[bytes]) -> list[bytes]:
    """A batch that says that it has another number of records than it has."""
    changed = bytearray(batches[2])
    struct.pack_into(">i", changed, 57, 2)
    set_crc(changed, 0, len(changed))
    return [*batches[:2], bytes(changed), *batches[3:]]


def in_file(
    base: int, kind: str, change: Callable[[bytearray], None]
) -> Callable[[Replicas], None]:
    def plant(replicas: Replicas) -> None:
        replicas.edit(segment(replicas, base, kind), change)

    return plant


def number(at: int, layout: str, plus: int) -> Callable[[bytearray], None]:
    """Add to a number in a file."""

    def change(data: bytearray) -> None:
        (value,) = struct.unpack_from(layout, data, at)
        struct.pack_into(layout, data, at, value + plus)

    return change


def cut(size: int) -> Callable[[bytearray], None]:
    """Take bytes from the end."""

    def change(data: bytearray) -> None:
        del data[len(data) - size :]

    return change


def zeros(data: bytearray) -> None:
    data += bytes(24)


def gone(base: int, *kinds: str) -> Callable[[Replicas], None]:
    def plant(replicas: Replicas) -> None:
        for kind in kinds:
            segment(replicas, base, kind).unlink()

    return plant


def epoch_table(text: str | None) -> Callable[[Replicas], None]:
    def plant(replicas: Replicas) -> None:
        path = replicas.directory(BROKER) / EPOCHS
        assert path.read_text() == "0\n3\n1 0\n3 72\n4 132\n"
        path.unlink()
        if text is not None:
            path.write_text(text)

    return plant


def other_topic(replicas: Replicas) -> None:
    (replicas.directory(BROKER) / METADATA).unlink()
    write_topic_id(FILES, str(replicas.directory(BROKER)), UUID(int=99))


def end_is_cut(size: int | None) -> Callable[[Replicas], None]:
    """Cut so many bytes from the last segment, or its last batch."""

    def plant(replicas: Replicas) -> None:
        path = replicas.segments(BROKER)[-1]
        _, last = positions(path)[-1]
        replicas.edit(path, cut(last if size is None else size))

    return plant


class Fault(NamedTuple):
    """What is done, what must be found, and words of the sentence."""

    plant: Callable[[Replicas], None]
    kind: Kind
    says: str
    offset: int
    findings: int = 1


FAULTS = {
    "a byte of a record": Fault(
        damage(MIDDLE, 2, HEADER_BYTES + 20), Kind.DAMAGED_BATCH, "does not match its checksum", 96
    ),
    "a byte of a checksum": Fault(
        damage(MIDDLE, 2, CRC_AT), Kind.DAMAGED_BATCH, "does not match its checksum", 96
    ),
    "a magic byte": Fault(damage(MIDDLE, 2, 16), Kind.DAMAGED_BATCH, "nothing can be read", 96),
    "a length": Fault(damage(MIDDLE, 2, 9), Kind.DAMAGED_BATCH, "is cut off", 96),
    "a count of records": Fault(
        rewritten(MIDDLE, other_count), Kind.DAMAGED_BATCH, "follow the last record", 96
    ),
    "a base offset that is too high": Fault(
        damage(MIDDLE, 2, 5), Kind.OFFSET_ORDER, "where 96 is expected", 96
    ),
    "a base offset that is too low": Fault(
        damage(MIDDLE, 2, 7, 0x40), Kind.OFFSET_ORDER, "where 96 is expected", 96
    ),
    "a batch twice": Fault(
        rewritten(MIDDLE, lambda each: [*each[:3], each[2], *each[3:]]),
        Kind.OFFSET_ORDER,
        "begins with offset 96, where 99 is expected",
        99,
    ),
    "a batch that is gone": Fault(
        rewritten(MIDDLE, lambda each: [*each[:2], *each[3:]]),
        Kind.OFFSET_GAP,
        "offsets 96 to 98 are missing",
        96,
    ),
    "the last batch of a segment that is gone": Fault(
        rewritten(MIDDLE, lambda each: each[:-1]), Kind.OFFSET_GAP, "105 to 107 are missing", 105
    ),
    "a segment that is gone": Fault(
        gone(MIDDLE, ".log", ".index", ".timeindex"), Kind.OFFSET_GAP, "90 to 107 are missing", 90
    ),
    "the first segment that is gone": Fault(
        gone(0, ".log", ".index", ".timeindex"), Kind.OFFSET_GAP, "segments are missing", 0
    ),
    "an epoch of a batch": Fault(
        damage(MIDDLE, 2, 15, 0x04), Kind.LEADER_EPOCHS, "has leader epoch 7", 96
    ),
    "an epoch of a batch that is lower": Fault(
        damage(MIDDLE, 2, 15, 0x01), Kind.LEADER_EPOCHS, "leader epoch 2 follows 3", 96
    ),
    "a start in the table of epochs": Fault(
        epoch_table("0\n3\n1 0\n3 75\n4 132\n"), Kind.LEADER_EPOCHS, "has leader epoch 3", 72
    ),
    "a start in the table of epochs inside a batch": Fault(
        epoch_table("0\n3\n1 0\n3 71\n4 130\n"), Kind.LEADER_EPOCHS, "has leader epoch 1", 71, 2
    ),
    "an epoch that the table lacks": Fault(
        epoch_table("0\n2\n1 0\n4 132\n"), Kind.LEADER_EPOCHS, "the table has 1 there", 72
    ),
    "a table of epochs that lacks its first entry": Fault(
        epoch_table("0\n2\n3 72\n4 132\n"), Kind.LEADER_EPOCHS, "the table begins at 72", 0
    ),
    "a table of epochs that contradicts itself": Fault(
        epoch_table("0\n4\n1 0\n2 200\n3 72\n4 132\n"), Kind.LEADER_EPOCHS, "contradict", -1
    ),
    "a table of epochs that is none": Fault(
        epoch_table("0\n3\n1 0\n"), Kind.LEADER_EPOCHS, "announces 3 entries", -1
    ),
    "a table of epochs that is gone": Fault(
        epoch_table(None), Kind.LEADER_EPOCHS, "the table has none there", 0
    ),
    "an offset in the offset index": Fault(
        in_file(MIDDLE, ".index", number(0, ">i", 1)), Kind.OFFSET_INDEX, "ends with", -2
    ),
    "a position in the offset index": Fault(
        in_file(MIDDLE, ".index", number(4, ">i", 1)), Kind.OFFSET_INDEX, "No batch begins at", -2
    ),
    "an offset index out of order": Fault(
        in_file(MIDDLE, ".index", number(8, ">i", -9)), Kind.OFFSET_INDEX, "out of order", -2
    ),
    "an offset index that is cut": Fault(
        in_file(MIDDLE, ".index", cut(3)), Kind.OFFSET_INDEX, "ends inside an entry", -1
    ),
    "an offset index with zeros": Fault(
        in_file(MIDDLE, ".index", zeros), Kind.OFFSET_INDEX, "unwritten entries", -2
    ),
    "an offset index that is gone": Fault(gone(MIDDLE, ".index"), Kind.OFFSET_INDEX, "Cannot", -2),
    "a time in the time index": Fault(
        in_file(MIDDLE, ".timeindex", number(0, ">q", 1)), Kind.TIME_INDEX, "but the largest", -2
    ),
    "an offset in the time index": Fault(
        in_file(MIDDLE, ".timeindex", number(8, ">i", 1)), Kind.TIME_INDEX, "No batch ends", -2
    ),
    "a time index without its last entry": Fault(
        in_file(MIDDLE, ".timeindex", cut(12)), Kind.TIME_INDEX, "The segment is closed", -2
    ),
    "a time index with zeros": Fault(
        in_file(MIDDLE, ".timeindex", zeros), Kind.TIME_INDEX, "unwritten entries", -2
    ),
    "a time index that is gone": Fault(gone(MIDDLE, ".timeindex"), Kind.TIME_INDEX, "Cannot", -2),
    "a producer in the transaction index": Fault(
        in_file(ABORTS, ".txnindex", number(2, ">q", 1)),
        Kind.TRANSACTION_INDEX,
        "is of producer",
        66,
    ),
    "a first offset in the transaction index": Fault(
        in_file(ABORTS, ".txnindex", number(10, ">q", 1)), Kind.TRANSACTION_INDEX, "began at 60", 66
    ),
    "a marker's offset in the transaction index": Fault(
        in_file(ABORTS, ".txnindex", number(18, ">q", -1)),
        Kind.TRANSACTION_INDEX,
        "no marker",
        65,
        2,
    ),
    "a last stable offset in the transaction index": Fault(
        in_file(ABORTS, ".txnindex", number(26, ">q", 1)), Kind.TRANSACTION_INDEX, "was stable", 66
    ),
    "a transaction index that lacks an entry": Fault(
        in_file(ABORTS, ".txnindex", cut(34)), Kind.TRANSACTION_INDEX, "lacks the transaction", 70
    ),
    "a transaction index that is cut": Fault(
        in_file(ABORTS, ".txnindex", cut(1)), Kind.TRANSACTION_INDEX, "ends inside an entry", -1
    ),
    "a transaction index that is gone": Fault(
        gone(ABORTS, ".txnindex"), Kind.TRANSACTION_INDEX, "lacks the transaction", 66, 2
    ),
    "other contents": Fault(
        rewritten(MIDDLE, other_contents),
        Kind.DIVERGENCE,
        "Brokers 1, 3 have offsets 96 to 98 of leader epoch 3",
        96,
    ),
    "other bounds of batches": Fault(
        rewritten(MIDDLE, other_bounds), Kind.DIVERGENCE, "broker 2 has offsets 96 to 97", 96
    ),
    "an end that is missing": Fault(
        end_is_cut(None), Kind.SHORT_LOG, "ends at offset 177, but its high watermark is 180", 177
    ),
    "an end inside a batch": Fault(end_is_cut(5), Kind.DAMAGED_BATCH, "is cut off", 177),
    "another topic's replica": Fault(other_topic, Kind.TOPIC_ID, "others are of", -1),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(replicas: Replicas, name: str) -> None:
    fault = FAULTS[name]
    fault.plant(replicas)
    findings = replicas.audit()
    assert findings, "nothing was found"
    found = findings[0]
    shown = "\n".join(map(str, findings))
    assert {each.kind for each in findings} == {fault.kind}, shown
    assert (found.topic, found.partition) == ORDERS
    assert BROKER in found.brokers
    assert any(fault.says in each.sentence for each in findings), shown
    if fault.offset != -2:
        assert fault.offset in {each.offset for each in findings}, shown
    assert len(findings) == fault.findings, shown


def survivors(path: Path, keep: Callable[[bytes | None], bool]) -> bytes:
    """The segment without some records, as a cleaner that is wrong would leave it."""
    data = path.read_bytes()
    return b"".join(
        rebuild_batch(header, [r for r in read_records(data, at) if keep(r.key)])
        for at, header in iterate_headers(data)
    )


def compacted(replicas: Replicas, change: Callable[[bytes], bytes], key: bytes) -> None:
    """Change the segment of a compacted replica that has the final value of a key."""
    for path in replicas.segments(BROKER, ACCOUNTS)[:-1]:
        data = path.read_bytes()
        keys = [record.key for at, _ in iterate_headers(data) for record in read_records(data, at)]
        if key in keys:
            path.write_bytes(change(data))
            made = Segment.existing(FILES, str(path.parent), int(path.stem))
            made.rebuild_indexes()
            made.close()
            return
    pytest.fail(f"no segment has {key!r}")


def only(findings: list[Finding]) -> Finding:
    (found,) = findings
    assert (found.topic, found.partition) == ACCOUNTS
    return found


def test_a_key_that_compaction_lost_is_found(replicas: Replicas) -> None:
    def without(data: bytes) -> bytes:
        return b"".join(
            rebuild_batch(header, [r for r in read_records(data, at) if r.key != b"a2"])
            for at, header in iterate_headers(data)
        )

    compacted(replicas, without, b"a2")
    found = only(replicas.audit())
    assert found.kind is Kind.COMPACTION
    assert "Brokers 1, 3 have the newest record of a key, 2 none: offset 147" in found.sentence


def test_a_value_that_compaction_changed_is_found(replicas: Replicas) -> None:
    def other(data: bytes) -> bytes:
        return b"".join(
            rebuild_batch(
                header,
                [
                    r._replace(value=b"stolen") if r.key == b"a3" else r
                    for r in read_records(data, at)
                ],
            )
            for at, header in iterate_headers(data)
        )

    compacted(replicas, other, b"a3")
    found = only(replicas.audit())
    assert found.kind is Kind.COMPACTION
    assert "contents at the same offset" in found.sentence


def test_a_tombstone_that_is_gone_is_no_fault_but_its_older_value_is(replicas: Replicas) -> None:
    """Broker 3 was never compacted: it has the account that was closed, and the closing of it."""

    def without_tombstone(data: bytes) -> bytes:
        return b"".join(
            rebuild_batch(header, [r for r in read_records(data, at) if r.value is not None])
            for at, header in iterate_headers(data)
        )

    path = next(each for each in replicas.segments(3, ACCOUNTS) if int(each.stem) == 130)
    path.write_bytes(without_tombstone(path.read_bytes()))
    made = Segment.existing(FILES, str(path.parent), 130)
    made.rebuild_indexes()
    made.close()
    found = only(replicas.audit())
    assert found.kind is Kind.COMPACTION
    assert found.offset == 150


def test_a_segment_of_a_compacted_log_that_is_gone_is_found(replicas: Replicas) -> None:
    path = replicas.segments(BROKER, ACCOUNTS)[2]
    path.unlink()
    found = replicas.audit()
    assert {each.kind for each in found} == {Kind.OFFSET_GAP}
    assert all("segment of this index is gone" in each.sentence for each in found)


def test_a_table_of_offsets_that_is_damaged_is_found(replicas: Replicas) -> None:
    path = Path(replicas.broker_directory(BROKER)) / HIGH_WATERMARKS
    path.write_text("0\n1\norders 0 x\n")
    inventory = take_inventory(FILES, find_log_directories(FILES, [str(replicas.home)]))
    (found,) = inventory.findings
    assert (found.kind, found.path, found.brokers) == (Kind.CHECKPOINT, str(path), (BROKER,))
