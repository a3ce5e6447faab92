"""Rules of logs on disks: what is durable when, and what is believed after a crash."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from strandline.cluster.znodes import NO_PREVIOUS_EPOCH, BrokerNode
from strandline.errors import StorageError
from strandline.node.background import Background
from strandline.node.log_directories import LogDirectories
from strandline.node.logs import Logs
from strandline.storage import log_directory
from strandline.storage.clean_shutdown import CleanShutdown, take_marker, write_marker
from strandline.storage.files import Files
from strandline.storage.flush_plan import Closing, FlushPlan
from strandline.storage.leader_epochs import EpochEntry, EpochsToWrite, LeaderEpochs, with_entry
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_flusher import LogFlusher
from strandline.storage.log_offsets import LogOffsets
from strandline.storage.producer_snapshot import Reload
from strandline.storage.producer_state import ProducerStates
from strandline.storage.recovery import Recovery
from strandline.storage.recovery_report import RecoveryReport
from strandline.storage.segment import Segment
from strandline.storage.segments import Segments
from strandline.storage.time_index import TimeIndex
from strandline.storage.transaction_index import AbortedTransaction
from strandline.storage.truncation import Truncation
from strandline.storage.verify import reading
from strandline.types import NO_EPOCH, Instant, LeaderEpoch, Offset, TopicPartition
from tests.sim.mutants.mutant import Mutant, nothing, patch, together, yes

_true_add_largest = TimeIndex.add_largest
_true_adopt = LeaderEpochs.adopt
_true_closing = LogDirectory.closing
_true_flush_plan = LogFlusher.flush_plan
_true_index_abort = Segments.index_abort
_true_log_synced = Background.log_synced
_true_mark_flushed = LogFlusher.mark_flushed
_true_open = Logs.open
_true_recover_segment = Recovery._recover_segment
_true_run = Recovery.run


def _left_there(files: Files, directory: str) -> CleanShutdown | None:
    found = take_marker(files, directory)
    if found is not None:
        since = -1 if found.broker_epoch is None else found.broker_epoch
        write_marker(files, directory, CleanShutdown(since, found.lives))
    return found


def _of_its_own(self: LogDirectory[Log], shutdown: CleanShutdown, *, at_once: int = 1) -> Closing:
    return _true_closing(self, replace(shutdown, logs=self.held), at_once=at_once)


def _since_then(self: BrokerNode, epoch: int) -> bool:
    return NO_PREVIOUS_EPOCH < self.previous_epoch <= epoch


def _believes_the_mark(self: Recovery) -> RecoveryReport:
    report = _true_run(self)
    offsets = self._log.offsets
    offsets.high_watermark = Offset(max(offsets.high_watermark, self._found.high_watermark))
    return report


def _promises_now(self: LogFlusher, up_to: Offset | None = None) -> FlushPlan | None:
    plan = _true_flush_plan(self, up_to)
    if plan is not None:
        self._offsets.recovery_point = plan.up_to
    return plan


def _without_names(self: LogFlusher, up_to: Offset | None = None) -> FlushPlan | None:
    plan = _true_flush_plan(self, up_to)
    return None if plan is None else replace(plan, directories=())


def _heedless(self: Background, token: int, result: bool | StorageError, now: Instant) -> None:
    _true_log_synced(self, token, True if isinstance(result, StorageError) else result, now)


def _cut_in_memory(self: Truncation, offset: Offset, now_ms: int) -> Offset:
    last = self._segments.last
    end = last.truncate_to(offset)
    last.open_for_append(self._settings.config, end)
    if last is not self._segments.active or last.size == 0:
        self._roller.start_segment(last, now_ms)
    return end


def _without_epochs(self: Recovery, segment: Segment) -> Any:
    with patch(LeaderEpochs, epoch_for_offset=_no_epoch)():
        return _true_recover_segment(self, segment)


def _no_epoch(*_: Any) -> LeaderEpoch:
    return NO_EPOCH


def _without_its_name(self: Segments, segment: Segment, aborted: AbortedTransaction) -> None:
    synced = segment.synced_names
    _true_index_abort(self, segment, aborted)
    segment.synced_names = synced


def _all_named(self: LogFlusher, plan: FlushPlan, now_ms: int) -> bool:
    moved = _true_mark_flushed(self, plan, now_ms)
    for segment in plan.segments if plan.directories else ():
        segment.synced_names = True
    return moved


def _assigned_in_memory(
    self: LeaderEpochs, epoch: Any, start_offset: Offset, *, later: bool = False
) -> bool:
    del later
    changed = with_entry(self._entries, EpochEntry(epoch, start_offset))
    if changed is None:
        return False
    self._written_latest = epoch
    self._publish(changed)
    return True


def _adopted_anyway(self: LeaderEpochs, written: EpochsToWrite) -> bool:
    return _true_adopt(self, written._replace(version=self._version))


def _producers_stay(self: ProducerStates, _: Offset, log_end_offset: Offset, __: int) -> Reload:
    self.end_offset = log_end_offset
    return Reload(log_end_offset, ())


def _from_any_snapshot(
    self: ProducerStates, log_start_offset: Offset, log_end_offset: Offset, now_ms: int
) -> Reload:
    if log_end_offset == self.end_offset:
        self.advance_log_start_to(log_start_offset)
        return Reload(self.end_offset, ())
    self._forget_all()
    damaged = self._load_newest(log_start_offset, now_ms)
    return Reload(self.end_offset, damaged)


def _no_producers(self: Recovery, end: Offset) -> None:
    self._log.producers.end_offset = end


def _from_memory_only(self: LogDirectory[Any], partitions: Iterable[TopicPartition]) -> None:
    for partition in partitions:
        self.logs.pop(partition, None)


def _saved_in_memory(
    self: Logs, directory: Any, raised: Sequence[LogOffsets]
) -> Sequence[LogOffsets]:
    del self, directory
    for each in raised:
        each.start_saved()
    return raised


def _of_any_topic(self: Logs, partition: Any, topic_id: Any, *args: Any, **more: Any) -> Any:
    directory = self.directory_of(partition)
    if directory is not None:
        directory.logs[partition].location.topic_id = topic_id
    return _true_open(self, partition, topic_id, *args, **more)


def _as_noted(self: Recovery, end: Offset) -> Offset:
    return min(self._found.recovery_point, end) if self._found.needs_recovery else end


_NO_SYNC = patch(Truncation, _cut_last_segment=_cut_in_memory)
_STALE = patch(Recovery, _recover_segment=_without_epochs)


def _an_hour_early(self: TimeIndex, timestamp: int, offset: int, **more: Any) -> None:
    _true_add_largest(self, timestamp - 3_600_000, offset, **more)


RECOVERING: Final = (
    Mutant(
        "name-times-as-they-are",
        "A time index names the largest time up to an offset, and none that is older (4.3).",
        ("I-04", "I-56"),
        patch(TimeIndex, add_largest=_an_hour_early),
    ),
    Mutant(
        "recovery-trusts-everything",
        "After an unclean shutdown every batch from the recovery point on is read and checked; "
        "what follows a bad one goes (1.9).",
        ("I-02", "I-46", "I-47"),
        patch(Recovery, _first_to_recover=nothing),
    ),
    Mutant(
        "check-what-is-recovered",
        "Recovery keeps no batch that does not match its checksum (1.9).",
        ("I-47", "I-02", "I-46"),
        patch(reading, verify_crc=yes),
    ),
    Mutant(
        "no-gap-in-a-recovered-log",
        "Recovery ends where a batch is missing, also if later ones are there (1.9, F-52).",
        ("I-35", "I-02", "I-46"),
        patch(Recovery, _gap=nothing),
    ),
    Mutant(
        "clean-once",
        "The marker of a clean shutdown is gone before anything is written (KAFKA-10471).",
        ("I-07", "I-46", "I-33", "I-02"),
        patch(log_directory, take_marker=_left_there),
    ),
    Mutant(
        "remember-whose-records-they-are",
        "A disk that comes back from an older copy is not complete (F-12).",
        ("I-23", "I-14", "I-28", "I-32"),
        patch(BrokerNode, holds=_since_then),
    ),
    Mutant(
        "mark-the-logs-of-all-directories",
        "A broker without one of its directories is not complete for what lay there (note 0011).",
        ("I-32", "I-23", "I-28"),
        patch(LogDirectory, closing=_of_its_own),
    ),
    Mutant(
        "know-unheard-registrations",
        "A broker that stops before it has heard of its registration holds what it held under it.",
        ("I-23", "I-25", "I-28", "I-29"),
        patch(LogDirectories, unheard_ms=property(nothing)),
    ),
    Mutant(
        "mark-within-the-recovered-log",
        "A checkpointed high watermark counts as far as the log goes (1.9).",
        ("I-01",),
        patch(Recovery, run=_believes_the_mark),
    ),
    Mutant(
        "recover-leader-epochs",
        "What the table of leader epochs lacks is taken from the batches (F-55).",
        ("I-03", "I-21"),
        patch(Recovery, _complete_leader_epochs=nothing),
        "a log start never falls back (write-log-starts), so only a lost file needs it (F-55)",
    ),
    Mutant(
        "recover-producers",
        "What is known of producers is made anew from snapshots and batches (KIP-98).",
        ("I-05", "I-30"),
        patch(Recovery, _load_producers=_no_producers),
    ),
    Mutant(
        "no-snapshot-beyond-the-log",
        "Producer snapshots of offsets that the log does not have are not used (KAFKA-12153).",
        ("I-05", "I-30"),
        patch(ProducerStates, truncate_and_reload=_from_any_snapshot),
    ),
    Mutant(
        "producers-follow-truncation",
        "A truncation takes back what is known of producers, too (KAFKA-12153).",
        ("I-05", "I-30"),
        patch(ProducerStates, truncate_and_reload=_producers_stay),
    ),
    Mutant(
        "sync-before-promising",
        "The recovery point moves when everything below it is synced, not before (I-07).",
        ("I-07", "I-46"),
        patch(LogFlusher, flush_plan=_promises_now),
    ),
    Mutant(
        "sync-the-names-too",
        "A new segment is durable with its name: its directory is synced (4.7).",
        ("I-07", "I-46"),
        patch(LogFlusher, flush_plan=_without_names),
    ),
    Mutant(
        "name-abort-indexes",
        "A transaction index that comes behind the flush of its segment is durable with its name.",
        ("I-04", "I-34"),
        together(
            patch(Segments, index_abort=_without_its_name),
            patch(LogFlusher, mark_flushed=_all_named),
        ),
    ),
    Mutant(
        "failed-sync-is-final",
        "After a failed sync nothing is taken for durable (F-45).",
        ("I-07", "I-46"),
        patch(Background, log_synced=_heedless),
    ),
    Mutant(
        "sync-what-was-cut",
        "A truncation is durable before anything is written in its place (I-21).",
        (),
        _NO_SYNC,
        "what comes back is of an epoch that the table gives to another: see what-was-cut-is-gone",
    ),
    Mutant(
        "recover-no-stale-batch",
        "Recovery ends where a batch is older than the leader epoch that was noted for it (I-21).",
        (),
        _STALE,
        "what was cut is durably cut, unless the process ends in between: see what-was-cut-is-gone",
    ),
    Mutant(
        "what-was-cut-is-gone",
        "What a follower has cut does not come back under the epoch of its new leader (I-21).",
        ("I-21", "I-03", "I-46"),
        together(_NO_SYNC, _STALE),
    ),
    Mutant(
        "sync-a-recovered-end",
        "After an unclean shutdown nothing of the last segment counts as synced (I-02).",
        ("I-02", "I-21", "I-46"),
        patch(Recovery, _recovery_point=_as_noted, _sync_last=nothing),
    ),
    Mutant(
        "recovery-point-falls",
        "A truncation takes the recovery point back (4.8).",
        ("I-02", "I-07", "I-46"),
        patch(LogOffsets, _lower_recovery_point_to=nothing),
    ),
    Mutant(
        "write-what-fell",
        "Offsets that a truncation has lowered are written down before new records come (4.8).",
        ("I-07", "I-46", "I-21"),
        patch(Logs, save_lowered_offsets=nothing),
    ),
    Mutant(
        "epochs-are-durable",
        "The beginning of a leader epoch is durable before the recovery point passes its records.",
        ("I-03", "I-21"),
        patch(LeaderEpochs, assign=_assigned_in_memory),
    ),
    Mutant(
        "no-late-epochs",
        "A table of leader epochs that was cut while it was written does not come into force.",
        ("I-03", "I-02", "I-21", "I-46"),
        patch(LeaderEpochs, adopt=_adopted_anyway),
    ),
    Mutant(
        "write-log-starts",
        "Records are deleted when that is written down, not only known (I-27).",
        ("I-27",),
        patch(Logs, _save_log_starts=_saved_in_memory),
    ),
    Mutant(
        "tables-forget-deleted-logs",
        "The tables of a log directory forget a deleted partition (4.2).",
        ("I-27", "I-28", "I-46"),
        patch(LogDirectory, forget=_from_memory_only),
    ),
    Mutant(
        "logs-belong-to-topics",
        "The log of a deleted topic is not one of a new topic of that name (KIP-516).",
        ("I-21", "I-29", "I-34"),
        together(patch(LogDirectories, set_aside=nothing), patch(Logs, open=_of_any_topic)),
    ),
)
