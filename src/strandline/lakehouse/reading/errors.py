"""Why a range of offsets cannot be read as it was planned.

    ReadError
    ├── RangeGone        the log begins behind the place, or ends before it: records were lost
    ├── TopicReplaced    the topic was deleted, and maybe made again under its name
    ├── EpochDiverged    the log was cut and written again since the range was planned
    └── RangeNotReached  the log does not get to the range's end: nothing came for too long

This file knows the facts of each and the sentence for a person. The errors travel from Spark's
workers to its driver, so that each can be pickled: its arguments are all that it holds.
"""

from __future__ import annotations

from strandline.errors import StrandlineError
from strandline.storage.kafka_uuid import format_uuid
from strandline.types import TopicId, TopicPartition


class ReadError(StrandlineError):
    """A range cannot be read exactly. A retry does not help unless the subclass says so."""


class RangeGone(ReadError):
    """Records of the range are not in the log any more, or never were.

    `[log_start, log_end)` is what the log has for this reader; -1 where that is not known.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, log_start: int, log_end: int
    ) -> None:
        super().__init__(partition, offset, log_start, log_end)
        self.partition = partition
        self.offset = offset
        self.log_start = log_start
        self.log_end = log_end

    def __str__(self) -> str:
        if self.offset < self.log_start:
            return (
                f"Partition {self.partition} begins at offset {self.log_start}: the records from "
                f"{self.offset} on, which were to be read, were deleted by retention or by request."
            )
        return (
            f"Partition {self.partition} ends at offset {self.log_end}: the records from "
            f"{self.offset} on, which were to be read, were lost."
        )


class TopicReplaced(ReadError):
    """The topic has not the id that it had when the range was planned. `found` None: it is gone."""

    def __init__(self, topic: str, expected: TopicId, found: TopicId | None) -> None:
        super().__init__(topic, expected, found)
        self.topic = topic
        self.expected = expected
        self.found = found

    def __str__(self) -> str:
        fate = (
            "it was deleted"
            if self.found is None
            else f"it was deleted and made again as {format_uuid(self.found)}"
        )
        return (
            f"Topic '{self.topic}' is not the one that was to be read, with the id "
            f"{format_uuid(self.expected)}: {fate}."
        )


class EpochDiverged(ReadError):
    """A batch inside the range was written by a leader later than the plan of the range."""

    def __init__(
        self, partition: TopicPartition, offset: int, expected_epoch: int, found_epoch: int
    ) -> None:
        super().__init__(partition, offset, expected_epoch, found_epoch)
        self.partition = partition
        self.offset = offset
        self.expected_epoch = expected_epoch
        self.found_epoch = found_epoch

    def __str__(self) -> str:
        return (
            f"Partition {self.partition} was cut and written again: offset {self.offset} is of "
            f"leader epoch {self.found_epoch}, but the range was planned in epoch "
            f"{self.expected_epoch} and everything in it was committed then."
        )


class RangeNotReached(ReadError):
    """Nothing of the rest of the range came for the reader's patience. May succeed later."""

    def __init__(
        self, partition: TopicPartition, next_offset: int, end: int, patience_ms: int, last: str
    ) -> None:
        super().__init__(partition, next_offset, end, patience_ms, last)
        self.partition = partition
        self.next_offset = next_offset
        self.end = end
        self.patience_ms = patience_ms
        self.last = last

    def __str__(self) -> str:
        return (
            f"Partition {self.partition} was read up to offset {self.next_offset}, but nothing of "
            f"the rest up to {self.end} came for {self.patience_ms} ms. {self.last}"
        )
