"""The ranges that a query reads: of a batch at once, of a stream batch by batch.

This file keeps what must be remembered between two batches: the connections, what was last seen,
and how far a run with `Trigger.AvailableNow` goes. What one step takes is decided in `progress`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.client.clock import Clock
from strandline.lakehouse.reading.catalogue import Catalogue, End
from strandline.lakehouse.reading.settings import OffsetRange
from strandline.lakehouse.source.facts import Facts, look
from strandline.lakehouse.source.losses import Losses
from strandline.lakehouse.source.options import SourceOptions
from strandline.lakehouse.source.positions import Positions, ranges_between
from strandline.lakehouse.source.progress import next_positions
from strandline.lakehouse.source.splits import split
from strandline.lakehouse.source.starting import (
    ending_positions,
    look_at_start,
    starting_positions,
)
from strandline.types import TopicPartition

_BROKERS_KNOW_AFTER_MS: Final = 5000
_LOOK_AGAIN_MS: Final = 200


def batch_ranges(options: SourceOptions) -> list[OffsetRange]:
    """The tasks of a batch query, as both sides stand now.

    Raises `InvalidSetting`, `ProtocolError`, `DataLost`.
    """
    losses = Losses(fails=options.fails_on_loss)
    with Catalogue(options.reading) as catalogue:
        facts = look_at_start(catalogue, options)
        start = starting_positions(options, facts, catalogue, losses)
        end = ending_positions(options, facts, catalogue, losses)
    return split(ranges_between(start, end), options.splitting)


@dataclass(frozen=True, slots=True)
class Wait:
    """That a batch has so many offsets at least, or as many as came until the delay has passed."""

    at_least: int
    delay_ms: int


class StreamPlanner:
    """See the module. One object belongs to one query on its driver."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        """Connects to nothing yet."""
        self._options = options
        self._clock = clock
        self._catalogue = Catalogue(options.reading)
        self._losses = Losses(fails=options.fails_on_loss)
        self._target: Facts | None = None
        self._seen: Facts | None = None
        self._waiting_since_ms: int | None = None

    def close(self) -> None:
        """Close the connections."""
        self._catalogue.close()

    def initial(self) -> Positions:
        """Where a new query begins."""
        facts = look_at_start(self._catalogue, self._options)
        return starting_positions(self._options, facts, self._catalogue, self._losses)

    def stop_at_present_end(self) -> None:
        """Go no further than the ends that there are now (`Trigger.AvailableNow`)."""
        self._target = look(self._catalogue, self._options.selection, Positions())

    def latest(self, start: Positions, *, at_most: int | None, wait: Wait | None) -> Positions:
        """The end of the batch that begins at `start`; equal to it if there is none yet.

        Raises `DataLost`, `ProtocolError`.
        """
        facts = self._look(start)
        self._seen = facts
        if self._target is not None:
            facts = _not_beyond(facts, self._target, start)
        elif wait is not None and self._may_wait(start, facts, wait):
            return start
        return next_positions(start, facts, self._losses, at_most=at_most)

    def seen(self) -> Positions | None:
        """The ends of the logs when they were last looked at, for the query's progress."""
        return None if self._seen is None else self._seen.positions()

    def ranges(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """The tasks of the batch between two positions, the same whenever they are asked for."""
        return split(ranges_between(start, end), self._options.splitting)

    def _look(self, start: Positions) -> Facts:
        """Look, and look again before topics count as gone: a broker may not have heard of them."""
        patience_ms = min(_BROKERS_KNOW_AFTER_MS, self._options.reading.patience_ms)
        until_ms = self._clock.monotonic_ms() + patience_ms
        while True:
            facts = look(self._catalogue, self._options.selection, start)
            ids = facts.topic_ids
            is_whole = all(
                name in ids and ids[name] == each for name, each in start.topic_ids.items()
            )
            if is_whole or self._clock.monotonic_ms() >= until_ms:
                return facts
            self._clock.sleep_ms(_LOOK_AGAIN_MS)

    def _may_wait(self, start: Positions, facts: Facts, wait: Wait) -> bool:
        """The first batch of a run waits for nothing, as in Spark's own source."""
        now_ms, since_ms = self._clock.monotonic_ms(), self._waiting_since_ms
        if since_ms is not None and now_ms - since_ms < wait.delay_ms:
            end = next_positions(start, facts, self._losses, at_most=None)
            ranges = ranges_between(start, end)
            if sum(each.end - each.start for each in ranges) < wait.at_least:
                return True
        self._waiting_since_ms = now_ms
        return False


def _not_beyond(facts: Facts, target: Facts, start: Positions) -> Facts:
    """The facts without what came after the target was set: partitions that appeared since are
    not read, and stay where they are if the query began after that."""
    ends: dict[TopicPartition, End] = {}
    for partition, end in facts.ends.items():
        name = partition.topic
        is_same = name in target.topic_ids and facts.topic_ids[name] == target.topic_ids[name]
        bound = target.ends.get(partition) if is_same else None
        if bound is None and partition in start.at:
            bound = End(start.at[partition].offset, start.at[partition].epoch)
        if bound is not None:
            ends[partition] = min(end, bound, key=lambda each: each.offset)
    return Facts(
        facts.topics,
        {each: facts.earliest[each] for each in ends},
        ends,
        facts.epoch_ends,
    )
