"""Rules of leaders: what is committed, and who is in sync."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, Final

from strandline.cluster.controller.in_sync_proposals import UNKNOWN_BROKER_EPOCH, _Judge
from strandline.errors import ErrorCode
from strandline.node import replica_host
from strandline.node.hosted_replica import HostedReplica
from strandline.node.in_sync_changes import InSyncChanges
from strandline.node.leader_role import LeaderRole
from strandline.node.replica import Replica
from strandline.node.replica_host import ReplicaHost
from strandline.node.replicas import Replicas
from strandline.replication.in_sync import Shrinking
from strandline.replication.leader import Leader
from strandline.replication.policies import DEFAULT
from strandline.replication.progress import NO_BROKER_EPOCH, Progress
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.types import BrokerId, Instant, Offset, TopicPartition
from tests.sim.mutants.mutant import Mutant, SwitchOn, no, nothing, patch, together, yes

_true_begin_epoch = Progress.begin_epoch
_true_become_leader = Replica.become_leader
_true_committed = Leader.committed
_true_epoch_of = InSyncChanges._epoch_of
_true_may_join = ReplicaHost.may_join
_true_check_eligible = _Judge._check_eligible
_true_failed = InSyncChanges._failed
_true_give_role = Replicas._give_role
_true_init = Leader.__init__
_true_maybe_expand = Leader.maybe_expand
_true_next_high_watermark = Leader.next_high_watermark
_true_refused = Leader.refused


def policy(**changes: Any) -> SwitchOn:
    """Nodes that are made now have another choice of the exchangeable rules."""
    return patch(replica_host, DEFAULT=replace(DEFAULT, **changes))


def _own_end(
    self: Leader, high_watermark: Offset, log_end_offset: Offset, *_: Any, **__: Any
) -> Offset:
    del self, high_watermark
    return log_end_offset


def _goes_anywhere(self: LeaderRole, now: Instant) -> None:
    mark = self.state.next_high_watermark(
        Offset(0), self._log.log_end_offset, now.monotonic_ms, may_join=self._may_join
    )
    if mark != self._log.high_watermark:
        self._log.restore_high_watermark(mark)
        self._replica.changed()


def _knows_them(self: Progress, former: Progress | None, start_offset: Offset, now_ms: int) -> None:
    _true_begin_epoch(self, former, start_offset, now_ms)
    if former is None:
        self.log_end_offset = start_offset


def _after_any_reign(self: Leader, *args: Any, former: Leader | None = None, **more: Any) -> None:
    if former is not None:
        former.leader_epoch = more["leader_epoch"] - 1
    _true_init(self, *args, former=former, **more)


def _without_entry(self: Replica, state: Any, now: Instant) -> None:
    with patch(LeaderEpochs, assign=no)():
        _true_become_leader(self, state, now)


def _joins_at_once(
    self: Leader, follower: BrokerId, *, high_watermark: Offset, may_join: bool
) -> bool:
    del high_watermark
    start, self.start_offset = self.start_offset, Offset(0)
    try:
        return _true_maybe_expand(self, follower, high_watermark=Offset(0), may_join=may_join)
    finally:
        self.start_offset = start


def _joins_with_what_is_deleted(
    self: Leader, follower: BrokerId, *, high_watermark: Offset, may_join: bool
) -> bool:
    self.deleted_to = Offset(0)
    return _true_maybe_expand(self, follower, high_watermark=high_watermark, may_join=may_join)


def _rest(self: Shrinking) -> frozenset[BrokerId]:
    return self.members - self.leaving


def _any_version(
    self: Leader,
    members: Collection[BrokerId],
    partition_epoch: int,
    has_eligible: bool | None = None,
) -> bool:
    self.partition_epoch = min(self.partition_epoch, partition_epoch - 1)
    return _true_committed(self, members, partition_epoch, has_eligible)


def _answers_tell_all(
    self: Leader,
    members: Collection[BrokerId],
    partition_epoch: int,
    has_eligible: bool | None = None,
) -> bool:
    return _true_committed(self, members, partition_epoch, bool(has_eligible))


def _own_minimum(self: Leader) -> int:
    return min(self.min_in_sync, len(self.replicas))


def _any_refusal(self: Leader, *, definite: bool, **more: Any) -> bool:
    del definite
    return _true_refused(self, definite=True, **more)


def _closed(self: Leader, *, definite: bool, proposal: Any = None, is_open: bool = False) -> bool:
    del is_open
    return _true_refused(self, definite=definite, proposal=proposal)


def _silence_refuses(self: InSyncChanges, reason: str, now: Instant) -> None:
    for sent in list(self._sent.values()):
        sent.replica.in_sync_refused(ErrorCode.INELIGIBLE_REPLICA, now, sent.state)
    _true_failed(self, reason, now)


def _of_now(self: InSyncChanges, replica: HostedReplica, member: BrokerId) -> int:
    progress = replica.leader.progress.get(member) if replica.leader is not None else None
    if progress is None:
        return _true_epoch_of(self, replica, member)
    return progress.broker_epoch


def _registered_now(self: InSyncChanges, replica: HostedReplica, member: BrokerId) -> int:
    del replica
    broker = self._metadata.image.brokers.get(member)
    return -1 if broker is None else broker.epoch


def _may_join_unregistered(
    self: ReplicaHost, broker_id: BrokerId, broker_epoch: int, partition: TopicPartition
) -> bool:
    broker = self.metadata.image.brokers.get(broker_id)
    is_unknown = broker_epoch == NO_BROKER_EPOCH and broker is not None
    return is_unknown or _true_may_join(self, broker_id, broker_epoch, partition)


def _trusts_unknown(self: _Judge, broker: BrokerId, epoch: int, members: Any, brokers: Any) -> None:
    if epoch == UNKNOWN_BROKER_EPOCH:
        epoch = brokers.epochs.get(broker, epoch)
    _true_check_eligible(self, broker, epoch, members, brokers)


def _stays(self: Replicas, replica: Replica, state: Any, now: Instant) -> Any:
    if replica.is_leading and state.leader != self.host.broker_id:
        return None
    return _true_give_role(self, replica, state, now)


def _without_outsiders(
    self: Leader, high_watermark: Offset, log_end_offset: Offset, now_ms: int, **more: Any
) -> Offset:
    del more
    return _true_next_high_watermark(
        self,
        high_watermark,
        log_end_offset,
        now_ms,
        may_join=lambda broker: False,
    )


LEADING: Final = (
    Mutant(
        "wait-for-caught-up-outsiders",
        "The high watermark waits for who has caught up and is about to join (KAFKA-4485).",
        ("I-53",),
        patch(Leader, next_high_watermark=_without_outsiders),
        "needs a follower that is far away under steady load, while no other stumbles",
    ),
    Mutant(
        "laggards-leave",
        "Who has not caught up within replica.lag.time.max.ms leaves the in-sync set (KAFKA-1546).",
        ("I-53",),
        patch(Leader, maybe_shrink=no),
    ),
    Mutant(
        "wait-for-followers",
        "A record is committed when the whole in-sync set has it, not the leader alone (1.3).",
        ("I-14", "I-23", "I-28"),
        patch(Leader, next_high_watermark=_own_end),
    ),
    Mutant(
        "mark-never-back",
        "A leader's high watermark never goes back within an epoch (I-10).",
        ("I-10",),
        patch(LeaderRole, advance=_goes_anywhere),
    ),
    Mutant(
        "wait-for-unknown-followers",
        "A new leader knows nothing of its followers until they fetch (1.2).",
        ("I-15", "I-14", "I-23"),
        patch(Progress, begin_epoch=_knows_them),
    ),
    Mutant(
        "forget-older-reigns",
        "What a leader knew counts only if it led in the epoch just before (1.2).",
        ("I-15", "I-14"),
        patch(Leader, __init__=_after_any_reign),
    ),
    Mutant(
        "epoch-entry-at-election",
        "An epoch begins at the election, whether or not anything is written (KAFKA-7415).",
        ("I-03", "I-21", "I-23"),
        patch(Replica, become_leader=_without_entry),
    ),
    Mutant(
        "rest-below-the-minimum",
        "The high watermark rests below min.insync.replicas (KAFKA-15583, D-02).",
        ("I-17", "I-32"),
        policy(strict_min_isr=False),
    ),
    Mutant(
        "rest-while-others-are-eligible",
        "Nothing is committed without eligible leaders, whatever the leader's own minimum (D-13).",
        ("I-17", "I-32"),
        patch(Leader, effective_min_in_sync=property(_own_minimum)),
    ),
    Mutant(
        "answers-do-not-name-who-is-eligible",
        "After an answer that took members out, nothing is committed until the metadata tell who "
        "is eligible (D-13).",
        ("I-32", "I-17"),
        patch(Leader, committed=_answers_tell_all),
    ),
    Mutant(
        "join-from-epoch-start",
        "A replica joins with all that the log held when the epoch began (KAFKA-7128).",
        ("I-16", "I-14", "I-23"),
        policy(joins_at_epoch_start=False),
    ),
    Mutant(
        "join-with-everything",
        "A replica joins only with all that is committed and was there at the election (2.1).",
        ("I-16", "I-14"),
        patch(Leader, maybe_expand=_joins_at_once),
    ),
    Mutant(
        "join-without-what-is-deleted",
        "A replica joins only when it has deleted what a client was told is deleted (D-11).",
        ("I-27",),
        patch(Leader, maybe_expand=_joins_with_what_is_deleted),
    ),
    Mutant(
        "count-joining-replica",
        "A replica that was proposed is waited for at once: maximal in-sync set (KIP-497).",
        ("I-13", "I-14"),
        policy(counts_joining=False),
    ),
    Mutant(
        "count-leaving-replica",
        "A replica that is to leave is waited for until it has left (KIP-497).",
        ("I-13", "I-14"),
        patch(Shrinking, maximal=property(_rest)),
    ),
    Mutant(
        "newer-versions-only",
        "What the metadata said before never replaces what a leader knows now (KAFKA-14144).",
        ("I-13", "I-14"),
        patch(Leader, committed=_any_version),
    ),
    Mutant(
        "definite-refusals-only",
        "A refusal that leaves the outcome open does not end a proposal (2.1).",
        ("I-13", "I-14"),
        patch(Leader, refused=_any_refusal),
        "needs answers that come late, which the exhaustive search of the core tries",
    ),
    Mutant(
        "withdraw-what-is-open",
        "A refused proposal of which an earlier attempt was never answered may still come true "
        "(KIP-497).",
        ("I-13", "I-14"),
        patch(Leader, refused=_closed),
    ),
    Mutant(
        "silence-is-no-refusal",
        "A proposal that is not answered may have been carried out (KIP-497).",
        ("I-13", "I-14"),
        patch(InSyncChanges, _failed=_silence_refuses),
    ),
    Mutant(
        "may-join",
        "Who is dead, shuts down, or has registered anew is not proposed (KIP-841, KIP-903).",
        (),
        patch(ReplicaHost, may_join=yes),
        "the controller refuses it as well: see members-are-eligible",
    ),
    Mutant(
        "members-are-eligible",
        "Who is dead, shuts down, or has registered anew joins no in-sync set (KIP-841, KIP-903): "
        "neither leader nor controller looks.",
        ("I-16", "I-33", "I-14"),
        together(patch(ReplicaHost, may_join=yes), patch(_Judge, _check_eligible=nothing)),
    ),
    Mutant(
        "name-broker-epochs",
        "A proposal names the registration under which each member fetched (KIP-903).",
        ("I-16",),
        patch(InSyncChanges, _epoch_of=_registered_now),
    ),
    Mutant(
        "join-when-registered",
        "A process that has fetched without an epoch, since it has not heard of its registration "
        "yet, does not join by that fetch (KIP-903).",
        ("I-16",),
        together(
            patch(ReplicaHost, may_join=_may_join_unregistered),
            patch(_Judge, _check_eligible=_trusts_unknown),
        ),
    ),
    Mutant(
        "name-the-life-that-qualified",
        "A proposal names the registration in which the new member qualified, however late it is "
        "sent (KIP-903).",
        ("I-16",),
        patch(InSyncChanges, _epoch_of=_of_now),
    ),
    Mutant(
        "refuse-fetches-from-before-a-restart",
        "A fetch under an older broker epoch is not believed (KIP-903, D-04).",
        ("I-15",),
        together(
            patch(Leader, _check_broker_epoch=nothing),
            patch(ReplicaHost, is_stale=no),
        ),
        "needs fetches that overtake each other, which the exhaustive search of the core tries",
    ),
    Mutant(
        "fence-by-leader-epoch",
        "A request made for another leader epoch is refused (KIP-320).",
        ("I-40", "I-15", "I-14", "I-21"),
        patch(Replica, check_epoch=nothing),
    ),
    Mutant(
        "resign",
        "A leader that hears of another leader leads no more (1.2).",
        ("I-21", "I-09", "I-49"),
        patch(Replicas, _give_role=_stays),
    ),
)
