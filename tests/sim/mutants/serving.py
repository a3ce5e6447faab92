"""Rules towards clients: when to acknowledge, what to show, whom to wake."""

from __future__ import annotations

from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.node import fetch_reading, produce_fast_path
from strandline.node.commit_queue import CommitQueue
from strandline.node.fetch_reading import ConsumerReader, FollowerReader
from strandline.node.fetch_sessions import FetchContext, Fetched, FetchSessions
from strandline.node.follower_sessions import Followed, FollowerSession
from strandline.node.handlers import list_offsets
from strandline.node.handlers import produce as produce_handler
from strandline.node.handlers.list_offsets import OffsetForLeaderEpochHandler
from strandline.node.leader_role import LeaderRole
from strandline.node.produce_fast_path import ProduceFastPath
from strandline.node.purgatory import Purgatory, Watched
from strandline.node.replica import Replica
from strandline.records.batch import ATTRIBUTES_AT, CRC_AT
from strandline.replication.leader import Leader
from strandline.replication.replica_selection import ReplicaView
from strandline.types import NO_EPOCH, NO_OFFSET, Instant, Offset
from tests.sim.mutants.mutant import Mutant, nothing, patch, together

_ACKS_ALL: Final = -1

_true_await_commit = Replica.await_commit
_true_readable_end = Replica.readable_end
_true_append = produce_handler.ProduceHandler._append
_true_changed = Purgatory.changed
_true_learn = ProduceFastPath.learn
_true_look_up = OffsetForLeaderEpochHandler._look_up
_true_must_tell = FetchContext.must_tell
_true_read = ConsumerReader.read
_true_resolve = FetchSessions.resolve


class _Told(produce_fast_path._Waiting):
    """Answers at once, and does not wait for anything."""

    __slots__ = ()

    def __init__(self, path: Any, shape: Any, frame: bytes, now: Instant) -> None:
        super().__init__(path, shape, frame, now)
        path.fill(self._slot, frame, 0)

    def decided(self, code: ErrorCode, now: Instant) -> None:
        """Too late."""


def _told_at_once(self: Any, replica: Any, required: Offset, answer: Any, now: Instant) -> None:
    del self, replica, required, now
    answer.error_code = ErrorCode.NONE


def _learns_acks_all(
    self: ProduceFastPath, frame: memoryview, request: Any, replica: Any, joined: Any
) -> None:
    if request.body.acks == _ACKS_ALL:
        _true_learn(self, frame, request, replica, joined)


def _throws_one_of_five_away(
    self: Any, request: Any, replica: Any, data: Any, answer: Any, guard: Any, now: Instant
) -> Offset:
    """Which of them, their checksums say."""
    log = replica.check_leading() and replica.log
    checksum = bytes(data.records[CRC_AT:ATTRIBUTES_AT])
    if request.body.acks == 1 and int.from_bytes(checksum, "big") % 5 == 0:
        answer.base_offset, answer.log_start_offset = log.log_end_offset, log.log_start_offset
        end: Offset = log.log_end_offset
        return end
    required: Offset = _true_append(self, request, replica, data, answer, guard, now)
    return required


def _duplicates_at_once(
    self: Any, request: Any, replica: Any, data: Any, answer: Any, guard: Any, now: Instant
) -> Offset:
    """Which of them are duplicates, the log's end says: it stays where it was."""
    end = replica.log.log_end_offset
    required: Offset = _true_append(self, request, replica, data, answer, guard, now)
    return Offset(0) if replica.log.log_end_offset == end else required


def _of_any_leader(
    self: ConsumerReader, replica: Any, fetched: Fetched, *arguments: Any, **named: Any
) -> None:
    asked, fetched.current_leader_epoch = fetched.current_leader_epoch, NO_EPOCH
    try:
        _true_read(self, replica, fetched, *arguments, **named)
    finally:
        fetched.current_leader_epoch = asked


def _one_less(self: Replica, required: Offset, *more: Any, **named: Any) -> None:
    _true_await_commit(self, Offset(required - 1), *more, **named)


def _end_of_followers(self: Replica, isolation_level: int) -> Offset:
    if self.leader is None:
        return self.log.log_end_offset
    return _true_readable_end(self, isolation_level)


def _appendable(self: LeaderRole, *, acks_all: bool) -> None:
    del self, acks_all


def _all_is_well(self: LeaderRole) -> ErrorCode:
    del self
    return ErrorCode.NONE


def _to_the_end(self: Replica, isolation_level: int) -> Offset:
    del isolation_level
    return self.log.log_end_offset


def _log_end_for_epoch(self: OffsetForLeaderEpochHandler, topic: str, partition: Any) -> Any:
    answer = _true_look_up(self, topic, partition)
    if answer.error_code == ErrorCode.NONE and answer.end_offset != NO_OFFSET:
        replica = self._replicas.hosted(topic, partition.partition)
        answer.leader_epoch = partition.leader_epoch
        answer.end_offset = replica.log.log_end_offset
    return answer


def _three_too_much(self: OffsetForLeaderEpochHandler, topic: str, partition: Any) -> Any:
    answer = _true_look_up(self, topic, partition)
    if answer.error_code == ErrorCode.NONE and answer.end_offset != NO_OFFSET:
        answer.end_offset += 3
    return answer


def _untold(attribute: str, argument: str) -> Any:
    """A session that finds a change of this offset not worth telling."""

    def must_tell(self: FetchContext, fetched: Fetched, **facts: Any) -> bool:
        before = getattr(fetched, attribute)
        setattr(fetched, attribute, facts[argument])
        is_told = _true_must_tell(self, fetched, **facts)
        if not is_told:
            setattr(fetched, attribute, before)
        return is_told

    return must_tell


def _any_session_epoch(self: FetchSessions, *, session_id: int, epoch: int, **more: Any) -> Any:
    found = self._sessions.get(session_id)
    if found is not None and epoch > 0:
        epoch = found.epoch
    return _true_resolve(self, session_id=session_id, epoch=epoch, **more)


def _settles_early(self: FollowerReader, fetched: Followed, leader: Any, log: Any) -> None:
    del self
    fetched.noted_by = leader
    if fetched.session is not None and fetched.fetch_offset == log.log_end_offset:
        fetched.session.settle(fetched)


def _replicas_sleep(self: Purgatory, watched: Watched) -> None:
    if not isinstance(watched, Replica):
        _true_changed(self, watched)


def _others_sleep(self: Purgatory, watched: Watched) -> None:
    if isinstance(watched, Replica):
        _true_changed(self, watched)


def _own_start(self: Leader, log_start_offset: Offset, is_alive: Any) -> Offset:
    del self, is_alive
    return log_start_offset


def _of_the_living(self: LeaderRole) -> Offset:
    return self.state.low_watermark(self._log.offsets.log_start_saved, self._host.is_alive)


def _all_followers(leader: Leader, fetch_offset: Offset, rack_of: Any) -> Any:
    del fetch_offset
    for progress in leader.progress.values():
        yield ReplicaView(
            progress.broker_id,
            rack_of(progress.broker_id),
            progress.log_end_offset,
            progress.last_caught_up_ms,
        )


_NO_MINIMUM = patch(Leader, has_min_in_sync=property(lambda _: True))

SERVING: Final = (
    Mutant(
        "acknowledge-what-is-committed",
        "acks=all is answered when the high watermark has passed the records (3.3).",
        ("I-29", "I-28"),
        together(
            patch(produce_handler._Waiting, add=_told_at_once),
            patch(produce_fast_path, _Waiting=_Told),
        ),
    ),
    Mutant(
        "acknowledge-the-last-record",
        "acks=all waits for the last record of a batch, not for all but one.",
        ("I-40", "I-29", "I-28"),
        patch(Replica, await_commit=_one_less),
    ),
    Mutant(
        "duplicates-wait-for-the-commit",
        "A batch that is sent again is acknowledged when what it repeats is committed (KIP-98).",
        ("I-28", "I-29"),
        patch(produce_handler.ProduceHandler, _append=_duplicates_at_once),
    ),
    Mutant(
        "keep-what-one-has-acknowledged",
        "What a leader acknowledges alone (acks=1) it has appended, and keeps while it leads "
        "(3.3).",
        ("I-28", "I-29"),
        together(
            patch(ProduceFastPath, learn=_learns_acks_all),
            patch(produce_handler.ProduceHandler, _append=_throws_one_of_five_away),
        ),
    ),
    Mutant(
        "refuse-below-the-minimum",
        "acks=all is refused before the append while too few replicas are in sync (3.3).",
        (),
        patch(LeaderRole, _check_appendable=_appendable),
        "the high watermark rests then, and nothing is acknowledged: see rest-below-the-minimum",
    ),
    Mutant(
        "acknowledge-by-the-minimum",
        "acks=all is not answered with success unless enough replicas are in sync: neither before "
        "the append, nor by the high watermark, nor after.",
        ("I-17", "I-28"),
        together(_NO_MINIMUM, patch(LeaderRole, outcome=property(_all_is_well))),
    ),
    Mutant(
        "condemn-waiting-produces",
        "Who waits at a deposed leader is told so, even if it leads again at once (KAFKA-13218).",
        ("I-28", "I-40"),
        patch(CommitQueue, fail_all=nothing),
    ),
    Mutant(
        "read-to-the-mark",
        "Consumers read up to the high watermark (3.4).",
        ("I-26",),
        patch(Replica, readable_end=_to_the_end),
    ),
    Mutant(
        "read-to-the-followers-mark",
        "Consumers of a follower read up to the high watermark that it knows (KIP-392).",
        ("I-26",),
        patch(Replica, readable_end=_end_of_followers),
    ),
    Mutant(
        "fence-consumers",
        "A consumer that goes by another leader epoch is refused (KIP-320).",
        ("I-25", "I-26", "I-40"),
        patch(ConsumerReader, read=_of_any_leader),
    ),
    Mutant(
        "list-the-mark",
        "The latest offset that a client is told is the high watermark (3.4).",
        ("I-26", "I-38"),
        patch(list_offsets, _CONSUMER=-99),
    ),
    Mutant(
        "no-end-before-it-is-known",
        "A new leader tells no end before it knows all that was committed (KIP-207).",
        ("I-38",),
        patch(Replica, is_end_unknown=property(lambda _: False)),
    ),
    Mutant(
        "ends-of-epochs",
        "OffsetForLeaderEpoch says where that epoch ended, not where the log does (KIP-320).",
        ("I-55",),
        patch(OffsetForLeaderEpochHandler, _look_up=_log_end_for_epoch),
    ),
    Mutant(
        "exact-ends-of-epochs",
        "OffsetForLeaderEpoch says exactly where an epoch ended (KIP-320).",
        ("I-55",),
        patch(OffsetForLeaderEpochHandler, _look_up=_three_too_much),
    ),
    Mutant(
        "send-readers-to-complete-replicas",
        "A consumer is sent only to a replica that is in sync and has its offset (KIP-392).",
        (),
        patch(fetch_reading, readable_followers=_all_followers),
        "a consumer that is refused asks the leader again: it loses time, and no record",
    ),
    Mutant(
        "tell-the-mark",
        "A fetch session tells a high watermark that has changed (KIP-227).",
        ("I-42", "I-49"),
        patch(FetchContext, must_tell=_untold("told_high_watermark", "high_watermark")),
    ),
    Mutant(
        "tell-the-log-start",
        "A fetch session tells a log start that has changed (KIP-227).",
        ("I-42", "I-51"),
        patch(FetchContext, must_tell=_untold("told_log_start_offset", "log_start_offset")),
    ),
    Mutant(
        "next-session-epoch-only",
        "A fetch session takes exactly the next request (KIP-227).",
        (),
        patch(FetchSessions, resolve=_any_session_epoch),
        "requests of a session come over one connection in their order, and a lost one ends it",
    ),
    Mutant(
        "sessions-hear-all-news",
        "What happens in a quiet partition is told in the next answer of its session (I-42).",
        ("I-42", "I-40", "I-49"),
        patch(Followed, on_change=nothing),
    ),
    Mutant(
        "settle-when-all-is-told",
        "A follower's session leaves a partition out only when it was told everything (I-42).",
        ("I-42", "I-49"),
        patch(FollowerReader, _maybe_settle=_settles_early),
    ),
    Mutant(
        "sessions-per-registration",
        "A fetch session of a former registration of the follower is looked at anew (KIP-903).",
        (),
        patch(FollowerSession, identify=nothing),
        "a follower begins a new session under a new registration, and each fetch is looked at: "
        "see refuse-fetches-from-before-a-restart",
    ),
    Mutant(
        "wake-those-who-wait-for-a-commit",
        "Who waits for the high watermark is looked at when it has moved (I-40).",
        ("I-40",),
        patch(Purgatory, changed=_replicas_sleep),
    ),
    Mutant(
        "wake-followers",
        "Who waits for the log's end, or for deleted records, is looked at when it moves (I-40).",
        ("I-40",),
        patch(Purgatory, changed=_others_sleep),
    ),
    Mutant(
        "low-watermark-of-all",
        "DeleteRecords is answered when all live replicas have deleted the records (KIP-107).",
        ("I-27",),
        patch(Leader, low_watermark=_own_start),
    ),
    Mutant(
        "low-watermark-of-the-electable",
        "DeleteRecords waits for replicas that are away and may be elected when they are back "
        "(KIP-107, KIP-966).",
        ("I-27",),
        patch(LeaderRole, low_watermark=property(_of_the_living)),
    ),
)
