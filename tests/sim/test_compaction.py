"""What the checkers ask of compaction: which batches are the same, which keys must stay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from strandline.records.batch import BatchHeader, iterate_headers
from strandline.records.builder import build_batch, rebuild_batch
from strandline.records.record import Record, read_records
from strandline.sim.checkers.batches import (
    Batch,
    Batches,
    Dropped,
    Remains,
    header_fields,
    records_in,
)
from strandline.sim.checkers.compaction_rules import CompactionRules, Content, content_of
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.replica_rules import _segments_of
from strandline.sim.checkers.violations import Findings
from strandline.storage.segment import Segment
from strandline.storage.segments import Removal
from strandline.types import BrokerId, Offset
from tests.current import current
from tests.sim.checked_world import Checked, model_of

ONE, TWO = BrokerId(1), BrokerId(2)


@pytest.fixture
def findings() -> Findings:
    return Findings(lambda: 0, lambda _: None)


def batch(base: int, *pairs: tuple[bytes, bytes | None]) -> bytes:
    records = [Record(timestamp=1, key=key, value=value) for key, value in pairs]
    return build_batch(records, base_offset=Offset(base))


def without(data: bytes, *offsets: int, horizon_ms: int | None = None) -> bytes:
    """The batch as a cleaner leaves it, without these records."""
    _, header = next(iter(iterate_headers(data)))
    left = [record for record in read_records(data) if record.offset not in offsets]
    return rebuild_batch(header, left, delete_horizon_ms=horizon_ms)


def meet(known: Batches, broker: BrokerId, data: bytes) -> Batch:
    fields = header_fields(data, 0)
    assert fields is not None
    return known.meet(fields, len(data), None, broker, records_in(data, 0))


def test_a_batch_that_has_lost_records_is_the_same(findings: Findings) -> None:
    known = Batches("t-0", findings)
    whole = batch(5, (b"k", b"1"), (b"l", b"2"), (b"k", b"3"))
    first = meet(known, ONE, whole)
    assert meet(known, TWO, without(whole, 5)) is first
    assert meet(known, TWO, without(whole, 5, 6, 7)) is first
    assert findings.violations == []


@pytest.mark.parametrize(
    "other", [batch(5, (b"k", b"1"), (b"l", b"X")), batch(5, (b"k", b"1"), (b"m", b"2"))]
)
def test_a_batch_with_another_record_is_another_one(findings: Findings, other: bytes) -> None:
    known = Batches("t-0", findings)
    first = meet(known, ONE, batch(5, (b"k", b"1"), (b"l", b"2")))
    assert meet(known, TWO, other) is not first
    assert [violation.invariant for violation in findings.violations] == ["I-21"]


# -- Keys ------------------------------------------------------------------------------------


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    yield world
    world.close()


def compare(
    checked: Checked,
    before: list[bytes],
    after: list[bytes],
    *,
    latest_ms: int = 1000,
    committed: bool = False,
) -> list[str]:
    """What is said of a log that had the first batches, and has the others now."""
    findings = Findings(lambda: 0, lambda _: None)
    known = Batches("t-0", findings)
    model = model_of(checked, 2)
    contents = [_content(known, each) for each in (before, after)]
    _show(model, contents[1])
    CompactionRules(findings).check_swap(model, contents[0], latest_ms, lambda _: committed)
    return [violation.what for violation in findings.violations]


def _content(known: Batches, batches: list[bytes]) -> Content:
    found, remains = [], {}
    for data in batches:
        fields = header_fields(data, 0)
        assert fields is not None
        one = meet(known, ONE, data)
        found.append(one)
        if one.crc != fields[4]:
            horizon_ms = BatchHeader._make(fields).delete_horizon_ms
            records = records_in(data, 0)
            assert records is not None
            remains[one.base_offset] = Remains(records, fields[4], horizon_ms, fields[8])
    return Content(tuple(found), remains)


def _show(model: LogModel, content: Content) -> None:
    model.batches = list(content.batches)
    model.remains = dict(content.remains)
    model.log.roller.roll(0)
    assert content_of(model) == content


OLD, NEW = batch(0, (b"k", b"1"), (b"l", b"2")), batch(2, (b"k", b"3"))


def test_an_older_value_may_go(checked: Checked) -> None:
    assert compare(checked, [OLD, NEW], [without(OLD, 0), NEW]) == []
    assert checked.found == []


@pytest.mark.parametrize(("committed", "found"), [(True, 0), (False, 1)])
def test_what_is_committed_may_go_though_the_mark_has_fallen(
    checked: Checked, committed: bool, found: int
) -> None:
    """Seed 61214: a follower's high watermark fell at an election, behind the plan of a round."""
    checked.write(5)
    log = model_of(checked, 2).log
    log.offsets.high_watermark = Offset(5)
    old, new = batch(5, (b"k", b"1"), (b"l", b"2")), batch(7, (b"k", b"3"))
    told = compare(checked, [old, new], [without(old, 5), new], committed=committed)
    assert len(told) == found


def test_the_newest_value_must_stay(checked: Checked) -> None:
    [what] = compare(checked, [OLD, NEW], [OLD])
    assert "has b'1' at 0 for b'k', and had b'3' at 2" in what


def test_a_key_must_not_go(checked: Checked) -> None:
    [what] = compare(checked, [OLD, NEW], [NEW])
    assert "has nothing for b'l', and had b'2' at 1" in what


@pytest.mark.parametrize(("unread", "found"), [(1, 0), (None, 1)])
def test_a_key_may_have_a_later_record_that_was_never_read(
    checked: Checked, unread: int | None, found: int
) -> None:
    """The topic was not a compacted one when that was written (seed 120000087)."""
    findings = Findings(lambda: 0, lambda _: None)
    known, model = Batches("t-0", findings), model_of(checked, 2)
    only_l, other = batch(0, (b"l", b"2")), batch(1, (b"m", b"1"))
    before = _content(known, [only_l, other])
    if unread is not None:
        before.batches[unread].records = None
    _show(model, Content(before.batches[1:], {}))
    CompactionRules(findings).check_swap(model, before, 1000, lambda _: True)
    assert len(findings.violations) == found


def test_a_batch_that_is_rightly_gone_is_gone_for_all(checked: Checked) -> None:
    only_k = batch(0, (b"k", b"1"))
    assert compare(checked, [only_k, NEW], [NEW]) == []
    gone = batch(4, (b"k", b"9"))
    [what] = compare(checked, [OLD, NEW, gone], [OLD, NEW])
    assert "has b'3' at 2 for b'k', and had b'9' at 4" in what


def test_a_tombstone_stays_until_its_horizon(checked: Checked) -> None:
    erased = batch(2, (b"k", None))
    marked = without(erased, horizon_ms=500)
    assert compare(checked, [OLD, erased], [without(OLD, 0), marked]) == []
    assert compare(checked, [without(OLD, 0), erased, marked], [without(OLD, 0)]) == []
    [what] = compare(checked, [without(OLD, 0), erased], [without(OLD, 0)])
    assert "has dropped the tombstone of b'k' at 2, which was to stay until None" in what
    late = without(erased, horizon_ms=2000)
    [what] = compare(checked, [without(OLD, 0), erased, late], [without(OLD, 0)])
    assert "which was to stay until 2000 (it is 1000)" in what


def test_who_was_away_too_long_never_hears_of_a_tombstone(checked: Checked) -> None:
    """Seed 61415: it was gone from the leader's log before the follower came back (as in Kafka)."""
    findings = Findings(lambda: 0, lambda _: None)
    known = Batches("t-0", findings)
    rules = CompactionRules(findings)
    follower, leader = model_of(checked, 1), model_of(checked, 2)
    erased = batch(2, (b"k", None))
    partition = PartitionModel(leader.at, leader.log.topic_id, findings)
    partition._committed.extend(_content(known, [OLD, erased]).batches)
    for model in (follower, leader):
        _show(model, _content(known, [OLD]))
    rules.check_history(partition, follower)
    [found] = findings.violations
    assert found.invariant == "I-36"
    assert "has b'1' at 0 for b'k', but a tombstone at 2 was committed" in found.what

    findings.violations.clear()
    before = _content(known, [OLD, without(erased, horizon_ms=500)])
    _show(leader, _content(known, [without(OLD, 0)]))
    rules.check_swap(leader, before, 1000, lambda _: True)
    rules.check_history(partition, follower)
    assert findings.violations == []


def test_an_erased_key_does_not_come_back(checked: Checked) -> None:
    only_l = without(OLD, 0)
    [what] = compare(checked, [only_l], [only_l, batch(2, (b"m", b"1"))])
    assert "has b'1' at 2 for b'm', which was gone" in what


def test_r21_what_is_not_committed_is_not_compacted(checked: Checked) -> None:
    later = batch(7, (b"l", b"5"))
    [what] = compare(checked, [OLD, NEW, later], [OLD, NEW])
    assert "has lost records of batch 7 of epoch -1" in what


# -- What else happens to a compacted log ----------------------------------------------------


def test_a_start_finds_what_the_process_wrote_last(checked: Checked) -> None:
    """It died in the event in which it appended: the checkers had not seen that yet."""
    findings = Findings(lambda: 0, lambda _: None)
    known, rules = Batches("t-0", findings), CompactionRules(findings)
    former, model = model_of(checked, 1), model_of(checked, 2)
    _show(former, _content(known, [OLD]))
    _show(model, _content(known, [without(OLD, 0), NEW]))
    rules.check_recovered(model, former, 1000, 0, is_same=True)
    [found] = findings.violations
    assert "has nothing for b'k', and had b'1' at 0" in found.what
    findings.violations.clear()
    _show(model, _content(known, [OLD, NEW]))
    rules.check_recovered(model, former, 1000, 0, is_same=True)
    assert findings.violations == []


def test_what_was_deleted_may_be_compacted_though_the_log_start_falls(checked: Checked) -> None:
    findings = Findings(lambda: 0, lambda _: None)
    known, rules = Batches("t-0", findings), CompactionRules(findings)
    former, model = model_of(checked, 1), model_of(checked, 2)
    _show(former, _content(known, [OLD, NEW]))
    _show(model, _content(known, [NEW]))
    assert model.log.log_start_offset == 0
    rules.check_recovered(model, former, 1000, 2, is_same=True)
    assert findings.violations == []


def test_a_compacted_batch_that_was_never_compared_may_be_missing_elsewhere(
    checked: Checked,
) -> None:
    """Tombstones as well; but what went with the front of the log was not compacted."""
    findings = Findings(lambda: 0, lambda _: None)
    known, rules = Batches("t-0", findings), CompactionRules(findings)
    follower, leader = model_of(checked, 1), model_of(checked, 2)
    erased, later = batch(2, (b"k", None)), batch(3, (b"m", b"1"))
    before = _content(known, [OLD, erased, later])
    partition = PartitionModel(leader.at, leader.log.topic_id, findings)
    partition._committed.extend(before.batches)
    _show(follower, _content(known, [OLD, later]))
    _show(leader, _content(known, [without(OLD, 0), later]))
    rules.note_gone(leader, before, 5)
    assert [each.compacted_away for each in before.batches] == [False, True, False]
    rules.check_history(partition, follower)
    assert findings.violations == []

    first = leader.log.segments.first
    leader.log.segments.forget([first])
    assert leader.log.segments.first.base_offset > 3
    _show(leader, Content((), {}))
    rules.note_gone(leader, before, 5)
    assert [each.compacted_away for each in before.batches] == [False, True, False]


def test_a_log_was_compacted_whatever_its_policy_is_now(checked: Checked) -> None:
    model = model_of(checked, 2)
    assert not current(model.is_compacted)
    config = model.log.config
    model.log.update_config(replace(config, cleanup_policies=frozenset({"compact"})))
    assert model.is_compacted
    model.log.update_config(config)
    assert model.is_compacted


def test_a_segment_that_begins_in_front_of_its_first_batch(checked: Checked) -> None:
    """Each segment is judged by itself, with the size and the age that compaction has left it."""
    model = model_of(checked, 2)
    old, new = _content(Batches("t-0", model._findings), [OLD, NEW]).batches
    dropped = [Dropped(old, 70, 5), Dropped(new, 60, 1)]
    model.log.files.make_directory("/data1/x")
    for base in (0, 1):
        path = f"/data1/t-0/{base:020}.log.deleted"
        segment = Segment.create(model.log.files, "/data1/x", base, model.log.config)
        model.log.segments.removals.append(Removal(0, (path,), segment))
    assert _segments_of(model, dropped) == [[dropped[0]], [dropped[1]]]
