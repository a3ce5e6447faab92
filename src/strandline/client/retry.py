"""Trying again: for how long, and after which errors. Knows no request."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Final, TypeVar

from strandline.client.backoff import ExponentialBackoff
from strandline.client.clock import Clock
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition

T = TypeVar("T")

_GONE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
_GONE_MS: Final = 1_000
"""After so long it is looked whether a topic is there again."""
PERMANENT_HERE: Final = frozenset(
    {
        # Kafka calls these retriable, because metadata may be behind. A caller that expects
        # that waits for `topic_wait_ms`; otherwise an unknown topic is a typing mistake.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        # Offered again, the damaged batch is the same damaged batch.
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.ELECTION_NOT_NEEDED,
    }
)


class BlockingBackoff:
    """The waits of an `ExponentialBackoff`, slept until a deadline."""

    __slots__ = ("_backoff", "_clock", "_deadline_ms")

    def __init__(
        self, settings: ClientSettings, clock: Clock, random: Random, *, timeout_ms: int
    ) -> None:
        self._clock = clock
        self._backoff = ExponentialBackoff(
            random, settings.retry_backoff_ms, settings.retry_backoff_max_ms
        )
        self._deadline_ms = clock.monotonic_ms() + timeout_ms

    def maybe_wait(self) -> bool:
        """Sleep and return True, or return False if the deadline would pass meanwhile."""
        wait_ms = self._backoff.next_ms()
        if self._clock.monotonic_ms() + wait_ms > self._deadline_ms:
            return False
        self._clock.sleep_ms(wait_ms)
        return True


def is_worth_retrying(error: ProtocolError) -> bool:
    """Whether the same operation may succeed after fresh metadata or a moment's wait."""
    return error.retriable and error.code not in PERMANENT_HERE


def is_worth_waiting_for(error: ProtocolError) -> bool:
    """As `is_worth_retrying`, for who was connected before: brokers that are gone come back."""
    return error.code is ErrorCode.BROKER_NOT_AVAILABLE or is_worth_retrying(error)


class GoneTopics:
    """The topics that a member of a group does without for now: they are not there (any more), so
    its group will take their partitions away. Others, who `outlives` none, are told."""

    def __init__(self, *, outlives: bool) -> None:
        self._outlives = outlives
        self._until_ms: dict[str, int] = {}

    def is_left_alone(self, topic: str, now_ms: int) -> bool:
        """Whether it is not asked for now."""
        return now_ms < self._until_ms.get(topic, now_ms)

    def may_pass(self, error: ProtocolError) -> bool:
        """Whether an error says no more than that a topic is gone, and is not told."""
        return self._outlives and error.code in _GONE

    def leave_alone(self, topic: str, now_ms: int) -> None:
        """It was asked for, and is gone."""
        self._until_ms[topic] = now_ms + _GONE_MS


class PutOff:
    """The partitions that no broker gives for now. Each is tried again after a while, longer each
    time in a row, and all others are read meanwhile."""

    def __init__(self, settings: ClientSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._backoffs: dict[TopicPartition, ExponentialBackoff] = {}
        self._until_ms: dict[TopicPartition, int] = {}

    def __bool__(self) -> bool:
        """Whether there are any, be it that they are being tried."""
        return bool(self._until_ms)

    def is_put_off(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether it is not tried now."""
        return now_ms < self._until_ms.get(partition, now_ms)

    def put_off(self, partitions: Iterable[TopicPartition], began_ms: int, now_ms: int) -> None:
        """They were tried from `began_ms` on, in vain. The pause is at least as long as that took:
        a broker that does not even refuse must not take most of the time."""
        settings = self._settings
        for each in partitions:
            backoff = self._backoffs.get(each)
            if backoff is None:
                backoff = self._backoffs[each] = ExponentialBackoff(
                    self._random, settings.retry_backoff_ms, settings.retry_backoff_max_ms
                )
            self._until_ms[each] = now_ms + max(backoff.next_ms(), now_ms - began_ms)

    def end(self, partitions: Iterable[TopicPartition]) -> None:
        """A broker gives these again, or they are not wanted any more."""
        for each in partitions:
            self._backoffs.pop(each, None)
            self._until_ms.pop(each, None)

    def wait_ms(self, now_ms: int, limit_ms: int) -> int:
        """How long until the next of them is to be tried, at most the limit."""
        left_ms = [until_ms - now_ms for until_ms in self._until_ms.values() if until_ms > now_ms]
        return min([limit_ms, *left_ms])


class Absences:
    """The partitions that a reader does without for now: their topics are gone, or no broker gives
    them. It reads the others meanwhile."""

    def __init__(self, settings: ClientSettings, random: Random, *, outlives_topics: bool) -> None:
        self._gone = GoneTopics(outlives=outlives_topics)
        self.put_off = PutOff(settings, random)

    def outlive_topics(self) -> None:
        """Do without topics that are gone, from now on."""
        self._gone = GoneTopics(outlives=True)

    def is_due(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether brokers are asked for the partition now."""
        is_left_alone = self._gone.is_left_alone(partition.topic, now_ms)
        return not is_left_alone and not self.put_off.is_put_off(partition, now_ms)

    def is_of_one(self, error: ProtocolError) -> bool:
        """Whether it says no more than that one partition, or its topic, is not to be had now."""
        return error.code is ErrorCode.LEADER_NOT_AVAILABLE or self._gone.may_pass(error)

    def may_end(self, error: ProtocolError) -> bool:
        """Whether another attempt may succeed, or the partitions will be taken away."""
        return is_worth_waiting_for(error) or self._gone.may_pass(error)

    def begin(
        self,
        partitions: Iterable[TopicPartition],
        error: ProtocolError,
        began_ms: int,
        now_ms: int,
    ) -> set[str]:
        """They were asked for from `began_ms` on. Returns the topics whose metadata may be wrong;
        raises an error that no wait can mend."""
        affected = list(partitions)
        topics = {each.topic for each in affected}
        if self._gone.may_pass(error):
            for topic in topics:
                self._gone.leave_alone(topic, now_ms)
            return set()
        if not is_worth_waiting_for(error):
            raise error
        self.put_off.put_off(affected, began_ms, now_ms)
        return topics


def retrying(attempt: Callable[[], T], backoff: BlockingBackoff, prepare: Callable[[], None]) -> T:
    """The result of `attempt`, which is tried again while its errors are retriable.

    `prepare` is called before each further try, to forget what may be stale. The last error is
    raised when time is up.
    """
    while True:
        try:
            return attempt()
        except ProtocolError as error:
            if not is_worth_retrying(error) or not backoff.maybe_wait():
                raise
        prepare()
