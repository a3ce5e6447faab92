"""What is searched: the bounds of the world, and the rules that hold in it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.replication.policies import Policies
from strandline.replication.progress import Progress
from strandline.types import Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How much may happen."""

    replicas: int = 3
    records: int = 3
    """Records that clients write, all in all."""
    epochs: int = 3
    """Leader epochs, the first one included."""
    crashes: int = 0
    """Processes that die, all in all."""
    losses: int = 0
    """Deaths among them in which the machine forgets the end of the log."""
    expiries: int = 0
    """Sessions that end although the process lives: zombies."""
    delayed: int = 0
    """Requests that are under way at the same time, for any time."""
    min_in_sync: int = 2
    unclean: bool = False
    """Whether any replica may be elected if no complete one is alive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules that stand in this package, because the broker has them between its parts.

    Rules inside of the real code are switched off by `policies` or by patching that code.
    """

    policies: Policies
    compares_logs: bool = True
    """The leader answers where the logs part (KIP-279)."""
    diverging_answer_moves_no_mark: bool = True
    """KAFKA-14704."""
    marks_epoch_at_election: bool = True
    """KAFKA-7415."""
    leads_in_own_life_only: bool = True
    """A state from before a restart makes no broker the leader (KIP-380)."""
    names_life_of_joining: bool = True
    """A proposal names the life in which the member qualified, whenever it is sent (KIP-903)."""
    checks_fetch_epoch: bool = True
    """KIP-320."""
    elects_complete_only: bool = True
    """The controller elects from the in-sync set and the eligible replicas."""
    forgets_older_reigns: bool = True
    """What a leader knew of its followers counts only in the epoch just after."""
    keeps_on_open_refusal: bool = True
    """A proposal that was refused stays, unless it was certainly not carried out."""
    minds_open_attempts: bool = True
    """A refusal leaves a replica counted that an earlier attempt may yet bring into the set."""
    counts_diverging_fetch: bool = False
    """A fetch that was answered with a divergence counts as an acknowledgement."""


class ChosenLag:
    """Who lags is not a matter of time here but of choice: every choice is tried.

    A follower at the leader's end never lags (KAFKA-7152). For the high watermark all replicas
    behind count as lagging, so that none outside the in-sync set is waited for: that is the
    hardest.
    """

    __slots__ = ("patient_with",)

    def __init__(self) -> None:
        self.patient_with: frozenset[int] = frozenset()
        """Brokers that do not lag, however far behind they are."""

    def is_caught_up(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> bool:
        """See `LagPolicy`."""
        del now_ms, lag_max_ms
        return progress.log_end_offset == log_end_offset or progress.broker_id in self.patient_with

    def lapses_at_ms(
        self, progress: Progress, log_end_offset: Offset, now_ms: int, lag_max_ms: int
    ) -> int | None:
        """See `LagPolicy`: time does not pass here."""
        del progress, log_end_offset, now_ms, lag_max_ms
        return None
