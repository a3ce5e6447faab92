"""Keys of a batch: in so much memory and no more, however many there are."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.lakehouse.results import keys
from strandline.lakehouse.results.errors import UnfitRows
from strandline.lakehouse.results.keys import BatchKeys, met, slice_numbers
from tests.lakehouse.results.result_world import ResultWorld

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
SCHEMA = {"window": WINDOW, "city": pa.string(), "n": pa.int32()}


def window(minute: int | None) -> dict[str, datetime] | None:
    """It may be null, as a group of Spark's may."""
    if minute is None:
        return None
    start = BEGIN + timedelta(minutes=minute)
    return {"start": start, "end": start + timedelta(minutes=1)}


def minute_of(held: dict[str, datetime] | None) -> int | None:
    """The one that `window` was made of."""
    return None if held is None else (held["start"] - BEGIN) // timedelta(minutes=1)


def test_a_batch_of_many_slices_becomes_what_a_dictionary_would(
    options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "SLICE_ROWS", 9)
    chance = random.Random(4)
    world = ResultWorld(**options, keys="window, city")
    expected: dict[tuple[int | None, str | None], int] = {}
    for number in range(4):
        made: dict[tuple[int | None, str | None], int] = {}
        for _ in range(60):
            minute = chance.randrange(40)
            key = (minute if minute % 7 else None, chance.choice(["B", "C", "", None]))
            made[key] = chance.randrange(1000)
        rows = [(window(minute), city, n) for (minute, city), n in made.items()]
        world.batch("q", number, rows, schema=SCHEMA)
        expected |= made
    held = world.store.dataset().to_table().to_pylist()
    assert len(held) == len(expected) > 80
    assert {(minute_of(row["window"]), row["city"]): row["n"] for row in held} == expected
    assert world.proof().is_good
    twice = [(window(each), "B", each) for each in (*range(1, 40), 3)]
    with pytest.raises(UnfitRows, match=r"two rows of one key \(window=.*, city=B\)"):
        world.batch("q", 4, twice, schema=SCHEMA)


def test_a_time_is_one_key_whose_bounds_were_cut_to_milliseconds(tmp_path: Path) -> None:
    """As Delta's own writer does, after whose OPTIMIZE a key was there twice."""
    moment = datetime(2026, 3, 1, 1, 2, 3, 456_789, tzinfo=UTC)
    held = {"start": moment, "end": moment}
    schema = {"at": pa.timestamp("us", "UTC"), "window": WINDOW, "n": pa.int32()}
    world = ResultWorld(path=str(tmp_path / "times"), keys="at, window")
    world.batch("q", 0, [(moment, held, 1)], schema=schema)
    log = (world.store.spec.directory() / "_delta_log").local
    cut = "2026-03-01T01:02:03.456Z"
    [path] = [each for each in log.glob("*.json") if '"add"' in each.read_text()]
    actions = [json.loads(line) for line in path.read_text().splitlines()]
    for action in actions:
        if "add" in action:
            stats = json.loads(action["add"]["stats"])
            assert stats["maxValues"]["at"] > cut
            stats["maxValues"] |= {"at": cut, "window": {"start": cut, "end": cut}}
            action["add"]["stats"] = json.dumps(stats)
    path.write_text("".join(json.dumps(each) + "\n" for each in actions))
    world.batch("q", 1, [(moment, held, 2)], schema=schema)
    assert world.rows() == [(moment, held, 2)]


def test_memory_holds_a_slice_of_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "SLICE_ROWS", 10_000)
    schema = pa.schema([("user", pa.string())])
    rows, step = 200_000, 5_000

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, step):
            names = [f"user-{each:020d}" for each in range(start, start + step)]
            yield pa.RecordBatch.from_arrays([pa.array(names)], schema=schema)

    before = pa.total_allocated_bytes()
    counted = largest = 0
    with BatchKeys(rows, batches(), schema) as held:
        assert pa.total_allocated_bytes() - before < 2**20, "they lie in files"
        for each in held:
            counted += each.num_rows
            largest = max(largest, each.num_rows)
            assert pa.total_allocated_bytes() - before < 4 * 2**20, "all of them are 6 MB"
    assert counted == rows
    assert largest < 15_000


def test_equal_keys_are_in_one_slice_whatever_is_beside_them() -> None:
    table = pa.table({"a": [3, None, 1, 3], "s": ["x", "y", None, "x"]})
    numbers = slice_numbers(table, 1000)
    assert numbers[0] == numbers[3]
    assert list(slice_numbers(table.slice(2), 1000)) == list(numbers[2:])
    assert list(met(table, table.slice(1, 1))) == [False, True, False, False]
