"""Share consumers, blocking and on an event loop, with real brokers: what becomes of records."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import strandline
from strandline.client.admin_features import FeatureAdmin
from strandline.client.cluster import ClusterClient
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import PATIENCE_S, BrokerThread

QUICK = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
}
PATIENCE_MS = PATIENCE_S * 1000
Record = strandline.ShareRecord


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    settings = (f"{name}={value}" for name, value in QUICK.items())
    running = BrokerThread(tmp_path_factory.mktemp("share"), *settings)
    yield running
    running.close()


class Work:
    """A topic and a group of its name, which begins at the topic's start."""

    def __init__(self, address: str, name: str, **configs: str) -> None:
        self.name = name
        self.address = address
        self.at = TopicPartition(name, 0)
        configs = {"share.auto.offset.reset": "earliest", **configs}
        with strandline.Admin({"bootstrap.servers": address}) as admin:
            admin.create_topic(name, partitions=1)
            admin.alter_group_config(name, set_to=configs)

    def write(self, *values: bytes) -> None:
        with strandline.Producer({"bootstrap.servers": self.address}) as producer:
            for each in values:
                producer.send(self.name, each)

    def settings(self, mode: str = "explicit", **more: object) -> dict[str, object]:
        return {
            "bootstrap.servers": self.address,
            "group.id": self.name,
            "share.acknowledgement.mode": mode,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def consumer(self, mode: str = "explicit", **more: Any) -> strandline.ShareConsumer:
        told = more.pop("on_acknowledged", None)
        made = strandline.ShareConsumer(self.settings(mode, **more), on_acknowledged=told)
        made.subscribe([self.name])
        return made

    def start(self) -> int | None:
        with strandline.Admin({"bootstrap.servers": self.address}) as admin:
            return admin.share_group_offsets(self.name)[self.at].start


@pytest.fixture
def work(server: BrokerThread, name: str) -> Callable[..., Work]:
    return lambda **configs: Work(
        server.address, name, **{key.replace("_", "."): value for key, value in configs.items()}
    )


def poll(consumer: strandline.ShareConsumer) -> list[Record]:
    """What comes next, which must come."""
    found = consumer.poll(PATIENCE_MS)
    assert found
    return found


def summary(records: Sequence[Record]) -> list[tuple[bytes | None, int]]:
    return [(each.value, each.delivery_count) for each in records]


def codes(outcomes: dict[TopicPartition, ProtocolError | None]) -> list[ErrorCode | None]:
    return [None if each is None else each.code for each in outcomes.values()]


def test_what_a_program_says_of_records_is_what_becomes_of_them(
    work: Callable[..., Work],
) -> None:
    """Accepted and rejected ones do not come again; released ones do, until they were given as
    often as the group allows; what was not acknowledged at the end is for the next member."""
    here = work(share_delivery_count_limit="2")
    told: list[tuple[TopicPartition, list[int], ErrorCode | None]] = []

    def tell(at: TopicPartition, offsets: Sequence[int], error: ProtocolError | None) -> None:
        told.append((at, list(offsets), None if error is None else error.code))

    here.write(*b"a b c d".split())
    with here.consumer(on_acknowledged=tell) as consumer:
        first = poll(consumer)
        assert summary(first) == [(each, 1) for each in b"a b c d".split()]
        for record, how in zip(first, ("accept", "reject", "release", "renew"), strict=True):
            consumer.acknowledge(record, how)  # type: ignore[arg-type]
        again = poll(consumer)  # its lock was renewed: it goes on before others come
        assert summary(again) == [(b"d", 1)]
        assert told == []  # these calls are for the program's code: it comes with the next one
        consumer.acknowledge(again[0])
        assert codes(consumer.commit()) == [None]
        assert told == [(here.at, [0, 1, 2, 3], None), (here.at, [3], None)]
        assert consumer.commit() == {}
        third = poll(consumer)
        assert summary(third) == [(b"c", 2)]
        consumer.acknowledge(third[0], "release")
        consumer.commit()
        assert here.start() == 4, "it was given as often as it may be"
        assert consumer.acquisition_lock_timeout_ms == 30_000
        here.write(b"e", b"f")
        last = poll(consumer)
        consumer.acknowledge(last[0])  # which `close` sends
    assert told[-1] == (here.at, [4], None)
    with here.consumer() as consumer:
        assert summary(poll(consumer)) == [(b"f", 2)]


def test_implicit_acceptance(work: Callable[..., Work]) -> None:
    """The next call accepts; `max.poll.records` bounds each, and `close` accepts nothing."""
    here = work()
    here.write(*b"a b c d e".split())
    with here.consumer("implicit", max_poll_records=2, share_acquire_mode="record_limit") as one:
        assert [each.value for each in poll(one)] == [b"a", b"b"]
        assert [each.value for each in poll(one)] == [b"c", b"d"]
        assert codes(one.commit()) == [None]
        assert here.start() == 4
        assert [each.value for each in poll(one)] == [b"e"]
        with pytest.raises(ProtocolError, match="accepted implicitly"):
            one.acknowledge(Record(here.name, 0, 4, 0, None, b"e", (), 1))
    assert here.start() == 4
    with here.consumer("implicit") as two:
        assert summary(poll(two)) == [(b"e", 2)]
        two.commit_soon()
    assert here.start() == 5


def test_a_lock_that_ended(work: Callable[..., Work]) -> None:
    """The record goes to another member, and what the first says of it does not count."""
    here = work(share_record_lock_duration_ms="1000")
    here.write(b"a")
    with here.consumer() as slow, here.consumer() as other:
        (record,) = poll(slow)
        (again,) = poll(other)
        assert again.delivery_count == 2
        slow.acknowledge(record)
        assert codes(slow.commit()) == [ErrorCode.INVALID_RECORD_STATE]
        other.acknowledge(again)
        assert codes(other.commit()) == [None]


def test_a_member_that_was_killed(work: Callable[..., Work]) -> None:
    """Its connection ends, and what it had is for others, long before the lock would end."""
    here = work()
    here.write(b"a")
    program = (
        "import sys, strandline\n"
        f"consumer = strandline.ShareConsumer({here.settings()!r})\n"
        f"consumer.subscribe([{here.name!r}])\n"
        f"print(consumer.poll({PATIENCE_MS})[0].delivery_count, flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"1\n"
        victim.kill()
    with here.consumer() as other:
        assert summary(poll(other)) == [(b"a", 2)]


def test_what_a_program_may_not_do(work: Callable[..., Work], server: BrokerThread) -> None:
    here = work()
    here.write(b"a", b"b")
    with strandline.ShareConsumer(here.settings()) as consumer:
        with pytest.raises(ProtocolError, match="No topic is subscribed"):
            consumer.poll()
        consumer.subscribe([here.name])
        first, second = poll(consumer)
        consumer.acknowledge(first)
        with pytest.raises(ProtocolError, match="Not acknowledged: 1 record of the last poll"):
            consumer.poll()
        with pytest.raises(ProtocolError, match="cannot be acknowledged") as refused:
            consumer.acknowledge(first)
        assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
        with pytest.raises(ProtocolError, match="not by 'drop'"):
            consumer.acknowledge(second, "drop")  # type: ignore[arg-type]
        consumer.acknowledge(second)
        consumer.subscribe([])  # which leaves; records can still be acknowledged
        assert codes(consumer.commit()) == [None]
    with pytest.raises(ProtocolError, match="closed"):
        consumer.poll()
    for wrong, sentence in (
        ({"group.id": ""}, "must not be empty"),
        ({"enable.auto.commit": "true"}, "There is no setting 'enable.auto.commit' of a share"),
        ({"share.acknowledgement.mode": "none"}, "takes implicit, explicit"),
        ({"max.poll.records": 0}, "must be 1 at least"),
    ):
        with pytest.raises(InvalidSetting, match=sentence):
            strandline.ShareConsumer({**here.settings(), **wrong})
    with pytest.raises(InvalidSetting, match=r"group\.id is missing"):
        strandline.ShareConsumer({"bootstrap.servers": server.address})


def test_a_group_of_another_kind(work: Callable[..., Work], server: BrokerThread) -> None:
    here = work()
    consumer_group = {"bootstrap.servers": server.address, "group.id": here.name}
    with strandline.Consumer(consumer_group) as other:
        other.subscribe([here.name])
        while not other.assignment:
            other.poll(50)
        with here.consumer() as consumer:
            with pytest.raises(ProtocolError) as refused:
                consumer.poll(PATIENCE_MS)
            assert refused.value.code in (
                ErrorCode.GROUP_ID_NOT_FOUND,
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            )


def test_a_cluster_without_share_groups(start_broker_at: Callable[..., BrokerThread]) -> None:
    server = start_broker_at()
    with strandline.Admin({"bootstrap.servers": server.address}) as admin:
        admin.create_topic("work")
    settings = {"bootstrap.servers": server.address, "group.id": "g"}
    with ClusterClient(server.address) as cluster:
        FeatureAdmin(cluster).set_levels({"share.version": 0})
    with strandline.ShareConsumer(settings) as consumer:
        consumer.subscribe(["work"])
        with pytest.raises(ProtocolError, match="Share groups are not served") as refused:
            consumer.poll(PATIENCE_MS)
        assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_on_an_event_loop(work: Callable[..., Work]) -> None:
    here = work(share_delivery_count_limit="2")
    here.write(*b"a b c d".split())
    told: list[tuple[int, ...]] = []

    async def run() -> None:
        before = threading.active_count()
        consumer = strandline.AsyncShareConsumer(
            here.settings(), on_acknowledged=lambda _, offsets, error: told.append((*offsets,))
        )
        async with consumer:
            await consumer.subscribe([here.name])
            first = await consumer.poll(PATIENCE_MS)
            for record, how in zip(first, ("accept", "reject", "release", "renew"), strict=True):
                consumer.acknowledge(record, how)  # type: ignore[arg-type]
            (renewed,) = await consumer.poll(PATIENCE_MS)
            assert renewed.value == b"d"
            consumer.acknowledge(renewed)
            assert codes(await consumer.commit()) == [None]
            assert threading.active_count() == before, "it has threads"
            (again,) = await consumer.poll(PATIENCE_MS)
            assert again[-1] == 2
            consumer.acknowledge(again)
            await consumer.commit_soon()
            with pytest.raises(ProtocolError, match="cannot be acknowledged"):
                consumer.acknowledge(again)
            assert await consumer.poll(0) == []
        assert told == [(0, 1, 2, 3), (3,), (2,)]
        assert len(asyncio.all_tasks()) == 1, "tasks are left"
        with pytest.raises(ProtocolError, match="closed"):
            await consumer.poll()

    async def administer() -> None:
        async with strandline.AsyncAdmin({"bootstrap.servers": here.address}) as admin:
            config = await admin.group_config(here.name)
            assert config["share.delivery.count.limit"] == "2"
            assert (await admin.describe_group(here.name)).group_type == "share"
            await admin.alter_share_group_offsets(here.name, {here.at: 1})
            assert (await admin.share_group_offsets(here.name))[here.at].start == 1
            assert await admin.delete_share_group_offsets(here.name, [here.name]) == {
                here.name: None
            }
            assert await admin.share_group_offsets(here.name) == {}
            await admin.alter_group_config(here.name, reset=["share.delivery.count.limit"])
            await admin.delete_group(here.name)

    bounded(run())
    assert here.start() == 4
    bounded(administer())


def test_the_example_of_the_page(server: BrokerThread) -> None:
    here = Work(server.address, "work")
    page = (Path(__file__).parents[2] / "docs/share-groups.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    example: dict[str, Any] = {}
    exec(block.replace("localhost:9092", server.address), example)
    here.write(b"good", b"late", b"bad")
    seen: list[bytes] = []

    def do(value: bytes) -> None:
        seen.append(value)
        if value == b"late" and seen.count(value) == 1:
            raise TimeoutError
        if value == b"bad":
            raise ValueError

    example["work_through"](do, lambda: len(seen) == 4)
    assert seen == [b"good", b"late", b"bad", b"late"]


def bounded(work: Coroutine[Any, Any, None]) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(run())


def test_a_broker_dies_under_two_members() -> None:
    """Each record is accepted by one of them and none comes again afterwards. What the dead leader
    had handed out is acknowledged in vain, and comes again."""
    settings = {**QUICK, "auto.leader.rebalance.enable": False, "min.insync.replicas": 2}
    with strandline.Cluster(brokers=3, settings=settings) as cluster:
        cluster.create_topic("work", assignment={0: [1, 2, 3], 1: [2, 3, 1]})
        connect = {"bootstrap.servers": cluster.bootstrap_servers}
        with strandline.Admin(connect) as admin:
            admin.alter_group_config("g", set_to={"share.auto.offset.reset": "earliest"})
        mine: dict[str, object] = {
            **connect,
            "group.id": "g",
            "share.acknowledgement.mode": "explicit",
        }
        mine |= {"max.poll.records": 5, "share.acquire.mode": "record_limit"}
        written = 200
        with strandline.Producer(connect) as producer:
            for number in range(written):
                producer.send("work", b"%d" % number, partition=number % 2)
        accepted: Counter[tuple[int, int]] = Counter()
        unsure: set[tuple[int, int]] = set()
        deadline = time.monotonic() + PATIENCE_S

        def work(consumer: strandline.ShareConsumer) -> None:
            records = consumer.poll(200)
            places = {(each.partition, each.offset) for each in records}
            assert not places & accepted.keys(), "it came again after it was accepted"
            for each in records:
                consumer.acknowledge(each)
            failed = consumer.commit()
            for partition, offset in places:
                error = failed[TopicPartition("work", partition)]
                if error is None:
                    accepted[partition, offset] += 1
                else:
                    unsure.add((partition, offset))

        with strandline.ShareConsumer(mine) as one, strandline.ShareConsumer(mine) as two:
            one.subscribe(["work"])
            two.subscribe(["work"])
            while len(accepted) < 20:
                assert time.monotonic() < deadline
                work(one)
                work(two)
            held = one.poll(PATIENCE_MS)
            assert held
            leader = cluster.leader_of("work", held[0].partition)
            assert leader is not None
            cluster.kill(leader)
            cluster.wait_for_leader("work", held[0].partition)
            for each in held:
                one.acknowledge(each)
            lost = one.commit()
            assert codes(lost)[0] in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            while len(accepted.keys() | unsure) < written:
                assert time.monotonic() < deadline
                work(one)
                work(two)
        assert set(accepted.values()) == {1}
        assert {(each.partition, each.offset) for each in held} <= accepted.keys()
