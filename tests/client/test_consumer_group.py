"""Members of the consumer protocol at a real broker: ours alone, and beside librdkafka's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

import strandline
from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.group_settings import CONSUMER
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from strandline.types import Offset, TopicPartition
from tests.client.conftest import FAST, BrokerThread
from tests.client.group_members import (
    PARTITIONS,
    Librdkafka,
    Member,
    Ours,
    OursAsync,
    check_shared,
    make_topic,
    share,
    together,
    until,
    values,
    write,
)

QUICK = (
    "group.consumer.min.heartbeat.interval.ms=100",
    "group.consumer.heartbeat.interval.ms=100",
    "group.consumer.min.session.timeout.ms=1500",
    "group.consumer.session.timeout.ms=1500",
    "group.consumer.assignment.interval.ms=0",
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    running = BrokerThread(tmp_path_factory.mktemp("broker"), *QUICK)
    yield running
    running.close()


@pytest.fixture
def topic(cluster: ClusterClient, name: str) -> str:
    return make_topic(cluster, name)


def ours(address: str, topic: str, **settings: object) -> Ours:
    return Ours(address, topic, topic, protocol=CONSUMER, **settings)


MAKERS: dict[str, Callable[[str, str], Member]] = {
    "ours": ours,
    "ours-async": lambda address, topic: OursAsync(
        address, topic, topic, group_protocol="consumer"
    ),
    "librdkafka": lambda address, topic: Librdkafka(
        address, topic, topic, group_protocol="consumer"
    ),
    "ours-classic": lambda address, topic: Ours(address, topic, topic, assignors=("range",)),
    "librdkafka-classic": lambda address, topic: Librdkafka(
        address, topic, topic, partition_assignment_strategy="range"
    ),
}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ours", "ours"),
        ("ours-async", "ours"),
        ("ours", "librdkafka"),
        ("librdkafka", "ours-async"),
        # An online upgrade, and back again, with members of both protocols at once.
        ("ours-classic", "ours"),
        ("librdkafka-classic", "ours"),
        ("ours", "ours-classic"),
        ("ours-async", "librdkafka-classic"),
    ],
)
def test_members_share_the_partitions_and_hand_over(
    broker: BrokerThread, cluster: ClusterClient, topic: str, first: str, second: str
) -> None:
    check_shared(
        cluster, topic, [partial(MAKERS[each], broker.address, topic) for each in (first, second)]
    )


def test_what_is_read_is_committed_before_it_goes(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    one = ours(broker.address, topic)
    with together(one):
        read: list[bytes] = []
        while len(read) < 8:
            read += one.turn()
        two = ours(broker.address, topic)
        with together(two):
            assert until(lambda: share([one, two]), [one, two]) == []  # committed before
            assert one.lost == []
            assert len(one.revoked) >= 2
            described = Admin(cluster).groups.describe(topic)
            assert (described.group_type, described.assignor) == ("consumer", "uniform")
            write(cluster, topic, range(8, 16))
            read = []
            while len(read) < 8:
                read += one.turn() + two.turn()
            assert set(read) == values(range(8, 16))
    offsets = Admin(cluster).groups.offsets(topic)
    assert {at.partition: each.offset for at, each in offsets.items()} == dict.fromkeys(range(4), 4)
    assert Admin(cluster).groups.describe(topic).members == ()


def test_a_member_beats_while_its_program_is_slow(broker: BrokerThread, topic: str) -> None:
    slow = ours(broker.address, topic)
    with together(slow):
        until(lambda: slow.owned() == {0, 1, 2, 3}, [slow])
        before = slow.consumer.generation
        time.sleep(3)  # two sessions in which the program does nothing
        slow.consumer.commit({TopicPartition(topic, 0): Offset(0)})
        assert slow.consumer.generation == before
        assert slow.lost == []


def test_a_program_that_does_not_poll_gives_its_partitions_to_others(
    broker: BrokerThread, topic: str
) -> None:
    silent = ours(broker.address, topic, max_poll_interval_ms=1000)
    with together(silent):
        until(lambda: silent.owned() == {0, 1, 2, 3}, [silent])
        other = ours(broker.address, topic)
        with together(other):
            until(lambda: other.owned() == {0, 1, 2, 3}, [other])
            with pytest.raises(ProtocolError) as refused:
                silent.consumer.commit({TopicPartition(topic, 0): Offset(1)})
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            until(lambda: share([silent, other]), [silent, other])
            assert len(silent.lost) == PARTITIONS


def test_a_member_that_is_taken_out_has_lost_its_partitions_and_joins_again(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    member = ours(broker.address, topic)
    with together(member):
        until(lambda: member.owned() == {0, 1, 2, 3}, [member])
        gone = ConsumerGroupHeartbeatRequest(
            group_id=topic, member_id=member.consumer.membership.member_id, member_epoch=-1
        )
        cluster.retry_on_coordinator(
            topic,
            lambda connection: connection.call(
                ApiKey.CONSUMER_GROUP_HEARTBEAT, ConsumerGroupHeartbeatResponse, gone
            ),
        )
        until(lambda: len(member.lost) == PARTITIONS, [member])
        until(lambda: member.owned() == {0, 1, 2, 3}, [member])


def test_a_static_member_comes_back_to_what_it_had(
    start_broker_at: Callable[..., BrokerThread], name: str
) -> None:
    # Its session must outlast the time between the two processes, on a slow machine too.
    broker = start_broker_at(*QUICK, "group.consumer.session.timeout.ms=30000")
    with ClusterClient(broker.address, FAST) as cluster:
        topic = make_topic(cluster, name)
    other = ours(broker.address, topic)
    with together(other):
        one = ours(broker.address, topic, instance_id="one")
        with together(one):
            until(lambda: share([one, other]), [one, other])
            had, kept, revoked = one.owned(), other.owned(), list(other.revoked)
            second = ours(broker.address, topic, instance_id="one")
            with together(second), pytest.raises(ProtocolError) as unreleased:
                until(lambda: False, [second])
            assert unreleased.value.code is ErrorCode.UNRELEASED_INSTANCE_ID
        again = ours(broker.address, topic, instance_id="one")
        with together(again):
            until(lambda: again.owned() == had, [again])
            assert (other.owned(), other.revoked) == (kept, revoked)


def test_topics_by_a_pattern(broker: BrokerThread, cluster: ClusterClient, topic: str) -> None:
    pytest.importorskip("re2")
    settings = {"bootstrap.servers": broker.address, "group.id": topic}
    with strandline.Consumer(settings | {"group.protocol": "consumer"}) as consumer:
        Admin(cluster).topics.create(f"{topic}-more", partitions=1)
        consumer.subscribe(pattern=f"{topic}(-more)?")
        while len(consumer.assignment) < PARTITIONS + 1:
            consumer.poll(50)
        (found,) = Admin(cluster).groups.describe(topic).members
        assert (found.subscribed, found.pattern) == ((), f"{topic}(-more)?")


def test_patterns_are_for_the_consumer_protocol(broker: BrokerThread, topic: str) -> None:
    """What is refused is no subscription: the program may assign partitions."""
    settings = {"bootstrap.servers": broker.address, "group.id": topic}
    at = TopicPartition(topic, 0)
    with strandline.Consumer(settings) as consumer:
        with pytest.raises(InvalidSetting, match=r"group\.protocol=consumer"):
            consumer.subscribe(pattern="t.*")
        consumer.assign([at])

    async def subscribe() -> None:
        async with strandline.AsyncConsumer(settings) as other:
            with pytest.raises(InvalidSetting, match=r"group\.protocol=consumer"):
                await other.subscribe(pattern="t.*")
            await other.assign([at])

    asyncio.run(subscribe())


@pytest.mark.parametrize("kind", ["ours", "ours-async"])
def test_a_topic_that_is_deleted_and_made_anew_is_read_anew(
    broker: BrokerThread, cluster: ClusterClient, topic: str, kind: str
) -> None:
    member = MAKERS[kind](broker.address, topic)
    with together(member):
        read = until(lambda: member.owned() == {0, 1, 2, 3}, [member])
        while len(read) < 8:
            read += member.turn()
        Admin(cluster).topics.delete([topic])
        assert until(lambda: member.owned() == set(), [member]) == []
        make_topic(cluster, topic)
        read = until(lambda: member.owned() == {0, 1, 2, 3}, [member])
        while len(read) < 8:
            read += member.turn()
        assert set(read) == values(range(8))


def test_a_transaction_of_a_member_carries_its_epoch(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    settings = {"bootstrap.servers": broker.address}
    reading = {"group.id": topic, "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    with (
        strandline.Consumer(settings | reading | {"enable.auto.commit": False}) as consumer,
        strandline.Producer(settings | {"transactional.id": topic}) as producer,
    ):
        consumer.subscribe([topic])
        records: list[strandline.ConsumerRecord] = []
        while len(records) < 8:
            records += consumer.poll(50)
        with producer.transaction():
            offsets = {TopicPartition(topic, number): 2 for number in range(PARTITIONS)}
            producer.send_offsets(offsets, consumer.group_metadata)
        stored = consumer.committed(offsets)
        assert stored == offsets


def test_a_group_goes_on_while_its_coordinator_is_restarted(
    start_broker_at: Callable[..., BrokerThread], name: str
) -> None:
    broker = start_broker_at(*QUICK)
    with ClusterClient(broker.address, FAST) as cluster:
        topic = make_topic(cluster, name)
        members = [ours(broker.address, topic) for _ in range(2)]
        with together(*members):
            until(lambda: share(members), members)
            before = [each.owned() for each in members]
            broker.stop()
            broker.start()
            write(cluster, topic, range(8, 16))
            read: set[bytes] = set()
            while not read >= values(range(8, 16)):
                read |= {value for each in members for value in each.turn()}
            assert [each.owned() for each in members] == before
            assert [each.lost for each in members] == [[], []]
