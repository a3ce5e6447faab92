"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cluster.assignment import Candidates, assign_more_replicas, assign_replicas
from strandline.cluster.controller import (
    PartitionsSpec,
    TopicSpec,
    create_partitions,
    create_topics,
    internal_topic_spec,
)
from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId
from tests.cluster.story import Story


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9),
    st.data(),
    st.integers(1, 60),
    st.integers(0, 2**32),
    st.integers(0, 40),
)
def test_assignments_are_balanced_and_spread_over_racks(
    places: list[str | None], data: st.DataObject, partitions: int, seed: int, more: int
) -> None:
    factor = data.draw(st.integers(1, len(places)))
    racks = {BrokerId(number * 3): rack for number, rack in enumerate(places)}
    backwards = dict(reversed(racks.items()))
    assigned = assign_replicas(
        Candidates(backwards),
        partition_count=partitions,
        replication_factor=factor,
        random=Random(seed),
    )
    added = assign_more_replicas(
        Candidates(racks),
        existing=assigned,
        partition_count=more,
        replication_factor=factor,
    )
    assert (len(assigned), len(added)) == (partitions, more)
    whole = [*assigned, *added]
    sizes = Counter(places)
    for replicas in whole:
        assert len(set(replicas)) == len(replicas) == factor
        assert set(replicas) <= racks.keys()
        per_rack = Counter(racks[broker] for broker in replicas)
        assert len(per_rack) == min(factor, len(sizes))
        # No rack has two more than another one that has brokers to spare.
        spare = [per_rack[rack] for rack, size in sizes.items() if per_rack[rack] < size]
        assert not spare or max(per_rack.values()) - min(spare) <= 1
    leaders = Counter(replicas[0] for replicas in whole)
    assert max(leaders.values()) - min(leaders[each] for each in racks) <= 1


def test_followers_of_one_broker_spread_over_all_others() -> None:
    racks = {BrokerId(number): None for number in range(5)}
    assigned = assign_replicas(
        Candidates(racks), partition_count=20, replication_factor=2, random=Random(1)
    )
    pairs = Counter(assigned)
    assert set(pairs.values()) == {1}
    assert len(pairs) == 20


@pytest.mark.parametrize("seed", range(20))
def test_equal_racks_carry_equal_numbers_of_replicas(seed: int) -> None:
    racks = {BrokerId(number): "abc"[number % 3] for number in range(6)}
    assigned = assign_replicas(
        Candidates(racks), partition_count=12, replication_factor=3, random=Random(seed)
    )
    held = Counter(broker for replicas in assigned for broker in replicas)
    assert set(held.values()) == {6}
    for replicas in assigned:
        assert {racks[broker] for broker in replicas} == {"a", "b", "c"}


@pytest.mark.parametrize(("factor", "brokers"), [(0, 3), (-1, 3), (4, 3), (1, 0)])
def test_more_replicas_than_brokers_are_refused(factor: int, brokers: int) -> None:
    with pytest.raises(ProtocolError) as refused:
        assign_replicas(
            Candidates({BrokerId(number): None for number in range(brokers)}),
            partition_count=1,
            replication_factor=factor,
            random=Random(1),
        )
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


@given(
    st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=5),
    st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=4),
    st.data(),
    st.integers(0, 2**32),
)
def test_c12_brokers_that_are_down_get_what_the_running_ones_cannot_hold(
    up: list[str | None], gone: list[str | None], data: st.DataObject, seed: int
) -> None:
    """A stopped broker counts for placement, and never gets the first replica of a partition."""
    factor = data.draw(st.integers(1, len(up) + len(gone)))
    running = {BrokerId(number): rack for number, rack in enumerate(up)}
    down = {BrokerId(50 + number): rack for number, rack in enumerate(gone)}
    candidates = Candidates(running, down)
    assigned = assign_replicas(
        candidates, partition_count=12, replication_factor=factor, random=Random(seed)
    )
    added = assign_more_replicas(
        candidates, existing=assigned, partition_count=5, replication_factor=factor
    )
    for replicas in [*assigned, *added]:
        assert len(set(replicas)) == len(replicas) == factor
        assert sum(broker in running for broker in replicas) == min(factor, len(running))
        assert all(broker in running for broker in replicas[: len(running)])
    held = Counter(broker for replicas in assigned for broker in replicas if broker in down)
    if factor > len(running) and len(set(gone)) == 1 and len(down) in (1, 2, 3, 4):
        share = 12 * (factor - len(running)) / len(down)
        assert all(abs(held[broker] - share) < 1 for broker in down)


def test_c12_nothing_is_placed_while_no_broker_runs() -> None:
    with pytest.raises(ProtocolError) as refused:
        assign_replicas(
            Candidates({}, {BrokerId(1): None}),
            partition_count=1,
            replication_factor=1,
            random=Random(1),
        )
    assert refused.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_new_topics_and_partitions_are_spread_over_the_racks_of_the_brokers() -> None:
    story = Story()
    for number, rack in ((2, "b"), (3, "b"), (4, "c")):
        story.join(number, rack)
    story.create(TopicSpec("t", 6, 3))
    story.follow(create_partitions(story.image, [PartitionsSpec("t", 12)]))
    for partition in story.image.topics["t"].partitions.values():
        racks = {story.image.brokers[broker].rack for broker in partition.replicas}
        assert racks == {None, "b", "c"}


def test_brokers_that_shut_down_get_no_new_partitions_if_the_others_suffice() -> None:
    story = Story(3)
    story.announce_shutdown(2)
    story.create(TopicSpec("t", 6, 2))
    for partition in story.image.topics["t"].partitions.values():
        assert set(partition.replicas) == {1, 3}
    story.create(TopicSpec("whole", 6, 3))
    for partition in story.image.topics["whole"].partitions.values():
        assert set(partition.replicas) == {1, 2, 3}
        assert set(partition.in_sync_replicas) == {1, 3}, "who is about to go is not in sync"


def test_where_only_a_broker_that_shuts_down_is_left_it_leads() -> None:
    story = Story(2)
    story.announce_shutdown(2)
    story.place("t", [2])
    assert (story.partition().leader, story.partition().in_sync_replicas) == (2, (2,))


def test_the_offsets_topic_has_the_size_of_the_cluster_and_outlives_its_growth() -> None:
    story = Story(1, "offsets.topic.num.partitions=3")
    spec = internal_topic_spec(CONSUMER_OFFSETS, story.config, broker_count=1)
    assert spec is not None
    assert spec.replication_factor == 1
    story.create(spec)
    story.join(2)
    story.join(3)
    grown = internal_topic_spec(CONSUMER_OFFSETS, story.config, broker_count=3)
    assert grown is not None
    assert grown.replication_factor == 3
    # It exists and stays as it is: that the setting would be another one today breaks nothing.
    [result] = create_topics(story.image, [grown], story.config, random=story.random).results
    assert result.refusal is not None
    assert result.refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert story.reconcile() == []
    topic = story.image.topics[CONSUMER_OFFSETS]
    assert [partition.leader for partition in topic.partitions.values()] == [1, 1, 1]
    fresh = Story(3, "offsets.topic.num.partitions=3")
    fresh.create(grown)
    assert fresh.image.topics[CONSUMER_OFFSETS].replication_factor == 3
