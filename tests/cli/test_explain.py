"""`explain` and `compact`: what the brokers say of segments, and compaction on demand."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[..., Any]


def fill(strandline: Run, spawn: Run, name: str, *settings: str, keys: str = "abaca") -> None:
    """Make a topic and write a value per key."""
    options = [word for setting in settings for word in ("--config", setting)]
    assert strandline("topics", "create", name, *options).code == 0
    lines = "".join(f"{key}:{number}\n" for number, key in enumerate(keys))
    assert spawn("produce", name, "--key-separator", ":", stdin=lines.encode()).code == 0


def test_retention_is_explained_segment_by_segment(strandline: Run, spawn: Run, name: str) -> None:
    fill(strandline, spawn, name, "retention.ms=3600000")
    shown = strandline("explain", "retention", name)
    assert shown.code == 0, shown.err
    lines = shown.out.splitlines()
    assert lines[0].startswith(f"{name}-0 on broker 1 (leader): cleanup.policy=delete")
    assert lines[1].split()[:3] == ["SEGMENT", "END", "BYTES"]
    assert "retention.ms" in lines[2]
    assert lines[-2] == "The next round removes nothing."
    assert lines[-1].startswith("Time alone lets the next segment go at 20")
    (document,) = strandline("explain", "retention", name, "--json").json
    (facts,) = document["partitions"]
    (segment,) = facts["segments"]
    assert (segment["base_offset"], segment["end_offset"], segment["goes"]) == (0, 5, False)
    assert segment["until_ms"] == segment["newest_ms"] + 3_600_001


def test_a_dry_run_of_retention_shows_only_what_goes(
    strandline: Run, spawn: Run, name: str
) -> None:
    fill(strandline, spawn, name, "retention.ms=0")
    shown = strandline("explain", "retention", name, "--dry-run", "--partition", "0").out
    assert "The next round removes 1 segment with " in shown
    assert "offsets 0 to 4" in shown
    assert (
        strandline("topics", "describe", name, "--json").json[0]["partitions"][0]["start_offset"]
        == 0
    )
    kept = strandline("topics", "alter", name, "--config", "retention.ms=-1")
    assert kept.code == 0, kept.err
    shown = strandline("explain", "retention", name, "--dry-run").out
    assert len(shown.splitlines()) == 2, "no table of nothing"


def test_compaction_is_explained_tried_and_done(strandline: Run, spawn: Run, name: str) -> None:
    fill(strandline, spawn, name, "cleanup.policy=compact", "min.cleanable.dirty.ratio=1")
    shown = strandline("explain", "compaction", name, "--dry-run")
    assert shown.code == 0, shown.err
    assert "Not due: Nothing is cleanable." in shown.out
    assert "A round would do nothing." in shown.out
    done = strandline("compact", name, "--now", "--wait")
    assert done.code == 0, done.err
    assert done.out.startswith(f"{name}-0 on broker 1: 3 of 5 records kept, ")
    (document,) = strandline("explain", "compaction", name, "--json").json
    (facts,) = document["partitions"]
    assert [each["state"] for each in facts["segments"]] == ["clean", "active"]
    assert (facts["first_dirty_offset"], facts["dirty_ratio"]) == (5, 0.0)
    assert facts["last_round"]["records_kept"] == 3
    lines = strandline("explain", "compaction", name).out.splitlines()
    headers = lines[1].split()
    assert headers[3:5] == ["NEWEST", "RECORD"]
    assert [line.split()[3] == "-" for line in lines[2:4]] == [False, True], "one is empty"
    read = spawn("consume", name, "--exit-at-end", "--format", "json")
    assert [json.loads(line)["value"] for line in read.out.splitlines()] == ["1", "3", "4"]
    again = strandline("compact", name, "--now", "--wait").out
    assert f"{name}-0 on broker 1: " in again


def test_what_was_not_compacted_ends_with_1(strandline: Run, spawn: Run, name: str) -> None:
    fill(strandline, spawn, name, "cleanup.policy=compact", "min.cleanable.dirty.ratio=1")
    load_factor = "log.cleaner.io.buffer.load.factor"
    setting = ("configs", "alter", "--broker", "all")
    assert strandline(*setting, "--set", f"{load_factor}=0.00000001").code == 0
    try:
        failed = strandline("compact", name, "--now", "--wait")
        in_json = strandline("compact", name, "--now", "--wait", "--json")
        explained = strandline("explain", "compaction", name)
    finally:
        assert strandline(*setting, "--delete", load_factor).code == 0
    assert (failed.code, in_json.code) == (1, 1)
    assert f"{name}-0 on broker 1: not compacted. " in failed.out
    assert load_factor in failed.out
    assert "The last round failed: log.cleaner" in explained.out
    assert strandline("compact", name, "--now", "--wait").code == 0


def test_a_dry_run_names_what_would_go(strandline: Run, spawn: Run, name: str) -> None:
    fill(
        strandline,
        spawn,
        name,
        "cleanup.policy=compact",
        "min.cleanable.dirty.ratio=1",
        "segment.ms=1",
        keys="aab",
    )
    lines = b"c:1\n"
    assert spawn("produce", name, "--key-separator", ":", stdin=lines).code == 0
    shown = strandline("explain", "compaction", name, "--dry-run").out
    assert "A round would keep 2 of 3 records" in shown
    assert "Offsets that would go: 0" in shown
    (document,) = strandline("explain", "compaction", name, "--dry-run", "--json").json
    assert document["partitions"][0]["dry_run"]["groups"][0]["gone"] == [[0, 0]]


@pytest.mark.parametrize("what", ["retention", "compaction"])
def test_a_topic_or_partition_that_is_not_there(strandline: Run, name: str, what: str) -> None:
    missing = strandline("explain", what, name)
    assert (missing.code, missing.out) == (1, "")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in missing.err
    assert strandline("topics", "create", name).code == 0
    missing = strandline("explain", what, name, "--partition", "7")
    assert (missing.code, missing.out) == (1, "")
    assert f"There is no partition 7 of topic '{name}'." in missing.err


def test_what_is_not_compacted_is_refused(strandline: Run, name: str) -> None:
    assert strandline("topics", "create", name).code == 0
    refused = strandline("compact", name, "--now")
    assert refused.code == 1
    assert refused.err.startswith(f"The topic '{name}' is not compacted: ")
    assert "POLICY_VIOLATION" in refused.err
    assert strandline("compact", name).code == 2, "--now says that it is not the cleaner's turn"
