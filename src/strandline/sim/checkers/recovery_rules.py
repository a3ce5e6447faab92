"""A process must recover the logs of the process before it, minus what a crash may take.

I-46: after a kill nothing is missing; after a power cut the log is a prefix of what it was, whole
batch by whole batch, and has at least what was below the recovery point. I-05: what the log
remembers of producers is what a scan of its batches says.

A log may come back with older records at its front: its log start is written down now and then
only, and removed segments whose removal was not durable are there again.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from strandline.records.batch import CONTROL_BIT, LOG_OVERHEAD, SEQUENCE_MAX
from strandline.sim.checkers.batches import Writer, header_fields, peek
from strandline.sim.checkers.compaction_rules import CompactionRules
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.marks import CUTS, LOG_START, RECOVERY_POINT
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.violations import Findings
from strandline.storage.directory_names import DirectoryKind, parse_directory_name
from strandline.types import NO_SEQUENCE, BrokerId, ProducerId

if TYPE_CHECKING:
    from strandline.sim.machine import Machine
    from strandline.sim.observer import Ending
    from strandline.storage.producer_entry import ProducerEntry

BATCHES_REMEMBERED = 5


class LastKnownState:
    """What a process left behind of one log when it ended.

    It may have died in the middle of an event, before the checkers saw it: then more is on disk
    than the model knows (`may_have_more`), or a truncation is half done (`was_cutting`).
    """

    def __init__(self, model: LogModel, how: Ending) -> None:
        """To be made while the node can still be looked at."""
        log = model.log
        self.model = model
        self.how: Ending = how
        self.was_cutting = log.offsets.truncations != model.mark[CUTS]
        self.may_have_more = model.is_behind()
        self.had_failed = log.failure is not None
        self.log_start = max(log.log_start_offset, model.mark[LOG_START])
        self.recovery_point = min(log.recovery_point, model.mark[RECOVERY_POINT])

    def worsen(self, how: Ending) -> None:
        """The machine met with another end before a process took the log up again."""
        if how in ("power", "swap") and self.how != "swap":
            self.how = how


class RecoveryRules:
    """See the module."""

    def __init__(self, findings: Findings, compaction: CompactionRules) -> None:
        self.latest_ms: dict[BrokerId, int] = {}
        """The latest time that the wall clock of a broker has ever shown it: by that time it may
        have forgotten producers, even if the clock was set back since."""
        self._findings = findings
        self._compaction = compaction

    def check_recovered(
        self, partition: PartitionModel, model: LogModel, before: LastKnownState
    ) -> None:
        """A process has loaded a log; `before` is what the last one had."""
        self._findings.counters["recoveries"] += 1
        model.start_fell = model.log.log_start_offset < before.log_start or before.model.start_fell
        former = before.model
        if model.is_compacted:
            is_same = before.how != "power" and not (before.was_cutting or before.had_failed)
            latest_ms = self.latest_ms.get(model.broker_id, 0)
            self._compaction.check_recovered(
                model, former, latest_ms, before.log_start, is_same=is_same
            )
        self._findings.counters["lossy recoveries"] += model.end < former.end
        if before.was_cutting or before.had_failed:
            return
        self._check_prefix(partition, model, before)
        needed = former.end
        if before.how == "power":
            needed = min(before.recovery_point, former.end)
        elif before.how == "swap":
            needed = 0
        needed = former.content_end(needed)
        if model.log.log_end_offset < needed:
            self._findings.add(
                "I-46",
                f"{model} came back after {_words(before)} and ends at "
                f"{model.log.log_end_offset}, but everything below {needed} was to survive",
                partition.at,
            )

    def _check_prefix(
        self, partition: PartitionModel, model: LogModel, before: LastKnownState
    ) -> None:
        former = before.model
        newest = model.below(former.end)
        if (
            newest is not None
            and newest.next_offset > before.log_start
            and not former.holds(newest)
        ):
            problem = f"with {newest}, which it did not have there before"
        elif model.end > max(former.end, before.log_start) and not before.may_have_more:
            problem = f"with {model.batches[-1]}, but had ended at {former.end} before"
        else:
            return
        self._findings.add(
            "I-46", f"{model} came back after {_words(before)} {problem}", partition.at
        )

    def check_missing(
        self, partition: PartitionModel, before: LastKnownState, machine: Machine
    ) -> bool:
        """A process has started, and a log that was there before is not. Returns whether it may
        come back: its disk fails."""
        state = partition.state
        if before.how == "swap" or before.had_failed or state is None:
            return False
        directory = before.model.log.directory
        if machine.disk.peek(f"{directory}/partition.metadata") is not None:
            return True
        if before.model.broker_id not in state.replicas or _lies_aside(machine, directory):
            return False  # it is assigned elsewhere, or was when the process looked
        if before.recovery_point > 0 and before.model.batches:
            self._findings.add(
                "I-46",
                f"{before.model}, whose log was durable below {before.recovery_point}, is gone "
                f"after {_words(before)}",
                partition.at,
            )
        return False

    # -- Producers ---------------------------------------------------------------------------

    def check_producers(self, model: LogModel) -> None:
        """I-05: compare what is remembered of producers with what the batches say."""
        found = producers_in(model)
        states, start = model.log.producers, model.log.log_start_offset
        now_ms = self.latest_ms.get(model.broker_id, 0)
        for producer_id, (epoch, batches, newest_ms) in found.items():
            entry = states.active.get(ProducerId(producer_id))
            last = batches[-1] if batches else (NO_SEQUENCE, -1)
            first = model.bases[0] if model.bases else model.log.log_end_offset
            if entry is not None and (
                # Only the end of its transaction is left; its batches are deleted, and remembered.
                (not batches and entry.last_offset < first)
                # Or a start that read from the log start on has seen no more than that end.
                or (entry.last_offset < 0 and last[1] < start)
            ):
                last = (entry.last_sequence, entry.last_offset)
            if entry is None:
                # One that is idle, or whose records are all deleted, may be forgotten.
                if last[1] >= start and now_ms - newest_ms < states.expiration_ms:
                    self._add(model, f"does not know producer {producer_id}")
            elif (entry.epoch, entry.last_sequence, entry.last_offset) != (
                epoch,
                *last,
            ) and not _outlived(model, entry):
                self._add(
                    model,
                    f"remembers epoch {entry.epoch}, sequence {entry.last_sequence} and offset "
                    f"{entry.last_offset} of producer {producer_id}, but its batches say epoch "
                    f"{epoch}, sequence {last[0]} and offset {last[1]}",
                )
            elif not model.is_compacted and not {
                # Batches that retention has removed are still remembered.
                offset
                for offset in _offsets(entry.batches)
                if offset >= model.bases[0]
            } <= {offset for _, offset in batches}:
                self._add(
                    model,
                    f"remembers batches of producer {producer_id} that end at "
                    f"{_offsets(entry.batches)}, but its log has {list(batches)}",
                )
        for producer_id, entry in states.active.items():
            ahead = entry.last_offset >= model.log.log_end_offset
            if ahead or (
                producer_id not in found
                and model.bases
                and entry.last_offset >= model.bases[0]
                and not _outlived(model, entry)
            ):
                self._add(
                    model,
                    f"remembers that producer {producer_id} wrote up to {entry.last_offset}, but "
                    f"no batch says so",
                )

    def _add(self, model: LogModel, what: str) -> None:
        self._findings.add("I-05", f"{model} {what}", model.at)


def _outlived(model: LogModel, entry: ProducerEntry) -> bool:
    """Whether what is remembered last of a producer was compacted away, since there were batches
    behind it then, which the log has lost with its end since. A snapshot from before tells."""
    writer = Writer(entry.producer_id, entry.epoch, entry.last_sequence)
    return model.is_compacted and model.was_followed(writer, entry.last_offset)


def _lies_aside(machine: Machine, directory: str) -> bool:
    """Whether a start has kept the partition's log as a stray."""
    above, _, name = directory.rpartition("/")
    with machine.disk.unobserved():
        return any(
            each.startswith(f"{name}.") and parse_directory_name(each).kind is DirectoryKind.STRAY
            for each in machine.disk.files.list_directory(above)
        )


def producers_in(model: LogModel) -> dict[int, tuple[int, deque[tuple[int, int]], int]]:
    """Of every producer in the log: its epoch, its last (sequence, offset)s, its newest time."""
    found: dict[int, tuple[int, deque[tuple[int, int]], int]] = {}
    for segment in model.log.segments.all:
        data, position = peek(segment.log, 0, segment.size), 0
        while (fields := header_fields(data, position)) is not None:
            position += fields[1] + LOG_OVERHEAD
            producer_id, epoch, sequence = fields[9], fields[10], fields[11]
            if producer_id < 0:
                continue
            known = found.get(producer_id)
            if known is None or known[0] != epoch:
                known = (epoch, deque(maxlen=BATCHES_REMEMBERED), 0)
            if fields[5] & CONTROL_BIT:
                # The end of a transaction may bring the epoch of the next one.
                found[producer_id] = (epoch, known[1], fields[8])
                continue
            last = NO_SEQUENCE if sequence < 0 else (sequence + fields[6]) & SEQUENCE_MAX
            known[1].append((last, fields[0] + fields[6]))
            found[producer_id] = (epoch, known[1], fields[8])
    return found


def _offsets(batches: deque[tuple[int, int, int, int]]) -> list[int]:
    return [batch[1] for batch in batches]


def _words(before: LastKnownState) -> str:
    return {"kill": "a kill", "power": "a power cut", "stop": "a clean stop"}.get(
        before.how, f"its end ({before.how})"
    )
