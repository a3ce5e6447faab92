"""Members of groups of several clients, as tests of groups need them."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from queue import SimpleQueue
from typing import Any, Protocol

from confluent_kafka import Consumer as LibrdkafkaConsumer

import strandline
from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.group_consumer import GroupConsumer, RebalanceListener
from strandline.client.group_settings import GroupSettings
from strandline.client.producer import Producer
from strandline.types import TopicPartition
from tests.client.conftest import FAST, PATIENCE_S

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it reads its own resources in a way that is deprecated
    from kafka import KafkaConsumer as KafkaPythonConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

KAFKA_PYTHON_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}

PARTITIONS = 4


class Member(Protocol):
    """A member of any client, as these tests need it."""

    def turn(self) -> list[bytes]:
        """Poll once, shortly; the values that came."""

    def owned(self) -> set[int]:
        """The numbers of its partitions."""

    def close(self) -> None: ...


def _member_settings(settings: dict[str, Any], classic: dict[str, Any]) -> dict[str, Any]:
    """Settings by Kafka's names. What a classic member sets brokers do in the newer protocol."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return named if named.get("group.protocol") == "consumer" else classic | named


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


class OursAsync:
    """A member of this project's client on an event loop, which runs while the member polls."""

    def __init__(self, address: str, group: str, topic: str, **settings: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.consumer = strandline.AsyncConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "metadata.max.age.ms": 1000,
                "retry.backoff.ms": 10,
                **_member_settings(settings, {"heartbeat.interval.ms": 200}),
            }
        )
        self.revoked: list[TopicPartition] = []
        self.lost: list[TopicPartition] = []
        self.loop.run_until_complete(
            self.consumer.subscribe(
                [topic], on_revoked=self.revoked.extend, on_lost=self.lost.extend
            )
        )

    def turn(self) -> list[bytes]:
        records = self.loop.run_until_complete(self.consumer.poll(50))
        return [record.value or b"" for record in records]

    def owned(self) -> set[int]:
        return {at.partition for at in self.consumer.assignment}

    def close(self) -> None:
        self.loop.run_until_complete(self.consumer.close())
        self.loop.close()


class Librdkafka:
    """A member of confluent-kafka."""

    def __init__(self, address: str, group: str, topic: str, **settings: Any) -> None:
        self._consumer = LibrdkafkaConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **_member_settings(
                    settings, {"heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
                ),
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
    """A member of kafka-python, which polls in a thread of its own.

    Polled in turns with others it may never come to an end: kafka-python (3.0.12,
    `join_group_async`) takes the result of a join within a call only. Of one that is done between
    two calls it either joins again, by which a leader begins another rebalance of all, or, if it
    was the leader, forgets it: it owns nothing then and its heartbeats stay off. Its fault,
    whichever broker coordinates; and a join waits for the others, which wait for their turn.
    """

    def __init__(self, address: str, group: str, topic: str, *, assignor: str) -> None:
        self._consumer = KafkaPythonConsumer(
            topic,
            bootstrap_servers=address,
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=200,
            session_timeout_ms=6000,
            # As a leader that does not know the topic yet it assigns nothing, and looks again then.
            metadata_max_age_ms=1000,
            partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[assignor]],
        )
        self._values: SimpleQueue[bytes] = SimpleQueue()
        self._owned: frozenset[int] = frozenset()
        self._is_ending = threading.Event()
        self._thread = ThreadPoolExecutor(1, "kafka-python")
        self._end = self._thread.submit(self._poll)

    def _poll(self) -> None:
        while not self._is_ending.is_set():
            found = self._consumer.poll(timeout_ms=500)
            self._owned = frozenset(each.partition for each in self._consumer.assignment())
            for records in found.values():
                for record in records:
                    self._values.put(record.value)
        self._consumer.close()

    def turn(self) -> list[bytes]:
        wait([self._end], timeout=0.05)
        if self._end.done():
            self._end.result()
        return [self._values.get() for _ in range(self._values.qsize())]

    def owned(self) -> set[int]:
        return set(self._owned)

    def close(self) -> None:
        self._is_ending.set()
        self._thread.shutdown()
        self._end.result()


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


def make_topic(cluster: ClusterClient, name: str) -> str:
    """A topic of `PARTITIONS` partitions with the first eight numbers in it."""
    Admin(cluster).topics.create(name, partitions=PARTITIONS)
    write(cluster, name, range(8))
    return name


def values(numbers: Sequence[int]) -> set[bytes]:
    return {b"%d" % number for number in numbers}


def check_shared(cluster: ClusterClient, topic: str, make: Sequence[Callable[[], Member]]) -> None:
    """Who comes first leads: both divide what both understand, and hand over to each other."""
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
