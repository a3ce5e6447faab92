"""Proofs that go on from the last one, and find all that came or was changed since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import DataFile
from strandline.lakehouse.tables.definition import DEAD_LETTERS, TableSpec
from strandline.lakehouse.tables.identity import Frontier, TableState
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.verify.coverage import Span
from strandline.lakehouse.verify.report import Verdict
from strandline.lakehouse.verify.standing import (
    PROOF_FILE,
    Held,
    Open,
    Standing,
    keep,
    kept,
    noted,
    open_since,
)
from strandline.types import TopicPartition
from tests.lakehouse.pipeline.conftest import TableUnderTest, make_table

__all__ = ["make_table"]

MakeTable = Callable[..., TableUnderTest]
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_a_proof_goes_on_from_the_last_one(make_table: MakeTable) -> None:
    """Over new records, joined files, and rows that went for their age; and finds what is wrong."""
    old, young = "2020-01-01T00:00:00Z", "2100-01-01T00:00:00Z"
    table = make_table(partitions=2, event_time="at", columns={"n": "long"})
    table.produce([(None, {"n": each, "at": young}) for each in range(6)] + [(None, b"poison")])
    table.produce([(None, {"n": each, "at": old}) for each in range(3)], partition=1)
    table.run()
    first = table.verify()
    assert (first.is_good, first.since, first.total(Verdict.GOOD)) == (True, None, 10)

    table.produce([(None, {"n": 6, "at": young})])
    table.run()
    report = table.verify()
    assert (report.is_good, report.since, report.total(Verdict.GOOD)) == (True, 1, 1)
    assert "Continued from the proof of commit 1" in " ".join(report.sentences())

    table.store.compact(min_files=2)
    spec = replace(table.spec, expire_rows_ms=86_400_000)
    assert open_store(spec).expire(now_ms=1_900_000_000_000).records == 4, "the letter, too"
    report = table.verify(everything=True)
    assert (report.is_good, report.since, report.total(Verdict.GOOD)) == (True, None, 11)
    assert report.place("expired") == 4
    assert "4 records had rows or letters that went for their age." in report.sentences()

    delta = DeltaTable(str(spec.directory()))
    again = delta.to_pyarrow_dataset().to_table().sort_by("kafka_offset").slice(1, 1)
    write_deltalake(str(spec.directory()), again, mode="append")
    DeltaTable(str(spec.directory())).delete("n = 4")
    report = table.verify()
    assert report.since == 4
    found = {(each.offset, each.verdict) for each in report.examples}
    assert found == {(1, Verdict.DOUBLED), (4, Verdict.MISSING)}


# -- What is open --------------------------------------------------------------------------------


def state(**ends: int) -> TableState:
    """A table whose partitions begin at 0: `state(p0=10, p1=5)`."""
    frontiers = {
        TopicPartition("t", int(name[1:])): Frontier(0, end, 0, "id") for name, end in ends.items()
    }
    return TableState(1, 1, pa.schema([]), frontiers, None)


def left(before: Standing, now: TableState, held: dict[str | None, dict[str, Held]]) -> Open:
    files = {
        side: [DataFile(Location.parse(f"/t/{name}"), 1, 1, ()) for name in named]
        for side, named in held.items()
    }
    found = open_since(before, now, files, held)
    assert found is not None
    return found


def names(files: object) -> set[str]:
    assert isinstance(files, list)
    return {each.path.name for each in files}


def test_what_is_open_since_a_proof() -> None:
    before = noted(state(p0=10, p1=20), {None: {"a": (0, 4), "b": (5, 19)}}, now_ms=0)
    nothing = left(before, state(p0=10, p1=20), {None: {"a": (0, 4), "b": (5, 19)}})
    assert not any(nothing.spans.values())
    assert not nothing.new[None]

    more = left(before, state(p0=12, p1=20), {None: {"a": (0, 4), "b": (5, 19), "c": (10, 11)}})
    # An offset is of whatever partition: those of the same number in the other one are open, too.
    assert more.spans == {P0: [Span(10, 12)], P1: [Span(10, 12)]}
    assert names(more.new[None]) == {"c"}
    assert names(more.kept[None]) == {"b"}

    joined = left(before, state(p0=10, p1=20), {None: {"b": (5, 19), "c": (0, 4)}})
    assert joined.spans == {P0: [Span(0, 5)], P1: [Span(0, 5)]}
    assert not joined.kept[None]

    further = left(before, state(p0=10, p1=20, p2=3), {None: before.files[None] | {"c": (0, 2)}})  # type: ignore[operator]
    assert further.spans[TopicPartition("t", 2)] == [Span(0, 3)]


def test_a_letter_that_became_a_row_is_open() -> None:
    before = noted(state(p0=10), {None: {"a": (0, 9)}, DEAD_LETTERS: {"d": (4, 7)}}, now_ms=0)
    replayed: dict[str | None, dict[str, Held]] = {
        None: {"a": (0, 9), "r": (4, 4)},
        DEAD_LETTERS: {"e": (7, 7)},
    }
    found = left(before, state(p0=10), replayed)
    assert found.spans == {P0: [Span(4, 8)]}
    assert names(found.kept[None]) == {"a"}


@pytest.mark.parametrize(
    ("now", "held"),
    [
        (state(p0=9), {None: {"a": (0, 9)}}),
        (state(), {None: {"a": (0, 9)}}),
        (replace(state(p0=10), frontiers={P0: Frontier(0, 10, 0, "other")}), {None: {"a": (0, 9)}}),
        (state(p0=11), {None: {"a": (0, 9), "b": None}}),
    ],
    ids=["behind it", "without the partition", "of another topic", "a file of unknown offsets"],
)
def test_everything_is_open(now: TableState, held: dict[str | None, dict[str, Held]]) -> None:
    before = noted(state(p0=10), {None: {"a": (0, 9)}}, now_ms=0)
    assert open_since(before, now, {None: []}, held) is None


def test_a_proof_is_kept_beside_its_table(tmp_path: Path) -> None:
    spec = TableSpec(name="t", topics=("t",), location=str(tmp_path))
    assert kept(spec) is None
    made = noted(state(p0=10, p1=2), {None: {"a": (0, 9)}, DEAD_LETTERS: {"b": None}}, now_ms=7)
    keep(spec, made)
    assert kept(spec) == made
    for text in ("{", "[]", '{"version": 2}', '{"version": 1}'):
        (tmp_path / PROOF_FILE).write_text(text)
        assert kept(spec) is None
