"""A producer's batches of one partition, and which of them may be sent now.

This file knows the order of batches, pauses and the rules of what may be on its way at a time. It
must not know what is in a batch, what an answer means, or where the partition's leader is.

Theory: an idempotent producer's batches are numbered, and a broker takes the next number only, but
knows the last five again (KIP-98). So several may be on their way; while any is to be repeated,
only the oldest is sent, alone, as in Kafka's client. Until the oldest has its outcome, batches
behind it stay within that number also when they are acknowledged before it: a broker that has
written five others would not know it again. A broker that knows nothing of a producer
takes any number from it as the first: so the first batch under a producer id goes alone, until it
is acknowledged. Otherwise the second could be taken for the first when the leader changes between
the two.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from strandline.client.backoff import ExponentialBackoff
from strandline.types import TopicPartition


class SendableBatch(Protocol):
    """What the queue looks at."""

    @property
    def encoded(self) -> bytes | None:
        """Its bytes, fixed at the first attempt; nothing before that."""


B = TypeVar("B", bound=SendableBatch)


class PartitionQueue(Generic[B]):
    """See the module. The batches are those without an outcome, the oldest first."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        backoff: ExponentialBackoff,
        in_flight_max: int,
        *,
        is_numbered: bool,
    ) -> None:
        self.topic_partition = topic_partition
        self.batches: deque[B] = deque()
        self.is_sequence_confirmed = False
        """Whether a batch under the present producer id has been acknowledged."""
        self.not_before_ms = 0
        """Until when nothing is sent after something went wrong."""
        self._backoff = backoff
        self._in_flight_max = in_flight_max
        self._is_numbered = is_numbered
        self._in_flight: set[B] = set()
        self._places: dict[B, int] = {}
        """Where each batch stands among all that were ever queued, those with an outcome too."""
        self._next_place = 0

    @property
    def in_flight(self) -> int:
        """How many of the batches are on their way."""
        return len(self._in_flight)

    def is_in_flight(self, batch: B) -> bool:
        """Whether the batch waits for the answer to an attempt."""
        return batch in self._in_flight

    def sendable(self, now_ms: int) -> list[B]:
        """The batches that may go now, in order."""
        if self.not_before_ms > now_ms:
            return []
        idle = [batch for batch in self.batches if batch not in self._in_flight]
        if self._is_numbered:
            is_repeating = any(batch.encoded for batch in idle)
            if is_repeating or not self.is_sequence_confirmed:
                may_go = bool(idle) and idle[0] is self.batches[0]
                return idle[:1] if may_go and (is_repeating or not self._in_flight) else []
            idle = [batch for batch in idle if self._is_near(batch)]
        return idle[: max(0, self._in_flight_max - len(self._in_flight))]

    # -- What happens to batches -------------------------------------------------------------

    def add(self, batch: B) -> None:
        """Queue a batch behind the others."""
        self.batches.append(batch)
        self._places[batch] = self._next_place
        self._next_place += 1

    def sent(self, batch: B) -> None:
        """An attempt is on its way."""
        self._in_flight.add(batch)

    def answered(self, batch: B) -> None:
        """The attempt is over, whatever became of it: the batch keeps its place for now."""
        self._in_flight.discard(batch)

    def remove(self, batch: B) -> None:
        """The batch has its outcome."""
        self._in_flight.discard(batch)
        self.batches.remove(batch)
        del self._places[batch]

    def replace(self, batch: B, parts: Iterable[B]) -> None:
        """The batch is to be sent as several, in its place."""
        several = list(parts)
        number, place = self.batches.index(batch), self._places[batch]
        for before in list(self.batches)[:number]:
            self._places[before] -= len(several) - 1
        self.remove(batch)
        for part in reversed(several):
            self.batches.insert(number, part)
            self._places[part] = place
            place -= 1

    def pause(self, now_ms: int) -> None:
        """Something went wrong: send nothing for a while, longer each time in a row."""
        if self.not_before_ms <= now_ms:
            self.not_before_ms = now_ms + self._backoff.next_ms()

    def worked(self) -> None:
        """A batch was written: the next pause is the first one."""
        self._backoff.reset()

    def _is_near(self, batch: B) -> bool:
        """Whether few enough batches lie between the oldest one and this."""
        return self._places[batch] - self._places[self.batches[0]] < self._in_flight_max
