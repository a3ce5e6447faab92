"""The replication rules that can be exchanged.

This file knows the choices. Brokers always use `DEFAULT`, except where a setting says otherwise;
the other values exist so that scenarios and the simulator can show what goes wrong without a rule,
which proves that their checks would notice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from strandline.replication.progress import Progress
from strandline.types import Offset


class AnswerWatermark(Enum):
    """Which high watermark an answer to a follower carries (D-01)."""

    POST = "post"
    """As it is after the fetch moved it: one round trip less until the follower knows."""

    PRE = "pre"
    """As it was before the fetch, as Kafka answers."""


class TruncateBy(Enum):
    """What a new follower trusts when it makes its log agree with the leader's."""

    LEADER_EPOCH = "leader-epoch"
    """Epochs and where they end, until both logs agree on one (KIP-101, KIP-279)."""

    LEADER_EPOCH_ONCE = "leader-epoch-once"
    """One question, and the leader's answer alone (KIP-101); wrong after fast failovers."""

    HIGH_WATERMARK = "high-watermark"
    """Its own high watermark, as before 0.11; loses committed records, and diverges (R-01)."""


class LagPolicy(Protocol):
    """When a follower counts as caught up with its leader."""

    def is_caught_up(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> bool:
        """Whether it is, at `now_ms`, given the leader's log end."""

    def lapses_at_ms(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> int | None:
        """When it stops being so if nothing happens until then; None if never, or it is not."""


@dataclass(frozen=True, slots=True)
class TimeLag:
    """`replica.lag.time.max.ms`: it had everything not longer ago than that (KAFKA-1546).

    A follower at the leader's end is caught up however old its last fetch is (KAFKA-7152).
    """

    def is_caught_up(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> bool:
        """See `LagPolicy`."""
        return (
            progress.log_end_offset == log_end_offset
            or now_ms - progress.last_caught_up_ms <= lag_max_ms
        )

    def lapses_at_ms(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> int | None:
        """See `LagPolicy`."""
        if progress.log_end_offset == log_end_offset:
            return None
        lapses_at = progress.last_caught_up_ms + lag_max_ms + 1
        return lapses_at if lapses_at > now_ms else None


@dataclass(frozen=True, slots=True)
class RecordLag:
    """`replica.lag.max.messages`, the rule before 0.9: at most so many records behind.

    No number fits: a burst of more records than that makes every follower lag at once, and the
    next fetch brings it back, so that the in-sync set flaps under load.
    """

    records_max: int

    def is_caught_up(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> bool:
        """See `LagPolicy`. A follower that does not fetch at all is behind, too."""
        return (
            progress.log_end_offset >= 0
            and log_end_offset - progress.log_end_offset <= self.records_max
            and now_ms - progress.last_fetch_ms <= lag_max_ms
        )

    def lapses_at_ms(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> int | None:
        """See `LagPolicy`."""
        if not self.is_caught_up(progress, log_end_offset, now_ms, lag_max_ms):
            return None
        return progress.last_fetch_ms + lag_max_ms + 1


@dataclass(frozen=True, slots=True)
class Policies:
    """One choice for each exchangeable rule.

    - `strict_min_isr` (D-02, KAFKA-15583): the high watermark rests while the committed in-sync
      set is smaller than `min.insync.replicas`, so that a replica that has left such a set still
      has everything that was committed.
    - `joins_at_epoch_start` (KAFKA-7128): a replica joins only once it has all that the log held
      when the leader's epoch began.
    - `counts_joining` (KIP-497): a replica that the leader asked to add is waited for at once.
    - `starts_over` (note 0049): a follower that is to go on where its leader's log starts, above
      its own high watermark, drops what nothing can be compared with.
    """

    strict_min_isr: bool = True
    answer_watermark: AnswerWatermark = AnswerWatermark.POST
    lag: LagPolicy = field(default_factory=TimeLag)
    truncate_by: TruncateBy = TruncateBy.LEADER_EPOCH
    joins_at_epoch_start: bool = True
    counts_joining: bool = True
    starts_over: bool = True


DEFAULT: Final = Policies()
