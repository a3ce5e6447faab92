"""Rows by key: the last record of a key is the row, a tombstone removes it."""

from __future__ import annotations

import random

import pytest

from strandline.errors import InvalidSetting
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, Value


def by_key(table: TableWorld) -> dict[bytes, tuple[int, object]]:
    """Offset and value of each key; fails if a key has two rows."""
    rows = table.rows()
    assert len({row["kafka_key"] for row in rows}) == len(rows)
    return {row["kafka_key"]: (row["kafka_offset"], row.get("a")) for row in rows}


def test_the_last_record_of_a_key_is_its_row(make_table: MakeTable) -> None:
    table = make_table(mode="upsert", buckets=2)
    table.batch("q", 0, [{"a": 1}, {"a": 2}, {"a": 3}], keys=[b"x", b"y", b"x"])
    assert by_key(table) == {b"x": (2, 3), b"y": (1, 2)}
    table.batch("q", 1, [{"a": 4}, None, {"a": 5}], keys=[b"y", b"x", b"z"], start=3)
    assert by_key(table) == {b"y": (3, 4), b"z": (5, 5)}
    table.batch("q", 2, [None, {"a": 6}], keys=[b"nobody", b"x"], start=6)
    assert by_key(table) == {b"y": (3, 4), b"z": (5, 5), b"x": (7, 6)}


def test_files_without_a_changed_key_stay_as_they_are(make_table: MakeTable) -> None:
    table = make_table(mode="upsert", buckets=1)
    table.batch("q", 0, [{"a": 1}, {"a": 2}], keys=[b"x", b"y"])
    [first] = table.store.files()
    table.batch("q", 1, [{"a": 3}], keys=[b"z"], start=2)
    assert first in table.store.files()
    table.batch("q", 2, [{"a": 4}], keys=[b"x"], start=3)
    assert first not in table.store.files()
    assert by_key(table) == {b"x": (3, 4), b"y": (1, 2), b"z": (2, 3)}


def test_a_record_without_a_key_is_a_dead_letter(make_table: MakeTable) -> None:
    table = make_table(mode="upsert")
    table.batch("q", 0, [{"a": 1}, {"a": 2}, None], keys=[b"x", None, None])
    assert by_key(table) == {b"x": (0, 1)}
    assert table.letters() == [1, 2]


def test_only_what_the_table_is_made_of_stays_on_disk(make_table: MakeTable) -> None:
    table = make_table(mode="upsert", buckets=1)
    for number in range(4):
        table.batch("q", number, [{"a": number}], keys=[b"x"], start=number)
    live = {item.path.local for item in table.store.files()}
    on_disk = set(table.spec.directory().local.glob("*.parquet"))
    removed = {record.files_removed for record in table.store.history()}
    assert live <= on_disk
    # The change files of each batch are gone; what a commit replaced waits for the vacuum.
    assert len(on_disk) == 4
    assert removed == {0, 1}


def test_an_old_record_never_replaces_a_newer_row(make_table: MakeTable) -> None:
    table = make_table(mode="upsert")
    table.batch("q", 0, [{"a": 1}], keys=[b"x"], start=5)
    late = table.task([{"a": 0}], keys=[b"x"], start=5)
    older = table.task([{"a": 0}], keys=[b"x"], start=5, partition=1)
    assert late.files == ()
    table.store.commit(BatchIdentity("q", 1, (OffsetRange(TOPIC, 1, 5, 6),)), [older])
    assert table.rows()[0]["kafka_partition"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_table_equals_the_dictionary_of_its_log(make_table: MakeTable, seed: int) -> None:
    random_ = random.Random(seed)
    table = make_table(mode="upsert", buckets=3)
    expected: dict[bytes, tuple[int, object]] = {}
    offset = 0
    for number in range(6):
        keys = [b"k%d" % random_.randrange(12) for _ in range(random_.randrange(1, 15))]
        values: list[Value] = [
            None if random_.random() < 0.3 else {"a": random_.randrange(99)} for _ in keys
        ]
        table.batch("q", number, values, keys=keys, start=offset)
        for key, value in zip(keys, values, strict=True):
            expected.pop(key, None)
            if isinstance(value, dict):
                expected[key] = (offset, value["a"])
            offset += 1
        if number == 3:
            table.store.compact(min_files=2)
        assert by_key(table) == expected


def test_late_rows_of_such_a_table_can_only_be_counted(make_table: MakeTable) -> None:
    with pytest.raises(InvalidSetting, match="cannot route late rows"):
        make_table(mode="upsert", event_time="t", watermark_ms=0)
