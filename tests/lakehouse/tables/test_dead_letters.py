"""Dead letters: what they keep, which are listed, and what a replay makes of them."""

from __future__ import annotations

import pyarrow as pa

from strandline.lakehouse.deadletters.listing import (
    Letter,
    LetterFilter,
    count_letters,
    list_letters,
)
from strandline.lakehouse.deadletters.replaying import replay
from strandline.lakehouse.tables.identity import BatchIdentity, OffsetRange
from strandline.lakehouse.tables.writing import BatchWriter
from tests.lakehouse.tables.conftest import MakeTable
from tests.lakehouse.tables.table_world import TOPIC, TableWorld, kafka_rows


def test_a_letter_keeps_everything_of_its_record(make_table: MakeTable) -> None:
    table = make_table()
    table.batch("q", 0, [{"a": 1}])
    records = kafka_rows([b"\xffbad"], start=1, keys=[b"key"])
    headers = pa.array([[{"key": "h", "value": b"1"}, {"key": "h", "value": None}]], HEADERS_TYPE)
    records = records.append_column("headers", headers)
    writer = BatchWriter(table.spec, table.store.state(), "0")
    writer.write(records)
    ranges = (OffsetRange(TOPIC, 0, 1, 2),)
    table.store.commit(BatchIdentity("q", 1, ranges), [writer.finish()])
    assert list(list_letters(table.store)) == [
        Letter(
            topic=TOPIC,
            partition=0,
            offset=1,
            offset_end=2,
            timestamp_ms=0,
            key=b"key",
            payload=b"\xffbad",
            headers=(("h", b"1"), ("h", None)),
            error_class="BadValue",
            error="The value is not UTF-8: invalid start byte.",
            decoder="json",
            table_sequence=1,
        )
    ]


HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
)


def several(make_table: MakeTable) -> TableWorld:
    """Letters of two classes in two batches, and a lost range."""
    table = make_table(columns={"a": "long"}, evolve=False)
    table.batch("q", 0, [{"a": 1}, b"bad", {"b": 1}])
    table.batch("q", 1, [b"worse", {"a": "x"}], partition=1)
    table.store.declare_lost([OffsetRange(TOPIC, 0, 3, 10)])
    return table


def test_letters_are_counted_and_chosen(make_table: MakeTable) -> None:
    table = several(make_table)
    assert count_letters(table.store) == {
        "BadValue": 2,
        "UnknownField": 1,
        "WrongType": 1,
        "LostRange": 1,
    }

    def chosen(**parts: object) -> list[tuple[int, int]]:
        found = list_letters(table.store, LetterFilter(**parts))  # type: ignore[arg-type]
        return sorted((letter.partition, letter.offset) for letter in found)

    assert chosen(error_class="BadValue") == [(0, 1), (1, 0)]
    assert chosen(partition=1) == [(1, 0), (1, 1)]
    assert chosen(topic="other") == []
    assert chosen(offset_start=1, offset_end=3) == [(0, 1), (0, 2), (1, 1)]
    assert count_letters(table.store, LetterFilter(partition=1)) == {"BadValue": 1, "WrongType": 1}


def test_a_table_without_letters_has_none(make_table: MakeTable) -> None:
    table = make_table()
    assert list(list_letters(table.store)) == []
    assert count_letters(table.store) == {}
    assert replay(table.store) == (0, 0)


def test_a_replay_moves_what_can_be_read_now(make_table: MakeTable) -> None:
    table = several(make_table)
    assert replay(table.store) == (0, 4)
    before = table.store.history()[0]
    fixed = TableWorld(table.spec.place.local, format=table.spec.format)
    assert fixed.store.history()[0] == before
    assert replay(fixed.store, LetterFilter(partition=1)) == (0, 2)
    assert replay(fixed.store, LetterFilter(error_class="UnknownField")) == (1, 0)
    assert fixed.offsets() == [0, 2]
    assert count_letters(fixed.store) == {"BadValue": 2, "WrongType": 1, "LostRange": 1}
    assert replay(fixed.store) == (0, 3)
    record = fixed.store.history()[0]
    assert (record.kind, record.rows, record.dead_letters) == ("replay", 1, 0)


def test_a_replay_leaves_the_table_to_its_query(make_table: MakeTable) -> None:
    table = several(make_table)
    fixed = TableWorld(table.spec.place.local, format=table.spec.format)
    replay(fixed.store)
    assert fixed.batch("q", 2, [{"a": 1}], start=10).rows == 1
    assert table.store.frontier(OffsetRange(TOPIC, 0, 0, 0).topic_partition).end == 11  # type: ignore[union-attr]


def test_replayed_rows_are_never_late(make_table: MakeTable) -> None:
    options = {"event_time": "t", "watermark_ms": 0, "columns": {"a": "long"}}
    table = make_table(evolve=False, **options)
    table.batch("q", 0, [{"t": 1000, "b": 1}, {"t": 9000}])
    fixed = TableWorld(table.spec.place.local, format=table.spec.format, **options)
    assert replay(fixed.store) == (1, 0)
    assert (fixed.offsets(), fixed.late()) == ([0, 1], [])


def test_a_replay_into_rows_by_key_yields_to_newer_rows(make_table: MakeTable) -> None:
    table = make_table(mode="upsert", columns={"a": "long"}, evolve=False)
    keys = [b"x", b"x", b"y"]
    table.batch("q", 0, [{"a": 1, "b": 1}, {"a": 2}, {"a": 3, "b": 3}], keys=keys)
    fixed = TableWorld(table.spec.place.local, format=table.spec.format, mode="upsert")
    assert replay(fixed.store) == (2, 0)
    assert {row["kafka_key"]: row["a"] for row in fixed.rows()} == {b"x": 2, b"y": 3}
    assert fixed.letters() == []
