"""Rules of share groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.node.sharing import leading
from strandline.node.sharing.leading import (
    READ_UNCOMMITTED,
    LedSharePartition,
    LedSharePartitions,
    Told,
)
from strandline.sharing.answer import Part
from strandline.sharing.coordinator import ShareCoordinator
from strandline.sharing.effects import Effect
from strandline.sharing.partition import SharePartition
from strandline.sharing.records import ShareKey
from strandline.sharing.runs import DONE, RecordState, StateBatch, Status
from strandline.sharing.shard import Shard
from strandline.sharing.values import AckBatch
from strandline.types import Instant, TopicId
from tests.sim.mutants.mutant import Mutant, nothing, patch

_true_delete = ShareCoordinator._delete
_true_available = Status.__dict__["is_available"].fget


def _unlocked(self: Status) -> bool:
    is_acquired = self.state is RecordState.ACQUIRED and not self.write
    return is_acquired or bool(_true_available(self))


def _no_batches(batches: Iterable[Any]) -> tuple[StateBatch, ...]:
    del batches
    return ()


def _behind_what_is_held(self: SharePartition, write_id: int) -> int:
    for run in self._runs:
        is_over = run.status.state in DONE or run.status.state is RecordState.ACQUIRED
        if not is_over or run.status.write not in (0, write_id):
            return run.first
    return self._runs.end + 1


def _forgotten(
    self: LedSharePartitions,
    led: LedSharePartition,
    member_id: str,
    batches: Sequence[AckBatch],
    told: Told,
    now: Instant,
) -> None:
    del self, led, member_id, batches
    told(ErrorCode.NONE, now)


def _uncommitted(self: LedSharePartitions, group_id: str) -> int:
    del self, group_id
    return READ_UNCOMMITTED


def _begun(
    self: LedSharePartitions,
    led: LedSharePartition,
    start: int,
    batches: Sequence[StateBatch],
    now: Instant,
) -> None:
    log = led.replica.log
    state = SharePartition.loaded(
        start, batches, log_start=log.log_start_offset, log_end=log.log_end_offset
    )
    self._serve(led, state, now)


def _gone_of_loaded(self: ShareCoordinator, ids: Iterable[TopicId], now: Instant) -> list[Effect]:
    gone = frozenset(ids)
    for shard in self._loaded():
        self._end_states(shard, gone, now)
    return self._drain()


def _deleted_already(
    self: ShareCoordinator, shard: Shard, key: ShareKey, item: Any, part: Part, now: Instant
) -> None:
    if shard.current(key) is None:
        part()
        return
    _true_delete(self, shard, key, item, part, now)


SHARING: Final = (
    Mutant(
        "one-member-at-a-time",
        "A record that a member of a share group has is given to no other one (KIP-932).",
        ("I-59",),
        patch(Status, is_available=property(_unlocked)),
    ),
    Mutant(
        "load-share-states",
        "A new leader knows what members acknowledged at the one before (KIP-932).",
        ("I-59",),
        patch(leading, stored_batches=_no_batches),
    ),
    Mutant(
        "start-before-what-is-held",
        "A share group starts before the first record that is not done (KIP-932).",
        ("I-59",),
        patch(SharePartition, _start_after=_behind_what_is_held),
    ),
    Mutant(
        "acknowledgements-count",
        "What a member accepted is not given to it, or another one, again (KIP-932).",
        ("I-59",),
        patch(LedSharePartitions, acknowledge=_forgotten),
    ),
    Mutant(
        "lost-records-have-no-state",
        "What a log has lost is not acknowledged: its state is ended before a group reads on.",
        ("I-59",),
        patch(LedSharePartitions, _begin=_begun),
    ),
    Mutant(
        "states-go-with-their-topics",
        "The states of a topic that is deleted while a coordinator loads go as well (KIP-932).",
        ("I-59",),
        patch(ShareCoordinator, topics_deleted=_gone_of_loaded),
    ),
    Mutant(
        "end-states-before-telling",
        "That a state has ended is told when that is committed, also to one who asks again.",
        ("I-59",),
        patch(ShareCoordinator, _delete=_deleted_already),
    ),
    Mutant(
        "locks-end",
        "A record that a member forgets is given to another one when its lock is over (KIP-932).",
        ("I-59",),
        patch(SharePartition, _let_go=nothing, next_deadline=nothing),
    ),
    Mutant(
        "share-what-is-decided",
        "Members of a share group that reads committed records are given nothing undecided and "
        "nothing aborted (KIP-932).",
        ("I-34",),
        patch(LedSharePartitions, isolation_of=_uncommitted),
    ),
)
