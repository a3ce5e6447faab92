"""One partition led in one leader epoch: who is where, what is committed, who is in sync.

This file knows the rules by which a leader moves its high watermark and proposes changes of the
in-sync set (replication specification 1.2 to 1.4, 2.1). It must not know the log, the wire or the
controller: it is told offsets, and says what follows from them.

Theory: a record is committed when every replica that could be elected has it. The candidates are
the in-sync set, so the high watermark is the smallest log end offset among the members of the
*maximal* set, the leader included (B-1). It also waits for replicas that are about to join, so that
they can (KAFKA-4485); waiting for more replicas than needed is always safe. It never goes back.

`fetched` and `next_high_watermark` run once per produce and per follower fetch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.replication.in_sync import Committed, Expanding, InSyncState, Shrinking, Withdrawing
from strandline.replication.policies import DEFAULT, Policies
from strandline.replication.progress import NO_BROKER_EPOCH, Progress
from strandline.types import BrokerId, LeaderEpoch, Offset

MayJoin = Callable[[BrokerId], bool]
"""Whether a broker may be in the in-sync set at all: it is alive, it is not shutting down, its disk
works, and its registration is the one that it fetched under (KAFKA-15021, KIP-841, KIP-903)."""


class Leader:
    """See the module. Made when leadership in a new leader epoch is accepted, then thrown away.

    - `start_offset`: the log end when this epoch began (LESO).
    - `deleted_to`: no replica may lead that still has records below. Clients were told that they
      are deleted, by this leader (`note_deleted`) or perhaps by one before it.
    - `in_sync`: the set and a change of it in flight; `partition_epoch` is the version that the
      controller gave the committed set. Moved by `committed`, `refused`, `maybe_*`.
    - `has_eligible`: the committed state names replicas outside the in-sync set that may lead
      (KIP-966). They have everything that is committed, so nothing is committed without them,
      whatever this broker's own `min.insync.replicas` is (D-13).
    - `progress`: one entry per replica except the leader itself.
    """

    __slots__ = (
        "_followers",
        "_is_held",
        "_is_unsure",
        "_min_in_sync",
        "broker_id",
        "deleted_to",
        "has_eligible",
        "in_sync",
        "lag_max_ms",
        "leader_epoch",
        "partition_epoch",
        "policies",
        "progress",
        "replicas",
        "start_offset",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        leader_epoch: LeaderEpoch,
        partition_epoch: int,
        start_offset: Offset,
        replicas: Sequence[BrokerId],
        in_sync: Collection[BrokerId],
        lag_max_ms: int,
        min_in_sync: int,
        now_ms: int,
        log_start_offset: Offset,
        has_eligible: bool = False,
        former: Leader | None = None,
        policies: Policies = DEFAULT,
    ) -> None:
        """`in_sync` is the committed set, `log_start_offset` where the log starts now.

        `former` is this broker's last leadership, if it has had one.

        What `former` knew of its followers is used only if it was the epoch just before this one.
        A broker that was cut off may have missed another leader's epochs, in which its followers
        may have truncated: then they are unknown, however sure the former leader was. So is who is
        not in sync: it may have been moved away in between and back, with an empty log (I-15).
        """
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.start_offset = start_offset
        self.deleted_to = log_start_offset
        self.lag_max_ms = lag_max_ms
        self.policies = policies
        self.replicas = tuple(replicas)
        self.in_sync: InSyncState = Committed(frozenset(in_sync))
        if former is not None and former.leader_epoch + 1 != leader_epoch:
            former = None
        self.progress: dict[BrokerId, Progress] = {}
        self.has_eligible = has_eligible
        self._is_unsure = False
        """Whether only the metadata can tell if replicas are eligible in the committed state."""
        self._min_in_sync = min_in_sync
        self._followers: tuple[Progress, ...] = ()
        self._is_held = False
        for follower in self.replicas:
            if follower != broker_id:
                progress = self.progress[follower] = Progress(follower)
                if follower in self.in_sync.members:
                    known = former.progress.get(follower) if former is not None else None
                    progress.begin_epoch(known, start_offset, now_ms)
        self._settle()

    # -- Followers and the high watermark ----------------------------------------------------

    def fetched(
        self,
        follower: BrokerId,
        *,
        offset: Offset,
        log_start_offset: Offset,
        broker_epoch: int,
        log_end_offset: Offset,
        now_ms: int,
    ) -> bool:
        """Note a follower's fetch, after it was read; returns whether its log end has changed.

        `log_end_offset` is the leader's, as it was when the fetch was read. To be called once per
        request, on its first pass, and never for one that was answered with a diverging epoch.
        Raises NOT_LEADER_OR_FOLLOWER for a fetch from before the follower's last restart (D-04).
        """
        progress = self.progress[follower]
        if broker_epoch != progress.broker_epoch and broker_epoch > NO_BROKER_EPOCH:
            self._check_broker_epoch(progress, broker_epoch)
        return progress.fetched(offset, log_start_offset, broker_epoch, log_end_offset, now_ms)

    def _check_broker_epoch(self, progress: Progress, broker_epoch: int) -> None:
        if broker_epoch < progress.broker_epoch:
            raise ProtocolError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {progress.broker_id} has registered anew since it sent this fetch.",
            )

    def next_high_watermark(
        self, high_watermark: Offset, log_end_offset: Offset, now_ms: int, *, may_join: MayJoin
    ) -> Offset:
        """Where the high watermark may be now, never below `high_watermark`.

        To be asked after becoming leader, after every append, when `fetched` said True, when the
        in-sync set was committed or the replicas changed, and at `next_lag_check_ms` (D-03).
        """
        if self._is_held:
            return high_watermark
        candidate = log_end_offset
        for progress in self._followers:
            # Unknown followers are at -1: a new leader waits until its in-sync set has fetched.
            if progress.log_end_offset < candidate and (
                progress.is_counted
                or (
                    self.policies.lag.is_caught_up(
                        progress, log_end_offset, now_ms, self.lag_max_ms
                    )
                    and may_join(progress.broker_id)
                )
            ):
                candidate = progress.log_end_offset
        return candidate if candidate > high_watermark else high_watermark

    def low_watermark(self, log_start_offset: Offset, counts: Callable[[BrokerId], bool]) -> Offset:
        """The smallest log start offset of the leader and of the replicas that count."""
        low = log_start_offset
        for progress in self._followers:
            if progress.log_start_offset < low and counts(progress.broker_id):
                low = progress.log_start_offset
        return low

    def note_deleted(self, low_watermark: Offset) -> None:
        """A client is told that the records below are deleted."""
        if low_watermark > self.deleted_to:
            self.deleted_to = low_watermark

    # -- The in-sync set ---------------------------------------------------------------------

    def maybe_expand(self, follower: BrokerId, *, high_watermark: Offset, may_join: bool) -> bool:
        """After a fetch: whether the follower qualifies; then `in_sync` is to be proposed."""
        state = self.in_sync
        if type(state) is not Committed or follower in state.members or not may_join:
            return False
        progress = self.progress[follower]
        if not progress.has_fetched or progress.log_end_offset < high_watermark:
            return False
        if self.policies.joins_at_epoch_start and progress.log_end_offset < self.start_offset:
            # The high watermark of a new leader may lag: below the epoch's start may be committed
            # records that the follower lacks (KAFKA-7128).
            return False
        if progress.log_start_offset < self.deleted_to:
            # It has not heard yet where the log starts; as a leader it would have the records back.
            return False
        self.in_sync = Expanding(state.members, follower, progress.broker_epoch)
        self._settle()
        return True

    def maybe_shrink(self, log_end_offset: Offset, now_ms: int) -> bool:
        """Whether members have fallen behind; then `in_sync` is to be proposed."""
        return self.maybe_let_go(
            member
            for member in self.in_sync.members
            if not self._is_caught_up(member, log_end_offset, now_ms)
        )

    def maybe_let_go(self, members: Iterable[BrokerId]) -> bool:
        """Whether there are such members, which are to leave; then `in_sync` is to be proposed.

        A broker that is about to stop leaves so, by its leader's word, since its leader lives and
        has every committed record (note 0040).
        """
        state = self.in_sync
        if type(state) is not Committed:
            return False
        leaving = state.members.intersection(members) - {self.broker_id}
        if not leaving:
            return False
        self.in_sync = Shrinking(state.members, leaving)
        self._settle()
        return True

    def _is_caught_up(self, follower: BrokerId, log_end_offset: Offset, now_ms: int) -> bool:
        progress = self.progress.get(follower)
        return progress is not None and self.policies.lag.is_caught_up(
            progress, log_end_offset, now_ms, self.lag_max_ms
        )

    def committed(
        self, members: Iterable[BrokerId], partition_epoch: int, has_eligible: bool | None = None
    ) -> bool:
        """The controller's word, from an answer or from the metadata; False if it is no news.

        The same version again never ends a change in flight: the controller may be about to
        commit that change, and until then both sets must be satisfied. A later version does, as
        a proposal that was made for an earlier one can no longer succeed.

        `has_eligible` is None in an answer, which does not say it. Who left the set may be
        eligible by the controller's settings, which this broker need not share: then nothing is
        committed until the metadata have told. A set that only grew makes no replica eligible.
        """
        if partition_epoch < self.partition_epoch:
            return False
        if partition_epoch == self.partition_epoch:
            if has_eligible is None or not self._is_unsure:
                return False
        else:
            now_in_sync = frozenset(members)
            if has_eligible is None:
                self._is_unsure = (
                    self._is_unsure
                    or self.has_eligible
                    or partition_epoch != self.partition_epoch + 1
                    or not self.in_sync.members <= now_in_sync
                )
            self.partition_epoch = partition_epoch
            self.in_sync = Committed(now_in_sync)
        if has_eligible is not None:
            self.has_eligible, self._is_unsure = has_eligible, False
        self._settle()
        return True

    def refused(
        self, *, definite: bool, proposal: InSyncState | None = None, is_open: bool = False
    ) -> bool:
        """The controller did not commit `proposal`; returns whether there is no change in flight.

        Only if it is `definite` that the change was and will not be applied (INELIGIBLE_REPLICA,
        OPERATION_NOT_ATTEMPTED) is the committed set in force again. Otherwise the outcome is
        unknown, and only newer metadata can end the wait. A refusal of a `proposal` that is no
        longer the current one says nothing. If an earlier attempt of it `is_open`, never answered,
        it may still be applied: then a replica that was to join goes on to count, and the version
        of the state must be moved (`Withdrawing`).
        """
        state = self.in_sync
        if type(state) is Committed:
            return True
        if not definite or (proposal is not None and proposal is not state):
            return False
        if type(state) is Withdrawing:
            return False
        if type(state) is Expanding and is_open:
            self.in_sync = Withdrawing(state.members, state.joining)
            return False
        self.in_sync = Committed(state.members)
        self._settle()
        return True

    def reassigned(self, replicas: Sequence[BrokerId]) -> None:
        """The partition is now to be on these brokers; what is known of the others is forgotten."""
        self.replicas = tuple(replicas)
        known = self.progress
        self.progress = {
            follower: known.get(follower) or Progress(follower)
            for follower in self.replicas
            if follower != self.broker_id
        }
        self._settle()

    # -- Questions ---------------------------------------------------------------------------

    @property
    def min_in_sync(self) -> int:
        """`min.insync.replicas` of the topic."""
        return self._min_in_sync

    @min_in_sync.setter
    def min_in_sync(self, min_in_sync: int) -> None:
        self._min_in_sync = min_in_sync
        self._settle()

    @property
    def effective_min_in_sync(self) -> int:
        """As many members as `acks=all` needs: a partition with fewer replicas needs all.

        While others are eligible, at least one more than there are: the controller goes by a
        greater `min.insync.replicas` than this broker, or has not heard of a smaller one yet.
        """
        least = min(self._min_in_sync, len(self.replicas))
        return max(least, len(self.in_sync.members) + 1) if self.has_eligible else least

    @property
    def has_min_in_sync(self) -> bool:
        """Whether a write with `acks=all` may begin."""
        return len(self.in_sync.members) >= self.effective_min_in_sync

    @property
    def has_maximal_min_in_sync(self) -> bool:
        """Whether a write with `acks=all` that the high watermark has passed is acknowledged."""
        return len(self.in_sync.maximal) >= self.effective_min_in_sync

    def next_lag_check_ms(self, log_end_offset: Offset, now_ms: int) -> int | None:
        """The first time at which `next_high_watermark` or `maybe_shrink` may say something else
        although nothing has happened; None if there is none (D-03)."""
        first: int | None = None
        for progress in self._followers:
            lapses_at = self.policies.lag.lapses_at_ms(
                progress, log_end_offset, now_ms, self.lag_max_ms
            )
            if lapses_at is not None and (first is None or lapses_at < first):
                first = lapses_at
        return first

    def check(self, high_watermark: Offset, log_end_offset: Offset) -> None:
        """Raise `InvariantViolated` unless sets and offsets agree (I-01, I-12, I-15)."""
        state = self.in_sync
        if self.broker_id not in state.members:
            raise InvariantViolated(
                f"Leader {self.broker_id} is not in sync with itself: {state}.", invariant="I-12"
            )
        if not state.maximal <= set(self.replicas):
            raise InvariantViolated(
                f"{state} has members that are not in {self.replicas}.", invariant="I-12"
            )
        if not state.members <= state.maximal:
            raise InvariantViolated(f"{state} does not count all of its members.", invariant="I-13")
        if not 0 <= high_watermark <= log_end_offset or self.start_offset > log_end_offset:
            raise InvariantViolated(
                f"High watermark {high_watermark}, epoch start {self.start_offset} and log end "
                f"{log_end_offset} are out of order.",
                invariant="I-01",
            )
        for progress in self._followers:
            if progress.log_end_offset > log_end_offset:
                raise InvariantViolated(
                    f"{progress} is ahead of its leader at {log_end_offset}.", invariant="I-15"
                )

    def _settle(self) -> None:
        """Work out what the hot path needs, after any change but a fetch."""
        state = self.in_sync
        counted = state.maximal if self.policies.counts_joining else state.members
        self._followers = tuple(self.progress.values())
        for progress in self._followers:
            progress.is_counted = progress.broker_id in counted
        self._is_held = self.policies.strict_min_isr and (
            self._is_unsure or not self.has_min_in_sync
        )
