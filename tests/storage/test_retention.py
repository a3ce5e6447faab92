"""Retention: Kafka's three rules against a plain reading of them, in one go and in slices."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.storage.files import DiskFull
from strandline.storage.log import Log
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.retention import Rule
from strandline.storage.retention_facts import retention_facts
from strandline.types import Offset
from tests.storage.conftest import Kit, World

DELETE = frozenset({"delete"})
COMPACT = frozenset({"compact"})


def some_log(random: Random) -> tuple[Log, int]:
    """A log of a few segments with records of many ages, and the time."""
    world, kit = World(MemoryFiles(), "/data", "memory"), Kit()
    log = world.create(
        TopicConfig(
            segment_bytes=1000, message_timestamp_after_max_ms=10**12, cleanup_policies=DELETE
        )
    )
    for _ in range(random.randint(0, 30)):
        age_ms = random.choice([-5000, 0, 500, 1000, 5000, 20_000])
        kit.append(log, b"." * random.randint(1, 300), timestamp=kit.now_ms - age_ms)
        if random.random() < 0.2:
            log.roller.roll(kit.now_ms)
    log.advance_high_watermark_to(Offset(random.randint(0, log.log_end_offset)))
    if random.random() < 0.7:
        log.advance_high_watermark_to(log.log_end_offset)
    log.retention.delete_records_to(Offset(random.randint(0, log.high_watermark)))
    policies = random.choice([DELETE, COMPACT, DELETE | COMPACT, frozenset[str]()])
    log.update_config(
        TopicConfig(
            segment_bytes=1000,
            retention_ms=random.choice([-1, 0, 999, 1000, 10_000]),
            retention_bytes=random.choice([-1, 0, 700, 2000, 4000]),
            cleanup_policies=policies,
        )
    )
    return log, kit.now_ms


def expected(log: Log, now_ms: int) -> int:
    """How many segments go, by the words of the specification (4.5)."""
    segments = log.segments.all
    bounds = [*log.segments.base_offsets[1:], log.log_end_offset]
    committed = [log.high_watermark >= bound for bound in bounds]
    if segments[-1].size == 0:
        committed[-1] = False

    def go_on(first: int, qualifies: Any) -> int:
        while first < len(segments) and committed[first] and qualifies(first):
            first += 1
        return first

    gone = go_on(0, lambda at: at + 1 < len(segments) and bounds[at] <= log.log_start_offset)
    if "delete" not in log.config.cleanup_policies:
        return gone
    if log.config.retention_bytes >= 0:
        excess = sum(s.size for s in segments[gone:]) - log.config.retention_bytes

        def is_excess(at: int) -> bool:
            nonlocal excess
            if excess - segments[at].size < 0:
                return False
            excess -= segments[at].size
            return True

        gone = go_on(gone, is_excess)
    if log.config.retention_ms >= 0:
        gone = go_on(
            gone,
            lambda at: (
                now_ms - segments[at].largest_timestamp().timestamp > log.config.retention_ms
            ),
        )
    return gone


@pytest.mark.parametrize("seed", range(150))
def test_what_goes_is_what_the_rules_say_however_it_is_cut(seed: int) -> None:
    log, now_ms = some_log(Random(seed))
    gone = expected(log, now_ms)
    bases = [*log.segments.base_offsets]
    newer = bases[gone:]
    start_before, end = log.log_start_offset, log.log_end_offset
    facts = retention_facts(log, now_ms)
    assert len(facts.goes_next) == gone
    assert [each.base_offset for each in facts.segments] == bases
    at_most = Random(seed).choice([1, 2, 5, None])
    while log.retention.expire(now_ms, at_most):
        log.check()
    dropped = 0
    while step := log.retention.drop_below_start(now_ms, at_most):
        assert at_most is None or step <= at_most
        dropped += step
        log.check()
    assert dropped == gone
    if newer:
        assert [*log.segments.base_offsets] == newer
        assert log.log_start_offset == max(start_before, newer[0])
    else:
        assert [*log.segments.base_offsets] == [end], "the active segment was rolled and went"
        assert log.log_start_offset == end
    assert log.log_end_offset == end
    assert not retention_facts(log, now_ms).goes_next


def test_records_without_a_timestamp_age_by_their_file(world: Any, kit: Any) -> None:
    log = world.create(TopicConfig(segment_bytes=1000, retention_ms=1000))
    kit.append(log, b"old", timestamp=-1)
    log.roller.roll(kit.now_ms)
    log.advance_high_watermark_to(log.log_end_offset)
    written_ms = world.files.modified_ms(log.segments.first.log.path)
    assert log.retention.apply_retention(written_ms + 1000) == 0
    assert log.retention.apply_retention(written_ms + 1001) == 1


def test_the_facts_name_the_rule_and_when_it_changes(kit: Any) -> None:
    world = World(MemoryFiles(), "/data", "memory")
    log = world.create(
        TopicConfig(segment_bytes=1000, retention_ms=1000, message_timestamp_after_max_ms=10**12)
    )
    for age_ms in (5000, -9000, 5000, 0):
        kit.append(log, b"x", timestamp=kit.now_ms - age_ms)
        log.roller.roll(kit.now_ms)
    log.advance_high_watermark_to(Offset(3))
    facts = retention_facts(log, kit.now_ms)
    assert [(each.rule, each.goes) for each in facts.segments] == [
        (Rule.AGE, True),
        (Rule.AGE, False),
        (Rule.OLDER_STAYS, False),
        (Rule.NOT_COMMITTED, False),
        (Rule.EMPTY_ACTIVE, False),
    ]
    assert facts.goes_at_ms == facts.segments[1].until_ms == kit.now_ms + 9000 + 1001
    document = facts.to_json()
    assert document["goes_next"] == {
        "segments": 1,
        "bytes": facts.segments[0].size_bytes,
        "from_offset": 0,
        "to_offset": 1,
    }
    log.update_config(TopicConfig(cleanup_policies=COMPACT))
    assert {each.rule for each in retention_facts(log, kit.now_ms).segments} == {Rule.POLICY}
    log.update_config(TopicConfig(retention_ms=-1, retention_bytes=-1))
    rules = [each.rule for each in retention_facts(log, kit.now_ms).segments]
    assert rules[0] is Rule.NOTHING_SET
    log.update_config(TopicConfig(retention_ms=-1, retention_bytes=10**6))
    assert retention_facts(log, kit.now_ms).segments[0].rule is Rule.SIZE


def test_on_a_full_disk_all_goes_that_needs_no_new_segment() -> None:
    """A disk that was full of records that were too old stayed so: a new active segment, with which
    all others would have gone, found no room."""
    files, kit = MemoryFiles(), Kit()
    log = World(files, "/data", "memory").create(
        TopicConfig(segment_bytes=1000, retention_ms=1000, cleanup_policies=DELETE)
    )
    for _ in range(10):
        kit.append(log, b"." * 300)
    log.advance_high_watermark_to(log.log_end_offset)
    *_, last = log.segments.base_offsets
    late_ms = kit.now_ms + 10_000

    def full(operation: str, path: str) -> None:
        if operation in ("create", "append to"):
            raise DiskFull(f"Cannot {operation} {path}: No space left on device.")

    files.on_call = full
    assert log.retention.apply_retention(late_ms) > 1
    assert log.segments.base_offsets == [last]
    with pytest.raises(DiskFull):
        log.retention.apply_retention(late_ms)
    files.on_call = None
    assert log.retention.apply_retention(late_ms) == 1
    assert log.log_start_offset == log.log_end_offset
