"""Where a reader begins in assigned partitions that have no position yet.

    put ── a place ──> starts ── a broker tells its offset ──> a position
       └── None ──> refused ── the group has an offset now ──^      ^
                       └──────────────── seek ──────────────────────┘

This file knows what is still to be found out. It must not know how that is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import Offset, TopicPartition


class Beginnings:
    """See the module."""

    def __init__(self) -> None:
        self.starts: dict[TopicPartition, Start] = {}
        """Places of which no broker has told yet what offset that is."""
        self.refused: dict[TopicPartition, ProtocolError] = {}
        """Partitions of which nothing says where to begin, and why: the program has to `seek`."""

    @property
    def partitions(self) -> list[TopicPartition]:
        """All partitions without a position."""
        return [*self.starts, *self.refused]

    def put(self, starts: Mapping[TopicPartition, Start | None]) -> None:
        """Begin there; None: nothing says where, since `auto.offset.reset` is `none`."""
        for partition, start in starts.items():
            if start is None:
                self.refused[partition] = _nowhere(partition)
            else:
                self.starts[partition] = start

    def refuse_former(self, partitions: Iterable[TopicPartition]) -> None:
        """The positions were in topics that are other ones now."""
        self.refused.update((each, _other_topic(each)) for each in partitions)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These have a position now, or are read no longer."""
        for each in partitions:
            self.starts.pop(each, None)
            self.refused.pop(each, None)

    @property
    def lacking(self) -> list[TopicPartition]:
        """The partitions that could begin if the group had stored an offset of theirs."""
        return [
            at for at, error in self.refused.items() if error.code is ErrorCode.OFFSET_OUT_OF_RANGE
        ]

    def committed(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """The group has stored these."""
        for partition, offset in offsets.items():
            if self.refused.pop(partition, None) is not None:
                self.starts[partition] = Start.at_offset(offset)

    def check(self) -> None:
        """Raise `ProtocolError` while there is a partition of which nothing says where to begin."""
        for error in self.refused.values():
            raise error


def _nowhere(partition: TopicPartition) -> ProtocolError:
    return ProtocolError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"There is no committed offset of partition {partition}, and auto.offset.reset is none: "
        "seek to where it is to begin, or commit an offset.",
    )


def _other_topic(partition: TopicPartition) -> ProtocolError:
    return ProtocolError(
        ErrorCode.UNKNOWN_TOPIC_ID,
        f"Topic '{partition.topic}' was deleted and made anew, and auto.offset.reset is none: seek "
        f"to where partition {partition} is to begin.",
    )
