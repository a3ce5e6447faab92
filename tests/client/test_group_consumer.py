"""Members of groups at a real broker: ours alone, and beside librdkafka and kafka-python."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.group_consumer import RebalanceListener
from strandline.client.group_offsets import CommitResult
from strandline.client.group_progress import GroupProgress
from strandline.client.group_requests import Committed
from strandline.client.group_settings import GroupSettings
from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import Offset, TopicPartition
from tests.client.conftest import FAST, BrokerThread
from tests.client.group_members import (
    PARTITIONS,
    KafkaPython,
    Librdkafka,
    Ours,
    check_shared,
    make_topic,
    share,
    together,
    until,
    values,
    write,
)
from tests.client.half_led import HEALTHY, ORPHAN, VALUES, comes_back, half_led


@pytest.fixture
def topic(cluster: ClusterClient, name: str) -> str:
    return make_topic(cluster, name)


# -- Ours alone ----------------------------------------------------------------------------------


def test_a_member_goes_on_where_the_group_stopped(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    first = Ours(broker.address, topic, topic, enable_auto_commit=False)
    with together(first):
        read: list[bytes] = []
        while len(read) < 8:
            read += first.turn()
        assert set(read) == values(range(8))
        first.consumer.commit({TopicPartition(topic, 0): Offset(1)})
    second = Ours(broker.address, topic, topic)
    with together(second):
        again = until(lambda: second.owned() == {0, 1, 2, 3}, [second])
        while len(again) < 7:
            again += second.turn()
        assert set(again) == values([1, 2, 3, 4, 5, 6, 7])
    offsets = Admin(cluster).groups.offsets(topic)
    assert {at.partition: each.offset for at, each in offsets.items()} == dict.fromkeys(range(4), 2)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_two_members_share_the_partitions_and_hand_over(
    broker: BrokerThread, cluster: ClusterClient, topic: str, assignor: str
) -> None:
    one = Ours(broker.address, topic, topic, assignors=(assignor,))
    with together(one):
        read = until(lambda: one.owned() == {0, 1, 2, 3}, [one])
        while len(read) < 8:
            read += one.turn()
        two = Ours(broker.address, topic, topic, assignors=(assignor,))
        with together(two):
            assert until(lambda: share([one, two]), [one, two]) == []  # committed before
            described = Admin(cluster).groups.describe(topic)
            assert (described.state, described.assignor) == ("Stable", assignor)
            assert {each.subscribed for each in described.members} == {(topic,)}
            write(cluster, topic, range(8, 16))
            read = []
            while len(read) < 8:
                read += one.turn() + two.turn()
            assert set(read) == values(range(8, 16))
        until(lambda: one.owned() == {0, 1, 2, 3}, [one])
        assert one.lost == []
        if assignor == "cooperative-sticky":
            assert len(one.revoked) == 2


def test_a_member_beats_while_its_program_is_slow(
    start_broker_at: Callable[..., BrokerThread], name: str
) -> None:
    broker = start_broker_at("group.min.session.timeout.ms=100")
    with ClusterClient(broker.address, FAST) as cluster:
        Admin(cluster).topics.create(name, partitions=PARTITIONS)
        session = {"session_timeout_ms": 1500, "heartbeat_interval_ms": 100}
        slow = Ours(broker.address, name, name, **session)
        with together(slow):
            until(lambda: slow.owned() == {0, 1, 2, 3}, [slow])
            before = slow.consumer.generation
            time.sleep(3)  # two sessions in which the program does nothing
            slow.consumer.commit({TopicPartition(name, 0): Offset(0)})
            assert slow.consumer.generation == before
            assert slow.lost == []


def test_a_program_that_does_not_poll_gives_its_partitions_to_others(
    broker: BrokerThread, topic: str
) -> None:
    silent = Ours(broker.address, topic, topic, max_poll_interval_ms=1000)
    with together(silent):
        until(lambda: silent.owned() == {0, 1, 2, 3}, [silent])
        other = Ours(broker.address, topic, topic)
        with together(other):
            until(lambda: other.owned() == {0, 1, 2, 3}, [other])
            with pytest.raises(ProtocolError) as refused:
                silent.consumer.commit({TopicPartition(topic, 0): Offset(1)})
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            until(lambda: share([silent, other]), [silent, other])
            assert len(silent.lost) == PARTITIONS


def test_a_static_member_comes_back_without_a_rebalance_and_fences_its_predecessor(
    broker: BrokerThread, topic: str
) -> None:
    one = Ours(broker.address, topic, topic, instance_id="one")
    with together(one):
        until(lambda: one.owned() == {0, 1, 2, 3}, [one])
        generation = one.consumer.generation
    again = Ours(broker.address, topic, topic, instance_id="one")
    with together(again):
        until(lambda: again.owned() == {0, 1, 2, 3}, [again])
        assert generation is not None
        assert again.consumer.generation is not None
        assert again.consumer.generation.generation == generation.generation
        third = Ours(broker.address, topic, topic, instance_id="one")
        with together(third):
            until(lambda: third.owned() == {0, 1, 2, 3}, [third])
            with pytest.raises(ProtocolError) as fenced:
                until(lambda: False, [again])
            assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID


def test_partitions_that_are_added_are_read_too(
    broker: BrokerThread, cluster: ClusterClient, name: str
) -> None:
    Admin(cluster).topics.create(name, partitions=3)
    member = Ours(broker.address, name, name)
    with together(member):
        until(lambda: member.owned() == {0, 1, 2}, [member])
        Admin(cluster).topics.add_partitions(name, 4)
        until(lambda: member.owned() == {0, 1, 2, 3}, [member])


def test_without_a_committed_offset_and_a_reset_a_member_fails(
    broker: BrokerThread, topic: str
) -> None:
    member = Ours(broker.address, topic, topic, auto_offset_reset="none")
    with together(member), pytest.raises(ProtocolError, match=r"auto\.offset\.reset is none"):
        until(lambda: False, [member])


def test_a_member_may_seek_when_it_is_assigned(broker: BrokerThread, topic: str) -> None:
    member = Ours(broker.address, topic, topic)

    def assigned(partitions: Sequence[TopicPartition]) -> None:
        for each in partitions:
            member.consumer.seek(each, Start.latest(1))

    member.consumer.subscribe([topic], RebalanceListener(assigned=assigned))
    with together(member):
        read: list[bytes] = []
        while len(read) < 4:
            read += member.turn()
        assert set(read) == values([4, 5, 6, 7])


def test_an_error_of_the_listener_reaches_the_program_and_ends_no_membership(
    broker: BrokerThread, topic: str
) -> None:
    member = Ours(broker.address, topic, topic)

    def fails(partitions: Sequence[TopicPartition]) -> None:
        raise RuntimeError("the program's own")

    member.consumer.subscribe([topic], RebalanceListener(assigned=fails, revoked=fails))
    with together(member):
        for _ in range(2):  # assigned; then revoked, and the member joins all the same
            with pytest.raises(RuntimeError, match="own"):
                until(lambda: False, [member])
            if len(member.consumer.positions) == PARTITIONS:
                member.consumer.subscribe([topic, "another"], RebalanceListener(revoked=fails))
        member.consumer.subscribe([topic])
        until(lambda: member.owned() == {0, 1, 2, 3}, [member])


def test_a_member_reads_what_has_leaders_and_the_rest_when_it_has_one() -> None:
    """The group has stored no offset of the partition without a leader: where to begin is kept."""
    with half_led(is_noticed=True) as brokers:
        member = Ours(brokers.bootstrap_servers, "g", "t")
        with together(member):
            read: list[bytes] = []
            while len(read) < 3:
                read += member.turn()
            assert read == VALUES[HEALTHY]
            assert sorted(member.consumer.partitions) == [HEALTHY, ORPHAN]
            assert member.owned() == {0}
            comes_back(brokers)
            assert (
                until(lambda: member.consumer.positions.get(ORPHAN) == 1, [member])
                == (VALUES[ORPHAN])
            )


def test_a_seek_back_to_where_the_member_began_is_committed_too() -> None:
    at = TopicPartition("t", 0)
    progress = GroupProgress(GroupSettings(group="g", auto_commit_interval_ms=100), now_ms=0)
    progress.begin({at: Committed(Offset(0))})
    assert progress.due({at: Offset(0)}, 100) == {}
    assert progress.due({at: Offset(10)}, 200) == {at: Committed(Offset(10))}
    assert progress.last({at: Offset(0)}) == {at: Committed(Offset(0))}


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, "divides its partitions anew: poll, then commit"),
        (ErrorCode.ILLEGAL_GENERATION, "has given partitions to other members"),
    ],
)
def test_what_a_refused_commit_means_is_said(code: ErrorCode, sentence: str) -> None:
    progress = GroupProgress(GroupSettings(group="g"), now_ms=0)
    with pytest.raises(ProtocolError, match=sentence) as refused:
        progress.committed(CommitResult({}, 1, code))
    assert refused.value.code is code


# -- Beside others -------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("ours_leads", [True, False])
def test_librdkafka_shares_a_group_with_us(
    broker: BrokerThread, cluster: ClusterClient, topic: str, assignor: str, ours_leads: bool
) -> None:
    ours = partial(Ours, broker.address, topic, topic, assignors=(assignor,))
    theirs = partial(
        Librdkafka, broker.address, topic, topic, partition_assignment_strategy=assignor
    )
    check_shared(cluster, topic, [ours, theirs] if ours_leads else [theirs, ours])


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("ours_leads", [True, False])
def test_kafka_python_shares_a_group_with_us(
    broker: BrokerThread, cluster: ClusterClient, topic: str, assignor: str, ours_leads: bool
) -> None:
    ours = partial(Ours, broker.address, topic, topic, assignors=(assignor,))
    theirs = partial(KafkaPython, broker.address, topic, topic, assignor=assignor)
    check_shared(cluster, topic, [ours, theirs] if ours_leads else [theirs, ours])
