"""What is not possible of transactions, as far as readers saw them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from strandline.sim.clients.copier import Copied, not_copied_once
from strandline.sim.compacted import is_compacted
from strandline.sim.history.operations import (
    CommitAsked,
    Delivered,
    Event,
    OffsetsSent,
    Polled,
    Sent,
    TransactionBegan,
    TransactionEnded,
    WriterBegan,
)
from strandline.sim.history.transactions import (
    ABORTED_READ,
    FRACTURED,
    ZOMBIE,
    TransactionJudge,
)
from strandline.sim.options import draw_plan
from strandline.sim.sharing import GROUP, group_settings
from strandline.sim.transacting import TRANSACTING
from strandline.sim.workload import meant_by_name
from strandline.types import TopicPartition

BEGIN: Sequence[Event] = (
    WriterBegan("x", 1),
    TransactionBegan("x.1/1", "x", 1),
    Sent("x.1", "t-0", "a", None, "x.1/1"),
    Sent("x.1", "t-1", "b", None, "x.1/1"),
)
ASKED = CommitAsked("x.1/1")
READ_A = Polled("last", "t-0", [(0, "a")])
READ_B = Polled("last", "t-1", [(0, "b")])


def found(*events: Event, stored: int | None = None, gone: str = "") -> list[str]:
    judge = TransactionJudge({"reader", "last"}, {"last"})
    judge.feed([*BEGIN, *events])
    offsets = {} if stored is None else {"x": stored}
    return [each.invariant for each in judge.findings(lambda value, _: value == gone, offsets)]


def ended(*, committed: bool) -> TransactionEnded:
    return TransactionEnded("x.1/1", committed)


def test_all_or_nothing_is_right() -> None:
    assert found(ASKED, ended(committed=True), READ_A, READ_B) == []
    assert found(ASKED, READ_A, READ_B) == []
    assert found(ASKED) == []
    assert found(ended(committed=False)) == []
    uncommitted = Polled("any", "t-0", [(0, "a")])
    assert found(uncommitted, ended(committed=False)) == []


def test_a_part_is_not() -> None:
    assert found(ASKED, READ_A) == [FRACTURED]
    assert found(ASKED, ended(committed=True)) == [FRACTURED]
    assert found(ASKED, ended(committed=True), READ_A, gone="b") == []


@pytest.mark.parametrize("reader", ["reader", "last"])
def test_what_is_aborted_or_not_decided_is_not_read(reader: str) -> None:
    early = Polled(reader, "t-0", [(0, "a")])
    assert ABORTED_READ in found(early, ASKED, ended(committed=True), READ_A, READ_B)
    assert ABORTED_READ in found(ended(committed=False), early)


def test_members_of_a_share_group_are_given_nothing_aborted_or_undecided() -> None:
    given = Delivered("reader", "t-0", 0, "a")
    assert found(given, ASKED) == [ABORTED_READ]
    assert found(ASKED, ended(committed=False), given) == [ABORTED_READ]
    assert found(ASKED, ended(committed=True), given, given, READ_A, READ_B) == []
    assert found(given._replace(consumer="any"), ended(committed=False)) == []


def test_seeds_have_share_groups_that_read_committed_records_of_transactions() -> None:
    plans = [draw_plan(seed) for seed in range(400)]
    members = [
        (plan, each)
        for plan in plans
        for each in plan.clients
        if each.kind == "share" and each.options.get("isolation") == "committed"
    ]
    assert members
    for plan, member in members:
        written = {each.options["topic"] for each in plan.clients if each.kind in TRANSACTING}
        assert written & set(member.options["topic"].split(","))
        assert group_settings(plan.clients, GROUP)["share.isolation.level"] == "read_committed"


def test_seeds_have_transactions_on_compacted_topics() -> None:
    written = [
        client
        for plan in (draw_plan(seed) for seed in range(400))
        for client in plan.clients
        for topic in plan.options.topics
        if client.kind in TRANSACTING
        and client.options["topic"] == topic.name
        and is_compacted(topic)
    ]
    assert len(written) > 5
    assert {each.kind for each in written} == {"transactional"}
    assert all(int(each.options["keys"]) for each in written)
    assert {each.options["tombstones"] for each in written} == {"0", "20"}


def test_topics_that_are_meant_by_their_names_are_not_made_anew() -> None:
    for seed in range(1000, 1400):
        plan = draw_plan(seed)
        anew = {each.word(0) for each in plan.actions if each.verb == "recreate-topic"}
        assert not anew & meant_by_name(plan.clients)


def test_an_offset_is_part_of_it() -> None:
    offset = OffsetsSent("x.1/1", 5)
    everything = (offset, ASKED, ended(committed=True), READ_A, READ_B)
    assert found(*everything, stored=5) == []
    assert found(*everything, stored=7) == []
    assert found(*everything, stored=4) == [FRACTURED]
    assert found(offset, ASKED, stored=5) == [FRACTURED]


def test_a_zombie_commits_nothing() -> None:
    assert found(ASKED, WriterBegan("x", 2), READ_A, READ_B) == []
    assert found(WriterBegan("x", 2), ASKED, READ_A, READ_B) == [ZOMBIE]
    assert found(WriterBegan("x", 2), ASKED) == []


@pytest.mark.parametrize(
    ("copies", "wrong"),
    [
        ([b"k1-1=a", b"k1-2=b"], 0),
        ([b"k1-1=a"], 1),
        ([b"k1-1=a", b"k1-2=b", b"k1-3=a"], 1),
        ([b"k1-1=a", b"k1-2=b", b"k1-3=c"], 1),
        ([b"k1-1=a", b"k1-2=b", b"k10-3=c", b"p1-1"], 0),
    ],
)
def test_each_record_is_copied_once(copies: list[bytes], wrong: int) -> None:
    copied = Copied("k1", TopicPartition("t", 0), TopicPartition("u", 0), stored=3)
    events = [
        Polled("last", "t-0:1", [(0, b"a"), (2, b"b"), (3, b"c")]),
        Polled("last", "u-0:2", list(enumerate(copies))),
        Polled("reader", "u-0:2", [(9, b"k1-9=a")]),
    ]
    found = not_copied_once(copied, events, ["last"], lambda value, place: False)
    assert len(list(found)) == wrong
    gone = not_copied_once(copied, events, ["last"], lambda value, place: place == "t-0:1")
    assert not list(gone)


def test_one_seed_in_five_writes_in_transactions() -> None:
    having = [
        plan
        for plan in map(draw_plan, range(300))
        if any(each.kind == "transactional" for each in plan.clients)
    ]
    assert 30 <= len(having) <= 75
    struck = [each for each in having if any("transactions:" in str(a) for a in each.actions)]
    assert len(struck) >= 10
