"""A query without Spark's streams: batches are planned here, and carried out as jobs.

Theory: all that a stream of Spark's does for a run is to find out what is new, and to call a
function with it. Spark Connect calls such a function in a process of the server's, away from the
table's fence and the run's patience. There the run plans by itself, with the planner of the source
that the stream would use; only tasks are the server's. What makes a batch land once is its commit,
as ever: the table knows the query and the offsets. So a job whose answer is lost has written files
that no commit names, and its offsets are read again.

A round is carried out while the run waits for the query's end: nothing here has a thread.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from strandline.client.clock import SystemClock
from strandline.errors import InvalidSetting
from strandline.lakehouse.pipeline.batches import Batches, RunContext
from strandline.lakehouse.pipeline.errors import PipelineFailed
from strandline.lakehouse.pipeline.offset_log import ends_at
from strandline.lakehouse.pipeline.start_offsets import StartOffsets
from strandline.lakehouse.source.losses import DataLost
from strandline.lakehouse.source.options import parse_options
from strandline.lakehouse.source.planner import StreamPlanner
from strandline.lakehouse.source.positions import Positions


@dataclass(slots=True)
class Rounds:
    """As `query.Attempt`."""

    context: RunContext
    begin: StartOffsets
    failure: Exception | None = None
    is_busy: bool = False
    """Never so when the run looks."""
    batches: Batches = field(init=False)

    def __post_init__(self) -> None:
        self.batches = Batches(self.context, self.begin)

    def start(self, *, available_now: bool) -> RoundsQuery:
        """As `Attempt.start`."""
        return RoundsQuery(self.context, self.begin, self.batches, available_now=available_now)

    def close(self) -> None:
        """As `Attempt.close`: there is no checkpoint."""


class RoundsQuery:
    """What a run asks of a query of Spark's, in the names that it has there."""

    def __init__(
        self, context: RunContext, begin: StartOffsets, batches: Batches, *, available_now: bool
    ) -> None:
        self._context = context
        self._batches = batches
        self._available_now = available_now
        options = parse_options(context.source_options(begin), is_stream=True)
        self._at_most = options.limits.at_most
        self._planner = StreamPlanner(options, SystemClock())
        self._reached: Positions | None = None
        self._round = 0
        self._due_s = 0.0

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 -- Spark's name
        """Carry out a round if it is due, else wait up to `timeout` seconds for that; whether it
        was the last. Raises what ends the query."""
        left_s = self._due_s - time.monotonic()
        if left_s > 0:
            time.sleep(min(timeout, left_s))
            return False
        began = time.monotonic()
        try:
            return self._next_round()
        except DataLost as lost:
            # As when Spark's stream fails: whether it is so is found out at the next start.
            raise PipelineFailed(str(lost)) from lost
        finally:
            interval_s = 0.0 if self._available_now else self._context.options.interval_ms / 1000
            self._due_s = began + interval_s

    def stop(self) -> None:
        """Between two rounds."""
        self._planner.close()

    def _next_round(self) -> bool:
        if self._reached is None:
            try:
                self._reached = self._planner.initial()
            except InvalidSetting as refused:
                # The run names all partitions that it saw just before: there are others now.
                raise PipelineFailed("A topic's partitions changed as a query began.") from refused
            if self._available_now:
                self._planner.stop_at_present_end()
        end = self._planner.latest(self._reached, at_most=self._at_most, wait=None)
        if end == self._reached:
            return self._available_now
        self._batches.commit(self._round, ends_at(end), self._context.spark)
        self._round += 1
        self._reached = end
        return False
