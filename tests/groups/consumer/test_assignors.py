"""What the assignors promise, for any group: complete, balanced, sticky, deterministic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.groups.consumer.assignors import ASSIGNORS, MemberSpec, PartitionCounts
from strandline.groups.consumer.partitions import Partitions

TOPICS = [UUID(int=number) for number in range(1, 5)]
ORDERS, CLICKS = TOPICS[:2]
COUNTS = st.fixed_dictionaries({topic: st.integers(1, 9) for topic in TOPICS})
Members = Mapping[str, MemberSpec]
Targets = Mapping[str, Partitions]

MEMBER_IDS = st.lists(st.sampled_from("abcdefghij"), unique=True, max_size=8)


@st.composite
def same_subscriptions(draw: st.DrawFn) -> Members:
    topics = frozenset(draw(st.sets(st.sampled_from(TOPICS))))
    return {member: MemberSpec(topics) for member in draw(MEMBER_IDS)}


@st.composite
def other_subscriptions(draw: st.DrawFn) -> Members:
    return {
        member: MemberSpec(frozenset(draw(st.sets(st.sampled_from(TOPICS)))))
        for member in draw(MEMBER_IDS)
    }


SUBSCRIPTIONS = same_subscriptions() | other_subscriptions()


def partitions_of(target: Partitions) -> set[tuple[UUID, int]]:
    return {(topic, number) for topic, numbers in target.items() for number in numbers}


def with_targets(members: Members, targets: Targets) -> dict[str, MemberSpec]:
    return {m: replace(spec, target=targets.get(m, {})) for m, spec in members.items()}


def moved(before: Targets, after: Targets) -> int:
    """How many partitions have another owner than before, though that is still there."""
    return sum(
        len(partitions_of(before[member]) - partitions_of(after[member]))
        for member in before
        if member in after
    )


@pytest.mark.parametrize("name", ASSIGNORS)
@given(members=SUBSCRIPTIONS, counts=COUNTS, before=SUBSCRIPTIONS)
def test_every_partition_has_one_owner_that_subscribes_to_it(
    name: str, members: Members, counts: PartitionCounts, before: Members
) -> None:
    old = ASSIGNORS[name](before, counts)
    members = with_targets(members, old)
    targets = ASSIGNORS[name](members, counts)
    assert targets.keys() == members.keys()
    owners = Counter(each for target in targets.values() for each in partitions_of(target))
    subscribed = {topic for spec in members.values() for topic in spec.topic_ids}
    assert set(owners) == {(t, number) for t in subscribed for number in range(counts[t])}
    assert set(owners.values()) <= {1}
    for member, target in targets.items():
        assert target.keys() <= members[member].topic_ids
        assert all(target.values())
    assert ASSIGNORS[name](members, counts) == targets


@given(members=same_subscriptions(), counts=COUNTS, before=SUBSCRIPTIONS)
def test_uniform_is_balanced_whatever_was_before(
    members: Members, counts: PartitionCounts, before: Members
) -> None:
    old = ASSIGNORS["uniform"](before, counts)
    targets = ASSIGNORS["uniform"](with_targets(members, old), counts)
    loads = [len(partitions_of(target)) for target in targets.values()]
    assert max(loads, default=0) - min(loads, default=0) <= 1


@given(members=other_subscriptions(), counts=COUNTS, before=SUBSCRIPTIONS)
def test_uniform_leaves_no_move_that_would_even_out_two_members(
    members: Members, counts: PartitionCounts, before: Members
) -> None:
    old = ASSIGNORS["uniform"](before, counts)
    targets = ASSIGNORS["uniform"](with_targets(members, old), counts)
    loads = {member: len(partitions_of(target)) for member, target in targets.items()}
    for giver, target in targets.items():
        for topic in target:
            for taker, spec in members.items():
                if topic in spec.topic_ids:
                    assert loads[giver] - loads[taker] <= 1


@given(members=SUBSCRIPTIONS, counts=COUNTS)
def test_uniform_moves_nothing_when_nothing_has_changed(
    members: Members, counts: PartitionCounts
) -> None:
    targets = ASSIGNORS["uniform"](members, counts)
    assert ASSIGNORS["uniform"](with_targets(members, targets), counts) == targets


@given(members=same_subscriptions(), counts=COUNTS, more=st.sampled_from("klm"))
def test_uniform_moves_to_a_new_member_no_more_than_its_share(
    members: Members, counts: PartitionCounts, more: str
) -> None:
    if not members:
        return
    before = ASSIGNORS["uniform"](members, counts)
    topics = next(iter(members.values())).topic_ids
    grown = with_targets(members, before) | {more: MemberSpec(topics)}
    after = ASSIGNORS["uniform"](grown, counts)
    assert moved(before, after) == len(partitions_of(after[more]))


@given(members=same_subscriptions(), counts=COUNTS)
def test_uniform_takes_nothing_from_those_that_stay_when_one_leaves(
    members: Members, counts: PartitionCounts
) -> None:
    if len(members) < 2:
        return
    before = ASSIGNORS["uniform"](members, counts)
    left = dict(list(with_targets(members, before).items())[1:])
    after = ASSIGNORS["uniform"](left, counts)
    assert moved(before, after) == 0


def test_range_gives_neighbours_and_the_first_members_one_more() -> None:
    both = frozenset({ORDERS, CLICKS})
    members = {"b": MemberSpec(both), "a": MemberSpec(both), "c": MemberSpec(both)}
    assert ASSIGNORS["range"](members, {ORDERS: 5, CLICKS: 5}) == {
        "a": {ORDERS: {0, 1}, CLICKS: {0, 1}},
        "b": {ORDERS: {2, 3}, CLICKS: {2, 3}},
        "c": {ORDERS: {4}, CLICKS: {4}},
    }


def test_range_puts_static_members_first_by_their_instances() -> None:
    topic = frozenset({ORDERS})
    members = {
        "a": MemberSpec(topic),
        "z": MemberSpec(topic, instance_id="i-1"),
        "y": MemberSpec(topic, instance_id="i-2"),
    }
    assert ASSIGNORS["range"](members, {ORDERS: 2}) == {
        "z": {ORDERS: {0}},
        "y": {ORDERS: {1}},
        "a": {},
    }


def test_range_counts_only_those_that_subscribe() -> None:
    members = {"a": MemberSpec(frozenset({ORDERS})), "b": MemberSpec(frozenset({ORDERS, CLICKS}))}
    assert ASSIGNORS["range"](members, {ORDERS: 2, CLICKS: 3}) == {
        "a": {ORDERS: {0}},
        "b": {ORDERS: {1}, CLICKS: {0, 1, 2}},
    }


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("other", [frozenset({ORDERS}), frozenset({CLICKS})])
def test_of_a_last_target_only_what_is_there_is_kept(name: str, other: frozenset[UUID]) -> None:
    """It may have been taken over from an assignment of an earlier topic of the name."""
    members = {
        "a": MemberSpec(frozenset({ORDERS}), {ORDERS: frozenset({-1, 2, 3, 9})}),
        "b": MemberSpec(other),
    }
    targets = ASSIGNORS[name](members, {ORDERS: 3, CLICKS: 2})
    owned = [each for target in targets.values() for each in partitions_of(target)]
    expected = {(ORDERS, number) for number in range(3)}
    expected |= {(CLICKS, number) for number in range(2)} if CLICKS in other else set()
    assert sorted(owned) == sorted(expected)
