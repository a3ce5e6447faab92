"""The measurements of tables, on a small scale: that they do what they measure."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.tables import commits, upkeep
from bench.tables.local import in_turns


def test_commits_are_told_by_format_and_number(tmp_path: Path) -> None:
    lines = commits.commit_costs(tmp_path, ("delta", "iceberg"), 12).splitlines()
    assert [line.split(" | ")[:2] for line in lines[3:]] == [["| 10", "delta"], ["| 10", "iceberg"]]


def test_a_compaction_joins_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "ROWS_PER_FILE", 10)
    done = upkeep.compaction(tmp_path, upkeep.DRIVER, 1, files=5)
    assert 0 < done.before_mb <= done.peak_mb


def test_ways_take_turns_after_a_round_that_warms_up() -> None:
    ran: list[str] = []
    took = in_turns({"a": lambda _: ran.append("a"), "b": lambda _: ran.append("b")}, "topic", 2)
    assert ran == ["a", "b", "b", "a", "a", "b"]
    assert {way: len(seconds) for way, seconds in took.items()} == {"a": 2, "b": 2}
