"""A consumer group of one member that is replaced all the time, under load.

A member that takes over begins where the group's committed offsets say: never before an offset
whose commit was acknowledged (a commit was lost), never after the last one that was tried (records
would be skipped). A commit without an answer may count or not (I-39).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from strandline.sim.history.operations import Assigned, Event, Polled
from tests.faults.librdkafka_clients import PATIENT, POLL_S, end_of

GROUP: Final = "group"
LIFE_S: Final = 1.5
SETTINGS: Final = {
    **PATIENT,
    "group.id": GROUP,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 100,
}


class CommitError(Exception):
    """A member began where no commit can have led it."""


class GroupReader:
    """Members that follow one another. `run` ends when it is told to stop and all was read."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, record: Callable[[Event], object]
    ) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self._record = record
        self._positions = dict.fromkeys(range(partitions), 0)
        self._committed = dict.fromkeys(range(partitions), 0)
        self._tried = dict.fromkeys(range(partitions), 0)
        self._just_assigned: set[int] = set()

    def run(self, is_stopping: Callable[[], bool], seconds_to_settle: float) -> None:
        """Member after member; the last one reads to the end that the log has when it begins."""
        while not is_stopping():
            self._live(lambda: False)
        deadline = time.monotonic() + seconds_to_settle
        while not self._live(lambda: time.monotonic() > deadline, to_the_end=True):
            if time.monotonic() > deadline:
                raise CommitError(f"The group came only to {self._positions}.")

    def _live(self, is_over: Callable[[], bool], *, to_the_end: bool = False) -> bool:
        """One member's life; whether it read to the end."""
        consumer = Consumer({**SETTINGS, "bootstrap.servers": self._bootstrap})
        consumer.subscribe([self._topic], on_assign=self._assigned)
        ends: dict[int, int] = {}
        try:
            if to_the_end:
                ends = {
                    index: end_of(consumer, TopicPartition(self._topic, index))
                    for index in self._positions
                }
            born = time.monotonic()
            while not is_over() and (to_the_end or time.monotonic() < born + LIFE_S):
                self._take(consumer)
                self._commit(consumer)
                if ends and all(self._positions[index] >= end for index, end in ends.items()):
                    return True
        finally:
            consumer.close()
        return False

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._record(Assigned(GROUP, each.partition, None))
            self._just_assigned.add(each.partition)

    def _take(self, consumer: Consumer) -> None:
        found: dict[int, list[tuple[int, str]]] = {}
        for message in consumer.consume(num_messages=200, timeout=POLL_S):
            error, value, offset = message.error(), message.value(), message.offset()
            partition = message.partition()
            if error is not None:
                if error.code() == KafkaError._FATAL:
                    raise KafkaException(error)
                continue
            assert value is not None
            assert offset is not None
            assert partition is not None
            if partition in self._just_assigned:
                self._just_assigned.discard(partition)
                self._check_start(partition, offset)
            found.setdefault(partition, []).append((offset, value.decode()))
        for partition, records in found.items():
            self._record(Polled(GROUP, partition, records))
            self._positions[partition] = records[-1][0] + 1

    def _check_start(self, partition: int, offset: int) -> None:
        first, last = self._committed[partition], self._tried[partition]
        if not first <= offset <= last:
            raise CommitError(
                f"A member began at offset {offset} of partition {partition}; offset {first} was "
                f"committed, up to {last} was tried."
            )

    def _commit(self, consumer: Consumer) -> None:
        behind = {
            partition: position
            for partition, position in self._positions.items()
            if position > self._tried[partition]
        }
        if not behind:
            return
        self._tried.update(behind)
        wanted = [
            TopicPartition(self._topic, partition, position)
            for partition, position in behind.items()
        ]
        try:
            answers = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return  # it may count or not: `_tried` knows
        for answer in answers or ():
            if answer.error is None:
                self._committed[answer.partition] = answer.offset
