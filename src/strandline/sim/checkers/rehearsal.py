"""What would be left if a broker ended now: its logs, recovered from copies of its disk.

A copy as a kill would leave it must give every log back whole; a copy as a power cut would leave it
must give a prefix with everything below the recovery point. Recovering a second time, after the
first was cut short at some operation or was finished, must give what the first gave. The broker and
its disk are not touched (I-45, I-46).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING

from strandline.errors import StorageError
from strandline.sim.checkers.peeking import peek
from strandline.sim.checkers.recovery_rules import is_touched
from strandline.sim.checkers.shadow import Shadow
from strandline.sim.checkers.violations import Findings
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory, LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.types import TopicPartition

if TYPE_CHECKING:
    from strandline.sim.machine import Machine

Contents = dict[TopicPartition, tuple[int, int, tuple[bytes, ...]]]
"""Of each log: where it starts and ends, and the bytes of its segments."""


class Rehearsal:
    """See the module."""

    def __init__(self, findings: Findings, random: Random) -> None:
        self._findings = findings
        self._random = random

    def check(self, machine: Machine, shadows: Sequence[Shadow]) -> None:
        """Rehearse the ends of one broker."""
        if machine.disk.damaged:
            return
        alive = [
            s for s in shadows if s.log.failure is None and not is_touched(machine, s.log.directory)
        ]
        after_kill = machine.disk.image()
        found = self._recovered(machine, after_kill)
        for shadow in alive:
            self._compare(shadow, found, shadow.log.log_end_offset, "a kill")
        self._recover_again(machine, after_kill, found, alive)
        after_power_cut = machine.disk.image("any", self._random)
        found = self._recovered(machine, after_power_cut)
        for shadow in alive:
            self._compare(shadow, found, shadow.log.recovery_point, "a power cut")
        self._recover_again(machine, after_power_cut, found, alive)

    def _compare(self, shadow: Shadow, found: Contents, needed: int, cause: str) -> None:
        """I-46 for one log."""
        self._findings.counters["rehearsals"] += 1
        if shadow.at not in found:
            if needed > 0:
                self._findings.add("I-46", f"{shadow} would be gone after {cause}", shadow.at)
            return
        _, end, segments = found[shadow.at]
        mine = b"".join(_bytes(shadow.log))
        theirs = b"".join(segments)
        if end < needed:
            problem = f"end at {end}, but everything below {needed} is to survive"
        elif not mine.endswith(theirs) and not mine.startswith(theirs) and theirs not in mine:
            problem = "have other batches than it has now"
        else:
            return
        self._findings.add("I-46", f"{shadow} would after {cause} {problem}", shadow.at)

    def _recover_again(
        self, machine: Machine, files: MemoryFiles, found: Contents, shadows: Sequence[Shadow]
    ) -> None:
        """I-45: a kill right after the recovery changes nothing."""
        again = self._recovered(machine, files.kill_clone())
        for shadow in shadows:
            if again.get(shadow.at) != found.get(shadow.at):
                self._findings.add(
                    "I-45",
                    f"{shadow} would be recovered to {_words(found.get(shadow.at))} first and to "
                    f"{_words(again.get(shadow.at))} after a second crash",
                    shadow.at,
                )

    def _recovered(self, machine: Machine, files: MemoryFiles) -> Contents:
        """The logs that a process finds on this disk."""
        node = machine.node
        image, settings = node.metadata.image, node.settings
        found: Contents = {}

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
            try:
                directory.open(machine.broker_id, image.cluster_id or "")
                directory.load_logs(load)
            except StorageError as error:
                self._findings.add("I-46", f"Broker {machine.broker_id} could not start: {error}")
                continue
            if directory.offline_reason is not None:
                self._findings.add(
                    "I-46",
                    f"Broker {machine.broker_id} could not start: {directory.offline_reason}",
                )
            for at, log in directory.logs.items():
                found[at] = (log.log_start_offset, log.log_end_offset, tuple(_bytes(log)))
            directory.close()
        return found


def _bytes(log: Log) -> list[bytes]:
    return [peek(segment.log, 0, segment.size) for segment in log.segments.all]


def _words(contents: tuple[int, int, tuple[bytes, ...]] | None) -> str:
    if contents is None:
        return "nothing"
    return f"offsets {contents[0]} to {contents[1]} in {len(contents[2])} segments"
