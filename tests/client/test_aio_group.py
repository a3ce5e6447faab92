"""`strandline.AsyncConsumer` as a member of a group, at a real broker: alone and beside others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

import strandline
from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import FAST, PATIENCE_S, BrokerThread
from tests.client.group_members import (
    PARTITIONS,
    KafkaPython,
    Librdkafka,
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
from tests.client.half_led import HEALTHY, ORPHAN, VALUES, comes_back, half_led
from tests.client.test_aio import read, run

PATIENCE_MS = PATIENCE_S * 1000


@pytest.fixture
def topic(cluster: ClusterClient, name: str) -> str:
    return make_topic(cluster, name)


def member(address: str, group: str, **settings: Any) -> strandline.AsyncConsumer:
    return strandline.AsyncConsumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "heartbeat.interval.ms": 100,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )


def stored(cluster: ClusterClient, group: str) -> dict[int, int]:
    offsets = Admin(cluster).groups.offsets(group)
    return {at.partition: each.offset for at, each in offsets.items()}


# -- Alone ---------------------------------------------------------------------------------------


def test_records_come_one_by_one_and_those_that_came_are_committed(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    write(cluster, topic, [0] * 50)  # one answer has many records of a partition

    async def work() -> None:
        async with member(broker.address, topic) as consumer:
            await consumer.subscribe([topic])
            came: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
            async for record in consumer:
                assert record.offset == came[record.partition]
                came[record.partition] += 1
                at = TopicPartition(topic, record.partition)
                assert consumer.position(at) == came[record.partition]
                if sum(came.values()) == 10:
                    break
        assert stored(cluster, topic) == came
        async with member(broker.address, topic) as consumer:
            await consumer.subscribe([topic])
            rest = 0
            while rest < 48:  # what the loop was left with comes by `poll`
                for record in await consumer.poll(PATIENCE_MS):
                    assert record.offset == came[record.partition]
                    came[record.partition] += 1
                    rest += 1
            assert sum(came.values()) == 58

    run(work())


def test_the_rest_of_an_answer_goes_to_the_next_owner(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    """A member gives partitions up amid an answer: the other one begins at the next record."""
    write(cluster, topic, list(range(4)) * 50)

    async def work() -> None:
        taken: list[tuple[int, int]] = []

        async def read_alone(consumer: strandline.AsyncConsumer) -> None:
            async for record in consumer:
                taken.append((record.partition, record.offset))
                if len(set(consumer.assignment)) == 2:
                    return
                await asyncio.sleep(0.01)

        async with (
            member(broker.address, topic) as one,
            member(broker.address, topic) as two,
        ):
            await one.subscribe([topic])
            first = await anext(aiter(one))
            taken.append((first.partition, first.offset))
            await two.subscribe([topic])
            await asyncio.gather(read_alone(one), read_alone(two))
            while len(taken) < 208:
                for each in (one, two):
                    taken += [(record.partition, record.offset) for record in await each.poll(50)]
        assert len(set(taken)) == len(taken) == 208

    run(work())


def test_a_member_beats_while_its_program_awaits(
    start_broker_at: Callable[..., BrokerThread], name: str
) -> None:
    broker = start_broker_at("group.min.session.timeout.ms=100")
    with ClusterClient(broker.address, FAST) as cluster:
        make_topic(cluster, name)

    async def work() -> None:
        lost: list[TopicPartition] = []
        consumer = member(broker.address, name, session_timeout_ms=1500)
        async with consumer:
            await consumer.subscribe([name], on_lost=lost.extend)
            await anext(aiter(consumer))
            await asyncio.sleep(3)  # two sessions in which the program asks for nothing
            await consumer.commit({TopicPartition(name, 0): 1})
            assert lost == []

    run(work())


def test_a_program_that_blocks_the_loop_for_too_long_has_left(
    broker: BrokerThread, topic: str
) -> None:
    """Nothing of the member runs meanwhile, so what it finds afterwards is as if it had left."""

    async def work() -> None:
        lost: list[TopicPartition] = []
        async with member(broker.address, topic, max_poll_interval_ms=1000) as consumer:
            await consumer.subscribe([topic], on_lost=lost.extend)
            await anext(aiter(consumer))
            time.sleep(1.1)  # noqa: ASYNC251
            with pytest.raises(ProtocolError) as refused:
                await consumer.commit()
            assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            found: list[strandline.ConsumerRecord] = []
            while len(found) < 8:  # nothing was committed: all comes again
                found += await consumer.poll(PATIENCE_MS)
            assert {each.value for each in found} == values(range(8))
            assert len(lost) == PARTITIONS

    run(work())


def test_a_program_that_awaits_too_long_gives_its_partitions_to_others(
    broker: BrokerThread, topic: str
) -> None:
    async def work() -> None:
        lost: list[TopicPartition] = []
        async with (
            member(broker.address, topic, max_poll_interval_ms=1000) as silent,
            member(broker.address, topic) as other,
        ):
            await silent.subscribe([topic], on_lost=lost.extend)
            await anext(aiter(silent))
            await other.subscribe([topic])
            while len(other.assignment) < PARTITIONS:
                await other.poll(50)
            while len(silent.assignment) != 2 or len(other.assignment) != 2:
                await asyncio.gather(silent.poll(50), other.poll(50))
            assert len(lost) == PARTITIONS

    run(work())


def test_a_call_that_is_cancelled_loses_nothing(broker: BrokerThread, topic: str) -> None:
    async def work() -> None:
        found: list[strandline.ConsumerRecord] = []
        async with member(broker.address, topic) as consumer:
            await consumer.subscribe([topic])
            wait_s = 0.001
            while len(found) < 8:
                try:
                    async with asyncio.timeout(wait_s):
                        found += await consumer.poll(PATIENCE_MS)
                except TimeoutError:
                    wait_s *= 1.2
        assert sorted(each.value or b"" for each in found) == sorted(values(range(8)))

    run(work())


def test_a_listener_may_await_and_its_errors_end_no_membership(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    async def work() -> None:
        told: list[str] = []

        async def assigned(partitions: Sequence[TopicPartition]) -> None:
            told.append("assigned")
            await consumer.seek_to_end(*partitions)
            if len(told) == 1:
                raise RuntimeError("the program's own")

        async def revoked(partitions: Sequence[TopicPartition]) -> None:
            told.append("revoked")
            await consumer.commit(dict.fromkeys(partitions, 1))

        consumer = member(broker.address, topic, enable_auto_commit=False)
        async with consumer:
            await consumer.subscribe([topic], on_assigned=assigned, on_revoked=revoked)
            with pytest.raises(RuntimeError, match="own"):
                await consumer.poll(PATIENCE_MS)
            assert len(consumer.assignment) == PARTITIONS
            write(cluster, topic, [1])
            [record] = await consumer.poll(PATIENCE_MS)
            assert (record.partition, record.offset) == (1, 2)
        assert told == ["assigned", "revoked"]
        assert stored(cluster, topic) == dict.fromkeys(range(PARTITIONS), 1)

    run(work())


def test_a_static_member_comes_back_without_a_rebalance_and_is_fenced(
    broker: BrokerThread, cluster: ClusterClient, topic: str
) -> None:
    async def work() -> None:
        kept = member(broker.address, topic, group_instance_id="one")
        await kept.subscribe([topic])
        await anext(aiter(kept))
        [before] = Admin(cluster).groups.describe(topic).members
        await kept.close()
        again = member(broker.address, topic, group_instance_id="one")
        third = member(broker.address, topic, group_instance_id="one")
        async with again, third:
            await again.subscribe([topic])
            while len(again.assignment) < PARTITIONS:
                await again.poll(50)
            await again.commit(dict.fromkeys(again.assignment, 2))
            for each in again.assignment:
                await again.seek(each, 2)
            [after] = Admin(cluster).groups.describe(topic).members
            assert before.instance_id == after.instance_id == "one"
            assert before.member_id != after.member_id
            await third.subscribe([topic])
            await third.poll(50)
            for _ in range(2):  # it stays so
                with pytest.raises(ProtocolError) as fenced:
                    await again.poll(PATIENCE_MS)  # all is read: only the fence ends it
                assert fenced.value.code is ErrorCode.FENCED_INSTANCE_ID

    run(work())


def test_what_a_subscription_needs_and_excludes(broker: BrokerThread, topic: str) -> None:
    async def work() -> None:
        plain = {"bootstrap.servers": broker.address}
        async with strandline.AsyncConsumer(plain) as consumer:
            with pytest.raises(InvalidSetting, match=r"group\.id is missing"):
                await consumer.subscribe([topic])
        async with member(broker.address, topic) as consumer:
            await consumer.assign([TopicPartition(topic, 0)])
            with pytest.raises(ProtocolError, match="Partitions are assigned"):
                await consumer.subscribe([topic])
        async with member(broker.address, topic) as consumer:
            await consumer.subscribe([topic])
            with pytest.raises(ProtocolError, match="Topics are subscribed"):
                await consumer.assign([TopicPartition(topic, 0)])

    run(work())


def test_a_member_reads_what_has_leaders_and_the_rest_when_it_has_one() -> None:
    """The group has stored no offset of the partition without a leader: where to begin is kept."""
    with half_led(is_noticed=True) as brokers:

        async def work() -> None:
            loop = asyncio.get_running_loop()
            async with member(brokers.bootstrap_servers, "g") as consumer:
                await consumer.subscribe(["t"])
                assert [each.value for each in await read(consumer, 3)] == VALUES[HEALTHY]
                assert consumer.assignment == [HEALTHY, ORPHAN]
                with pytest.raises(ProtocolError, match="has no position yet") as refused:
                    consumer.position(ORPHAN)
                assert refused.value.code is ErrorCode.LEADER_NOT_AVAILABLE
                with pytest.raises(ProtocolError, match="is not assigned"):
                    consumer.position(TopicPartition("t", 2))
                await loop.run_in_executor(None, comes_back, brokers)
                assert [each.value for each in await read(consumer, 1)] == VALUES[ORPHAN]

        asyncio.run(work())


# -- Beside others -------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_two_members_share_the_partitions_and_hand_over(
    broker: BrokerThread, cluster: ClusterClient, topic: str, assignor: str
) -> None:
    make = partial(OursAsync, broker.address, topic, topic, partition_assignment_strategy=assignor)
    one = make()
    with together(one):
        read = until(lambda: one.owned() == {0, 1, 2, 3}, [one])
        while len(read) < 8:
            read += one.turn()
        two = make()
        with together(two):
            assert until(lambda: share([one, two]), [one, two]) == []  # committed before
            assert Admin(cluster).groups.describe(topic).assignor == assignor
        until(lambda: one.owned() == {0, 1, 2, 3}, [one])
        assert one.lost == []
        assert len(one.revoked) == {"range": 6, "cooperative-sticky": 2}[assignor]


@pytest.mark.parametrize(
    ("other", "assignor"),
    [
        ("librdkafka", "range"),
        ("librdkafka", "cooperative-sticky"),
        ("kafka-python", "cooperative-sticky"),
        ("blocking", "range"),
    ],
)
@pytest.mark.parametrize("ours_leads", [True, False])
def test_other_clients_share_a_group_with_us(
    broker: BrokerThread,
    cluster: ClusterClient,
    topic: str,
    other: str,
    assignor: str,
    ours_leads: bool,
) -> None:
    where = (broker.address, topic, topic)
    ours = partial(OursAsync, *where, partition_assignment_strategy=assignor)
    others: dict[str, Callable[[], Any]] = {
        "librdkafka": partial(Librdkafka, *where, partition_assignment_strategy=assignor),
        "kafka-python": partial(KafkaPython, *where, assignor=assignor),
        "blocking": partial(Ours, *where, assignors=(assignor,)),
    }
    theirs = others[other]
    check_shared(cluster, topic, [ours, theirs] if ours_leads else [theirs, ours])
