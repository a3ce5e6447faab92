"""The assignors: Kafka's results, balance, and what stays where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.client.assignors import ASSIGNORS, is_cooperative, parse_assignors
from strandline.client.consumer_protocol import (
    Subscription,
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from strandline.client.group_subscriber import Subscriber
from strandline.client.sticky import sticky_user_data
from strandline.errors import InvalidSetting, MalformedFrame
from strandline.types import TopicPartition

Parts = dict[str, list[TopicPartition]]


def member(name: str, *topics: str, instance: str | None = None) -> Subscriber:
    return Subscriber(name, instance, Subscription(topics))


def names(parts: Parts) -> dict[str, list[str]]:
    return {name: [str(each) for each in part] for name, part in parts.items()}


def divide(assignor: str, members: Sequence[Subscriber], **topics: int) -> Parts:
    partitions = {topic: range(count) for topic, count in topics.items()}
    return ASSIGNORS[assignor].assign(members, partitions)


def owning(
    assignor: str, name: str, topics: Sequence[str], owned: Sequence[TopicPartition], since: int
) -> Subscriber:
    """A member that joins again and tells what it had."""
    if assignor == "sticky":
        data = sticky_user_data(owned, since)
        return Subscriber(name, None, Subscription(tuple(topics), user_data=data))
    return Subscriber(name, None, Subscription(tuple(topics), tuple(owned), since))


# -- Range and roundrobin ------------------------------------------------------------------------


def test_range_gives_runs_of_each_topic_and_the_rest_to_the_first() -> None:
    members = [member("b", "t", "u"), member("a", "t"), member("c", "t", "u")]
    assert names(divide("range", members, t=4, u=1)) == {
        "a": ["t-0", "t-1"],
        "b": ["t-2", "u-0"],
        "c": ["t-3"],
    }


def test_roundrobin_deals_all_partitions_out_in_turn() -> None:
    members = [member("b", "t", "u"), member("a", "t"), member("c", "u")]
    assert names(divide("roundrobin", members, t=3, u=3)) == {
        "a": ["t-0", "t-2"],
        "b": ["t-1", "u-0", "u-2"],
        "c": ["u-1"],
    }


def test_static_members_come_first_by_their_names() -> None:
    members = [member("a", "t"), member("z", "t", instance="1"), member("y", "t", instance="2")]
    assert names(divide("range", members, t=3)) == {"z": ["t-0"], "y": ["t-1"], "a": ["t-2"]}


def test_topics_without_subscribers_and_members_without_partitions_are_fine() -> None:
    members = [member("a", "t"), member("b", "none")]
    for name in ASSIGNORS:
        assert names(divide(name, members, t=1, u=2)) == {"a": ["t-0"], "b": []}


# -- Sticky --------------------------------------------------------------------------------------

subscriptions = st.dictionaries(
    st.sampled_from("abcdef"), st.sets(st.sampled_from("tuvw"), min_size=1), min_size=1
)
sizes = st.dictionaries(st.sampled_from("tuvw"), st.integers(0, 7), min_size=1)


def lists_of(sizes: Mapping[str, int]) -> dict[str, range]:
    return {topic: range(count) for topic, count in sizes.items()}


def check_complete(parts: Parts, wants: Mapping[str, set[str]], sizes: Mapping[str, int]) -> None:
    given_out = [at for part in parts.values() for at in part]
    assert len(given_out) == len(set(given_out))
    wanted = {topic for topics in wants.values() for topic in topics}
    assert set(given_out) == {
        TopicPartition(topic, number)
        for topic, count in sizes.items()
        if topic in wanted
        for number in range(count)
    }
    assert all(at.topic in wants[name] for name, part in parts.items() for at in part)


def can_be_better(parts: Parts, wants: Mapping[str, set[str]]) -> bool:
    """Whether partitions could go along a path of members to one with at least two fewer."""
    gives = {
        (giver, taker)
        for giver, part in parts.items()
        for taker in parts
        if any(at.topic in wants[taker] for at in part)
    }
    for giver in parts:
        reach = {giver}
        for _ in parts:
            reach |= {taker for source, taker in gives if source in reach}
        if any(len(parts[giver]) - len(parts[taker]) >= 2 for taker in reach):
            return True
    return False


@given(wants=subscriptions, sizes=sizes)
@settings(max_examples=150, deadline=None)
def test_sticky_is_complete_and_as_balanced_as_subscriptions_allow(
    wants: dict[str, set[str]], sizes: dict[str, int]
) -> None:
    members = [member(name, *topics) for name, topics in wants.items()]
    parts = ASSIGNORS["sticky"].assign(members, lists_of(sizes))
    check_complete(parts, wants, sizes)
    assert not can_be_better(parts, wants)


@given(wants=subscriptions, sizes=sizes)
@settings(max_examples=100, deadline=None)
def test_nothing_moves_while_nothing_changes(
    wants: dict[str, set[str]], sizes: dict[str, int]
) -> None:
    for assignor in ("sticky", "cooperative-sticky"):
        assign = ASSIGNORS[assignor].assign
        first = assign([member(name, *topics) for name, topics in wants.items()], lists_of(sizes))
        again = [owning(assignor, name, sorted(wants[name]), first[name], 1) for name in wants]
        assert assign(again, lists_of(sizes)) == first


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_a_member_that_comes_takes_only_its_share(assignor: str) -> None:
    before = divide(assignor, [member("a", "t"), member("b", "t")], t=12)
    members = [owning(assignor, name, ["t"], before[name], 3) for name in "ab"]
    after = divide(assignor, [*members, member("c", "t")], t=12)
    for name in "ab":
        assert len(after[name]) == 4
        assert set(after[name]) < set(before[name])
    # What moves is still owned by others: the cooperative one waits until it is given up.
    assert len(after["c"]) == (4 if assignor == "sticky" else 0)
    if assignor == "cooperative-sticky":
        members = [owning(assignor, name, ["t"], after[name], 4) for name in "abc"]
        last = divide(assignor, members, t=12)
        assert [last["a"], last["b"], len(last["c"])] == [after["a"], after["b"], 4]


@pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])
def test_what_a_member_leaves_behind_is_dealt_out(assignor: str) -> None:
    before = divide(assignor, [member(name, "t") for name in "abc"], t=9)
    members = [owning(assignor, name, ["t"], before[name], 3) for name in "ab"]
    after = divide(assignor, members, t=9)
    assert sorted(len(part) for part in after.values()) == [4, 5]
    assert all(set(before[name]) < set(after[name]) for name in "ab")


def test_the_newest_claim_counts_and_two_of_one_generation_cancel_each_other() -> None:
    t = [TopicPartition("t", number) for number in range(4)]
    old = owning("sticky", "a", ["t"], t[:2], 3)
    newer = owning("sticky", "b", ["t"], t[1:3], 4)
    after = divide("sticky", [old, newer], t=4)
    assert (t[1] in after["b"], t[0] in after["a"]) == (True, True)
    torn = [owning("cooperative-sticky", name, ["t"], t[:2], 4) for name in "ab"]
    assert sum(map(len, divide("cooperative-sticky", torn, t=2).values())) == 2


def test_moves_go_through_others_where_they_must() -> None:
    """a reads t alone with b, b reads u with c: what a has too much reaches c through b."""
    t, u = ([TopicPartition(topic, number) for number in range(3)] for topic in "tu")
    members = [
        owning("sticky", "a", ["t"], t, 1),
        owning("sticky", "b", ["t", "u"], u[:2], 1),
        owning("sticky", "c", ["u"], u[2:], 1),
    ]
    after = divide("sticky", members, t=3, u=3)
    assert [len(after[name]) for name in "abc"] == [2, 2, 2]


@given(sizes=sizes, count=st.integers(1, 5), leaver=st.integers(0, 4))
@settings(max_examples=60, deadline=None)
def test_no_two_members_own_a_partition_while_a_cooperative_group_changes(
    sizes: dict[str, int], count: int, leaver: int
) -> None:
    assign = ASSIGNORS["cooperative-sticky"].assign
    wants = {str(number): set("tuvw") for number in range(count + 1)}
    owned: Parts = {name: [] for name in wants}
    for generation in range(1, 6):
        if generation == 3 and str(leaver) in wants and len(wants) > 1:
            del wants[str(leaver)], owned[str(leaver)]
        members = [
            owning("cooperative-sticky", name, sorted(wants[name]), owned[name], generation)
            for name in wants
        ]
        parts = assign(members, lists_of(sizes))
        for one, other in combinations(wants, 2):
            # What a member is given, another one must not be reading still.
            assert not set(parts[one]) & set(owned[other])
        owned = parts
    check_complete(owned, wants, sizes)


# -- Bytes ---------------------------------------------------------------------------------------


def test_what_is_written_is_read() -> None:
    owned = (TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0))
    told = Subscription(("t", "u"), owned, 7, sticky_user_data(owned, 7), "rack")
    assert read_subscription(subscription_bytes(told)) == told


def test_bytes_are_kafka_s() -> None:
    """As Kafka's `ConsumerProtocol` writes version 3, field by field."""
    subscription = Subscription(("t",), (TopicPartition("t", 1),), 2, None, None)
    assert subscription_bytes(subscription) == bytes.fromhex(
        "0003"  # version
        "00000001"
        "000174"  # topics
        "ffffffff"  # no user data
        "00000001"
        "000174"
        "00000001"
        "00000001"  # owned partitions
        "00000002"  # generation
        "ffff"  # no rack
    )
    assert assignment_bytes([TopicPartition("t", 1), TopicPartition("t", 0)]) == bytes.fromhex(
        "000300000001000174000000020000000000000001ffffffff"
    )
    assert sticky_user_data([TopicPartition("t", 1)], 5) == bytes.fromhex(
        "00000001000174000000010000000100000005"
    )


def test_older_and_newer_bytes_are_read() -> None:
    first = bytes.fromhex("000000000001000174ffffffff")
    assert read_subscription(first) == Subscription(("t",))
    newest = subscription_bytes(Subscription(("t",), (TopicPartition("t", 1),), 2))
    assert read_subscription(b"\x00\x09" + newest[2:] + b"more").owned == (TopicPartition("t", 1),)
    assert read_assignment(b"") == ()
    for wrong in (b"\x00", first[:-2]):
        with pytest.raises(MalformedFrame):
            read_subscription(wrong)


# -- The setting ---------------------------------------------------------------------------------


def test_strategies_go_by_name_or_by_kafka_s_class() -> None:
    classes = "org.apache.kafka.clients.consumer.RangeAssignor, CooperativeStickyAssignor"
    assert parse_assignors(classes) == ("range", "cooperative-sticky")
    assert not is_cooperative(("range", "cooperative-sticky"))
    assert is_cooperative(("cooperative-sticky",))


@pytest.mark.parametrize("wrong", ["", "uniform", "range,range"])
def test_strategies_that_are_none_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidSetting, match=r"partition\.assignment\.strategy"):
        parse_assignors(wrong)
