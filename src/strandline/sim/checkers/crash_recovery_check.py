"""Recovers a broker's logs from copies of its disk, as if the broker had crashed just now.

A copy as a kill would leave it must give every log back whole; a copy as a power cut would leave it
must give a prefix with everything below the recovery point. Recovering a second time, after the
first was cut short at some operation or was finished, must give what the first gave. The broker and
its disk are not touched (I-45, I-46).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias
from zlib import crc32

from strandline.node.log_directories import progress_of
from strandline.sim.checkers.batches import peek
from strandline.sim.checkers.hosting import Hosted
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.marks import mark_without_role
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.violations import Findings
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory
from strandline.storage.log_to_load import LogToLoad
from strandline.storage.memory_files import MemoryFiles, ProcessEnded
from strandline.types import TopicPartition

if TYPE_CHECKING:
    from strandline.sim.machine import Machine

_HARMLESS: Final = frozenset({"read", "list", "examine"})

OPERATIONS_MAX: Final = 60
"""A recovery is cut short at one of so many operations, if it takes that many."""

Logs: TypeAlias = dict[TopicPartition, Log]


class CrashRecoveryCheck:
    """See the module."""

    def __init__(self, findings: Findings, random: Random) -> None:
        self._findings = findings
        self._random = random

    def check(self, machine: Machine, hosted: Sequence[Hosted]) -> None:
        """Rehearse the ends of one broker."""
        alive = [(model, partition) for model, partition in hosted if model.log.failure is None]
        after_kill = machine.disk.image()
        found = self._recovered(machine, after_kill)
        for model, partition in alive:
            self._compare(model, partition, found, model.log.log_end_offset, "a kill")
        after_power_cut = machine.disk.image("any", self._random)
        cut_short = after_power_cut.kill_clone()
        found = self._recovered(machine, after_power_cut)
        for model, partition in alive:
            self._compare(model, partition, found, model.log.recovery_point, "a power cut")
        self._recover_again(machine, cut_short, found, alive)

    def _compare(
        self,
        model: LogModel,
        partition: PartitionModel,
        found: Logs,
        needed: int,
        cause: str,
    ) -> None:
        """I-46 for one log."""
        self._findings.counters["rehearsals"] += 1
        log = found.get(model.at)
        if log is None:
            if needed > 0:
                self._findings.add("I-46", f"{model} would be gone after {cause}", model.at)
            return
        after = LogModel(model.broker_id, log, partition.batches, self._findings)
        after.mark = mark_without_role(log)  # what lies below the log start is read with other eyes
        after.read_anew()
        newest = after.below(model.end)
        needed = model.content_end(needed)
        if log.log_end_offset < needed:
            problem = f"end at {log.log_end_offset}, but everything below {needed} is to survive"
        elif after.end > max(model.end, model.log_start):
            problem = f"have {after.batches[-1]}, but ends at {model.end} now"
        elif (
            newest is not None and newest.next_offset > model.log_start and not model.holds(newest)
        ):
            problem = f"have {newest}, which it does not have there now"
        else:
            return
        self._findings.add("I-46", f"{model} would after {cause} {problem}", model.at)

    def _recover_again(
        self, machine: Machine, files: MemoryFiles, found: Logs, hosted: Sequence[Hosted]
    ) -> None:
        """I-45: a recovery that dies at some operation, and one after it, give what one gives."""
        left = self._random.randint(1, OPERATIONS_MAX)

        def dies(operation: str, path: str) -> None:
            nonlocal left
            left -= operation not in _HARMLESS
            if left <= 0:
                raise ProcessEnded(cause=f"{operation} {path}")

        files.on_call = dies
        with suppress(ProcessEnded):
            self._recovered(machine, files)
        again = self._recovered(machine, files.kill_clone())
        for model, _ in hosted:
            first, second = _words(found.get(model.at)), _words(again.get(model.at))
            if first != second:
                self._findings.add(
                    "I-45",
                    f"{model} would be recovered to {first}, but to {second} if a crash came in "
                    f"between",
                    model.at,
                )

    def _recovered(self, machine: Machine, files: MemoryFiles) -> Logs:
        """The logs that a process finds on this disk."""
        node = machine.node
        image, settings = node.metadata.image, node.settings
        found: Logs = {}

        def load(to_load: LogToLoad) -> Log:
            return Log.load(
                files,
                to_load,
                settings.of_topic(to_load.topic_partition.topic, image),
                now_ms=machine.now.wall_ms,
                random=self._random,
            )

        for path in machine.disk.data_dirs:
            directory: LogDirectory[Log] = LogDirectory(files, path)
            directory.open(machine.broker_id, image.cluster_id or "")
            directory.load_logs(load)
            if directory.offline_reason is not None:
                self._findings.add(
                    "I-46",
                    f"Broker {machine.broker_id} could not start: {directory.offline_reason}",
                )
            for at, log in directory.logs.items():
                # A log that has moved may be in both places, and the next start takes the better.
                if at not in found or progress_of(log) > progress_of(found[at]):
                    found[at] = log
            directory.close()
        return found


def _words(log: Log | None) -> str:
    if log is None:
        return "nothing"
    content = crc32(b"".join(peek(each.log, 0, each.size) for each in log.segments.all))
    # Whether an epoch without records is remembered makes no difference.
    entries = log.leader_epochs.entries
    epochs = [tuple(entry) for entry in entries if entry.start_offset < log.log_end_offset]
    return (
        f"offsets {log.log_start_offset} to {log.log_end_offset} ({content:08x}) with the epochs "
        f"{epochs}"
    )
