"""Which batches of a partition may be sent: order, repetition, the first of a producer, pauses."""

from __future__ import annotations

from random import Random

from strandline.client.backoff import ExponentialBackoff
from strandline.client.partition_queue import PartitionQueue
from strandline.types import TopicPartition


class Numbered:
    """A batch that is known by its number."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.encoded: bytes | None = None


def queue_of(count: int, *, in_flight_max: int, is_numbered: bool) -> PartitionQueue[Numbered]:
    queue: PartitionQueue[Numbered] = PartitionQueue(
        TopicPartition("t", 0),
        ExponentialBackoff(Random(1), 100, 400),
        in_flight_max,
        is_numbered=is_numbered,
    )
    for number in range(count):
        queue.add(Numbered(number))
    return queue


def sendable(queue: PartitionQueue[Numbered], now_ms: int = 0) -> list[int]:
    return [batch.number for batch in queue.sendable(now_ms)]


def send(queue: PartitionQueue[Numbered], now_ms: int = 0) -> list[Numbered]:
    """Send what may go."""
    batches = queue.sendable(now_ms)
    for batch in batches:
        batch.encoded = b"bytes"
        queue.sent(batch)
    return batches


def test_as_many_are_on_their_way_as_may_be_in_order() -> None:
    queue = queue_of(5, in_flight_max=2, is_numbered=False)
    first, second = send(queue)
    assert (first.number, second.number) == (0, 1)
    assert sendable(queue) == []
    queue.answered(second)
    queue.remove(second)
    assert sendable(queue) == [2]
    assert queue.is_in_flight(first)
    assert queue.in_flight == 1


def test_the_first_numbered_batch_goes_alone_until_it_is_acknowledged() -> None:
    queue = queue_of(4, in_flight_max=3, is_numbered=True)
    (first,) = send(queue)
    assert sendable(queue) == []
    queue.remove(first)
    queue.is_sequence_confirmed = True
    assert sendable(queue) == [1, 2, 3]


def test_of_what_is_to_be_repeated_the_oldest_goes_alone() -> None:
    queue = queue_of(4, in_flight_max=3, is_numbered=True)
    queue.is_sequence_confirmed = True
    first, second, third = send(queue)
    queue.answered(second)
    assert sendable(queue) == [], "the first is not decided"
    queue.answered(first)
    assert sendable(queue) == [0], "though the third is still on its way"
    send(queue)
    assert sendable(queue) == []
    queue.remove(first)
    assert sendable(queue) == [1]
    queue.answered(third)
    assert sendable(queue) == [1]
    for batch in (second, third):
        queue.remove(batch)
    assert sendable(queue) == [3]


def test_without_numbers_what_is_repeated_does_not_go_alone() -> None:
    queue = queue_of(3, in_flight_max=3, is_numbered=False)
    for batch in send(queue):
        queue.answered(batch)
    assert sendable(queue) == [0, 1, 2]


def test_pauses_grow_until_something_is_written() -> None:
    queue = queue_of(1, in_flight_max=1, is_numbered=True)
    queue.pause(1000)
    first_ms = queue.not_before_ms
    assert 1080 <= first_ms <= 1120
    assert sendable(queue, first_ms - 1) == []
    assert sendable(queue, first_ms) == [0]
    queue.pause(first_ms - 1)
    assert queue.not_before_ms == first_ms, "one pause for what fails at once"
    queue.pause(2000)
    assert 2160 <= queue.not_before_ms <= 2240
    queue.worked()
    queue.pause(3000)
    assert 3080 <= queue.not_before_ms <= 3120


def test_parts_take_the_place_of_the_whole() -> None:
    queue = queue_of(2, in_flight_max=5, is_numbered=False)
    queue.replace(queue.batches[0], [Numbered(7), Numbered(8)])
    assert sendable(queue) == [7, 8, 1]


def test_no_more_are_written_behind_the_oldest_numbered_one_than_a_broker_knows_again() -> None:
    queue = queue_of(9, in_flight_max=3, is_numbered=True)
    queue.is_sequence_confirmed = True
    oldest, *others = send(queue)
    for batch in others:
        queue.answered(batch)
        queue.remove(batch)
    assert sendable(queue) == []
    queue.answered(oldest)
    queue.remove(oldest)
    assert sendable(queue) == [3, 4, 5]


def test_the_parts_of_a_split_batch_count_as_batches() -> None:
    queue = queue_of(3, in_flight_max=3, is_numbered=True)
    queue.is_sequence_confirmed = True
    queue.replace(queue.batches[0], [Numbered(10), Numbered(11)])
    assert sendable(queue) == [10, 11, 1]
