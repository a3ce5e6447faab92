"""Members of groups at a real broker: ours alone, and beside librdkafka and kafka-python."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Protocol

import pytest
from confluent_kafka import Consumer as LibrdkafkaConsumer

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Start
from strandline.client.group_consumer import GroupConsumer, RebalanceListener
from strandline.client.group_settings import GroupSettings
from strandline.client.producer import Producer
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import Offset, TopicPartition
from tests.client.conftest import FAST, PATIENCE_S, BrokerThread

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its own resources in a way that is deprecated
    from kafka import KafkaConsumer as KafkaPythonConsumer

PARTITIONS = 4


class Member(Protocol):
    """A member of any client, as these tests need it."""

    def turn(self) -> list[bytes]:
        """Poll once, shortly; the values that came."""

    def owned(self) -> set[int]:
        """The numbers of its partitions."""

    def close(self) -> None: ...


class Ours:
    """A member of this project's client."""

    def __init__(self, address: str, group: str, topic: str, **settings: Any) -> None:
        # The leader of a group looks for new partitions as often as metadata grow old.
        self.cluster = ClusterClient(address, replace(FAST, metadata_age_max_ms=1000))
        named = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 200, **settings}
        self.consumer = GroupConsumer(self.cluster, GroupSettings(group=group, **named))
        self.lost: list[TopicPartition] = []
        self.revoked: list[TopicPartition] = []
        listener = RebalanceListener(revoked=self.revoked.extend, lost=self.lost.extend)
        self.consumer.subscribe([topic], listener)

    def turn(self) -> list[bytes]:
        return [
            record.value or b"" for fetched in self.consumer.poll(50) for record in fetched.records
        ]

    def owned(self) -> set[int]:
        generation = self.consumer.generation
        owned = set() if generation is None else {at.partition for at in generation.owned}
        return owned & {at.partition for at in self.consumer.positions}

    def close(self) -> None:
        self.consumer.close()
        self.cluster.close()


class Librdkafka:
    """A member of confluent-kafka."""

    def __init__(self, address: str, group: str, topic: str, **settings: Any) -> None:
        self._consumer = LibrdkafkaConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 200,
                "session.timeout.ms": 6000,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe([topic])

    def turn(self) -> list[bytes]:
        message = self._consumer.poll(0.05)
        if message is None:
            return []
        assert message.error() is None
        value = message.value()
        assert isinstance(value, bytes)
        return [value]

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


class KafkaPython:
    """A member of kafka-python."""

    def __init__(self, address: str, group: str, topic: str, **settings: Any) -> None:
        self._consumer = KafkaPythonConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
            # As a leader that does not know the topic yet it assigns nothing, and looks again then.
            metadata_max_age_ms=1000,
            **settings,
        )

    def turn(self) -> list[bytes]:
        found = self._consumer.poll(timeout_ms=500)
        return [record.value for records in found.values() for record in records]

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def together(*members: Member) -> Iterator[None]:
    with ExitStack() as ends:
        for each in members:
            ends.callback(each.close)
        yield


def until(condition: Callable[[], bool], members: Sequence[Member]) -> list[bytes]:
    """Let the members poll in turn; what they have read when the condition holds."""
    values: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, [each.owned() for each in members]
        for each in members:
            values += each.turn()
    return values


def share(members: Sequence[Member]) -> bool:
    """Whether each of them has a part, and together all."""
    parts = [each.owned() for each in members]
    return all(parts) and sorted(number for part in parts for number in part) == [0, 1, 2, 3]


def write(cluster: ClusterClient, topic: str, numbers: Sequence[int]) -> None:
    with Producer(cluster) as producer:
        for number in numbers:
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


@pytest.fixture
def topic(cluster: ClusterClient, name: str) -> str:
    Admin(cluster).topics.create(name, partitions=PARTITIONS)
    write(cluster, name, range(8))
    return name


def values(numbers: Sequence[int]) -> set[bytes]:
    return {b"%d" % number for number in numbers}


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


# -- Beside others -------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("ours_leads", [True, False])
def test_librdkafka_shares_a_group_with_us(
    broker: BrokerThread, cluster: ClusterClient, topic: str, assignor: str, ours_leads: bool
) -> None:
    check_shared(
        broker,
        cluster,
        topic,
        ours_leads=ours_leads,
        ours={"assignors": (assignor,)},
        theirs=lambda: Librdkafka(
            broker.address, topic, topic, partition_assignment_strategy=assignor
        ),
    )


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("ours_leads", [True, False])
def test_kafka_python_shares_a_group_with_us(
    broker: BrokerThread, cluster: ClusterClient, topic: str, assignor: str, ours_leads: bool
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    kinds = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    check_shared(
        broker,
        cluster,
        topic,
        ours_leads=ours_leads,
        ours={"assignors": (assignor,)},
        theirs=lambda: KafkaPython(
            broker.address, topic, topic, partition_assignment_strategy=[kinds[assignor]]
        ),
    )


def check_shared(
    broker: BrokerThread,
    cluster: ClusterClient,
    topic: str,
    *,
    ours_leads: bool,
    ours: dict[str, Any],
    theirs: Callable[[], Member],
) -> None:
    """Who comes first leads: both divide what both understand, and hand over to each other."""

    def make_ours() -> Member:
        return Ours(broker.address, topic, topic, **ours)

    make: list[Callable[[], Member]] = [make_ours, theirs] if ours_leads else [theirs, make_ours]
    first = make[0]()
    with together(first):
        read = until(lambda: first.owned() == {0, 1, 2, 3}, [first])
        second = make[1]()
        with together(second):
            read += until(lambda: share([first, second]), [first, second])
            write(cluster, topic, range(8, 24))
            while not set(read) >= values(range(24)):
                read += first.turn() + second.turn()
            assert len(Admin(cluster).groups.describe(topic).members) == 2
        until(lambda: first.owned() == {0, 1, 2, 3}, [first])
