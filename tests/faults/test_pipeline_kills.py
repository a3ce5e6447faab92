"""Parts of `python -m tests.faults.pipelines`: who is killed when, and what its table says."""

from __future__ import annotations

import os
import random
from collections import Counter
from itertools import islice

import pytest
from deltalake import write_deltalake

from strandline.types import TopicPartition
from tests.current import current
from tests.faults.pipelines import phases, proof, victims
from tests.faults.pipelines.lake import TABLES, Lake
from tests.faults.pipelines.outcome import Outcome, table
from tests.faults.pipelines.phases import Durations, Phases
from tests.faults.pipelines.running import Killed
from tests.faults.pipelines.victims import Kill, plan
from tests.lakehouse.tables.table_world import TableWorld

VICTIMS = [victims.DRIVER, victims.JVM, victims.WORKER, victims.BROKER]


def test_every_victim_gets_its_turn_at_every_moment() -> None:
    kills = list(islice(plan(random.Random(7), VICTIMS), 50))
    rounds = [kills[:20], kills[20:40]]
    for each in rounds:
        assert set(Counter((kill.victim, kill.moment) for kill in each).values()) == {1}
        assert {kill.moment for kill in each} == set(victims.MOMENTS)
    assert rounds[0] != rounds[1]
    assert set(Counter(kill.victim for kill in kills)) == set(VICTIMS)
    assert kills == list(islice(plan(random.Random(7), VICTIMS), 50))


def test_a_run_tells_its_phases() -> None:
    """Stages and how long they took; the last line is what a killed process was doing."""
    reading, writing = os.pipe()
    durations = Durations()
    told = Phases(os.fdopen(reading, "rb"), durations)
    assert not current(told.has_told)

    def tell(second: int, phase: str) -> None:
        os.write(writing, f"{second * 10**9} {phase}\n".encode())

    rounds = [
        (phases.WRITING, 1),
        (phases.CHECKING, 4),
        (phases.CHANGING, 5),
        (phases.FOLLOWING, 7),
        (phases.WAITING, 9),
    ]
    for start in (0, 100, 200):
        for phase, second in rounds:
            tell(start + second, phase)
    tell(301, phases.WRITING)
    os.close(writing)
    told.close()
    assert told.now == phases.WRITING
    assert told.has_told
    assert durations.usual(phases.COMMITTING, otherwise=0) == 5
    assert durations.usual(phases.WRITING, otherwise=0) == 3
    assert durations.usual(phases.COMPACTING, otherwise=0.5) == 0.5
    assert not told.wait_for(phases.COMMITTING, 60), "the process has ended"


def test_kills_are_counted_by_what_they_hit() -> None:
    def outcome(victim: str, phase: str) -> Outcome:
        killed = Killed(victim, f"a {victim}", 1, phase, 0.0, 0)
        return Outcome(Kill(victim, victims.ANY, 0.5), killed, 10, 2.0, 100, 3)

    shown = table(
        [
            outcome(victims.JVM, phases.WRITING),
            outcome(victims.JVM, phases.CHANGING),
            outcome(victims.WORKER, phases.WRITING),
        ]
    )
    head, _, jvm, worker, everything, _, names = shown.splitlines()
    columns = [each.strip() for each in head.split("|")]
    for line, writing, changing in ((jvm, "1", "1"), (worker, "1", "0"), (everything, "2", "1")):
        cells = dict(zip(columns, (each.strip() for each in line.split("|")), strict=True))
        assert (cells["writing"], cells["changing"]) == (writing, changing)
    assert names == "Workers: a worker 1"


def test_duckdb_tells_rows_that_are_missing_or_there_twice() -> None:
    """In the S3 server of `--lake s3`."""
    with Lake() as lake:
        table = TableWorld(f"{TABLES}/flights", event_time="at", watermark_ms=1000, late="route")
        table.batch("q", 0, [{"a": 1, "at": "2026-01-01T00:00:10Z"}, b"bad"])
        table.batch("q", 1, [{"a": 2, "at": "2026-01-01T00:00:01Z"}], start=2)
        partition = TopicPartition("flights", 0)
        assert proof.check_by_duckdb(lake, table.spec, {partition: 3}) == 3
        with pytest.raises(proof.NotProven, match=r"reads 3 places .* below 4: \[3\] are missing"):
            proof.check_by_duckdb(lake, table.spec, {partition: 4})
        row = table.store.dataset().to_table()
        place = str(table.spec.directory())
        write_deltalake(place, row, mode="append", storage_options={"allow_http": "true"})
        with pytest.raises(proof.NotProven, match=r"reads 4 places .* some are there twice"):
            proof.check_by_duckdb(lake, table.spec, {partition: 3})
