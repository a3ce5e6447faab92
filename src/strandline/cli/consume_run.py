"""What `strandline consume` prints, and how far it has come. Knows no command line."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import BinaryIO, Final, Protocol

import click

from strandline.cli.consume_place import Places
from strandline.cli.record_format import Formatter
from strandline.client.fetching import FetchedRecords
from strandline.errors import ProtocolError
from strandline.types import Offset, TopicPartition

_POLL_MS: Final = 250
_TOLD_AGAIN_S: Final = 60.0
_OVER_S: Final = 2.0
"""So long without trouble, and it is over."""


class Source(Protocol):
    """Where the records come from: a consumer, in a group or by itself."""

    @property
    def positions(self) -> Mapping[TopicPartition, Offset]: ...

    @property
    def trouble(self) -> ProtocolError | None: ...

    def lag(self) -> Mapping[TopicPartition, int]: ...

    def poll(self, timeout_ms: int) -> list[FetchedRecords]: ...


class Troubles:
    """Says that nothing comes because something is wrong, once a minute, and once that it is over.
    With several leaders one may answer and another fail in turns."""

    def __init__(self) -> None:
        self._told_s: float | None = None
        """When trouble was told last that is not over; and when there was some last."""
        self._troubled_s = 0.0

    def tell(self, trouble: ProtocolError | None) -> None:
        """What is wrong now, if anything is."""
        now_s = time.monotonic()
        if trouble is not None:
            self._troubled_s = now_s
            if self._told_s is None or now_s - self._told_s >= _TOLD_AGAIN_S:
                self._told_s = now_s
                click.echo(f"{trouble.message} Trying again.", err=True)
        elif self._told_s is not None and now_s - self._troubled_s >= _OVER_S:
            self._told_s = None
            click.echo("The broker answers again.", err=True)


class ConsumeRun:
    """Prints, and knows what was printed."""

    def __init__(
        self, source: Source, formatter: Formatter, output: BinaryIO, count_max: int | None
    ) -> None:
        self.ends: dict[TopicPartition, Offset] | None = None
        self.places = Places()
        self._source = source
        self._formatter = formatter
        self._output = output
        self._room = count_max
        self._troubles = Troubles()
        self._printed: dict[TopicPartition, Offset] = {}
        self._uncommitted: dict[TopicPartition, Offset] = {}

    @property
    def is_full(self) -> bool:
        """Whether as much was printed as was asked for."""
        return self._room is not None and self._room <= 0

    @property
    def is_at_end(self) -> bool:
        """Whether the end that is to be reached is reached."""
        if self.ends is None:
            return False
        positions = self._source.positions
        if any(positions[each] < end for each, end in self.ends.items()):
            return False
        # Behind an end is where records were read that came since; or the position is not in the
        # log at all, and only a broker's answer to the first fetch tells that.
        behind = {each for each, end in self.ends.items() if positions[each] > end}
        return not behind or behind <= self._source.lag().keys()

    def step(self) -> None:
        """Print what comes next, if it comes soon."""
        for fetched in self._source.poll(_POLL_MS):
            self.places.follow(fetched)
            self._print(fetched)
        self._output.flush()
        self._troubles.tell(self._source.trouble)
        # Only now: what a closed pipe did not take must be read again by the group.
        self._uncommitted.update(self._printed)
        self._printed.clear()

    def take_uncommitted(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Offset]:
        """Where to go on after what was printed since this was asked last; of all by default."""
        wanted = self._uncommitted.keys() if partitions is None else set(partitions)
        taken = {at: each for at, each in self._uncommitted.items() if at in wanted}
        self._uncommitted = {at: each for at, each in self._uncommitted.items() if at not in taken}
        return taken

    def _print(self, fetched: FetchedRecords) -> None:
        partition = fetched.topic_partition
        end = None if self.ends is None else self.ends[partition]
        for record in fetched.records:
            if self.is_full:
                return
            if end is not None and record.offset >= end:
                return  # came after the end that was to be reached
            self._output.write(self._formatter(partition, record))
            self._printed[partition] = Offset(record.offset + 1)
            if self._room is not None:
                self._room -= 1
        self._printed[partition] = fetched.next_offset
