"""What lies on the disk of a broker: I-02 in full, I-04, I-07 for the tables, I-08.

These look at everything and cost accordingly, so a sweep takes one replica at a time, and the ends
of phases take all. Reads go through the ordinary classes of `storage`, with the disk told not to
observe them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from strandline.errors import CorruptRecords, InvariantViolated, StorageError
from strandline.records.batch import LOG_OVERHEAD
from strandline.sim.checkers.batches import header_fields
from strandline.sim.checkers.peeking import peek
from strandline.sim.checkers.recovery_rules import is_touched
from strandline.sim.checkers.shadow import Shadow
from strandline.sim.checkers.violations import Findings
from strandline.storage.batch_scan import checked_batches
from strandline.storage.directory_names import DirectoryKind, parse_directory_name
from strandline.storage.files import join
from strandline.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS
from strandline.storage.log_directory import LogDirectory
from strandline.storage.segment_names import DELETED, SNAPSHOT, parse_segment_name
from strandline.types import TopicPartition

if TYPE_CHECKING:
    from strandline.sim.machine import Machine
    from strandline.storage.log import Log
    from strandline.storage.segment import Segment

PARTITION_FILES = frozenset({LEADER_EPOCHS, "partition.metadata"})
DIRECTORY_FILES = frozenset(
    {
        ".lock",
        ".kafka_cleanshutdown",
        "meta.properties",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    }
)
PROBES = 4


class StorageRules:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    # -- One log -----------------------------------------------------------------------------

    def check_state(self, shadow: Shadow) -> None:
        """What a log says of itself agrees, and is as long as its batches; cheap."""
        log = shadow.log
        if log.failure is not None or log.closed:
            return
        try:
            log.check()
        except InvariantViolated as error:
            self._findings.add("I-02", f"{shadow}: {error}", shadow.at)
        if log.segments.size_bytes != shadow.size_bytes:
            self._findings.add(
                "I-02",
                f"{shadow} has {log.segments.size_bytes} bytes, but its batches "
                f"{shadow.size_bytes}",
                shadow.at,
            )

    def check_log(self, machine: Machine, shadow: Shadow, *, is_full: bool) -> None:
        """Read the log again, and look things up in its indexes: all, or a few in one segment."""
        log = shadow.log
        if log.failure is not None or log.closed or is_touched(machine, log.directory):
            return
        with machine.disk.unobserved():
            segments = log.segments.all
            if not is_full:
                turn = self._findings.counters["storage sweeps"]
                self._findings.counters["storage sweeps"] += 1
                segments = [segments[turn % len(segments)]]
            for segment in segments:
                positions = self._check_segment(shadow, segment)
                if positions is not None:
                    self._check_indexes(shadow, segment, positions, is_full=is_full)

    def _check_segment(self, shadow: Shadow, segment: Segment) -> list[tuple[int, int, int]] | None:
        """(base offset, last offset, position) of each batch as it is on disk now (I-02)."""
        found: list[tuple[int, int, int]] = []
        index = shadow.index_at(segment.base_offset)
        try:
            for position, header, _ in checked_batches(segment.log, 0, segment.size):
                batch = shadow.batches[index] if index < len(shadow.batches) else None
                if batch is None or (header.base_offset, header.crc, header.leader_epoch) != (
                    batch.base_offset,
                    batch.crc,
                    batch.leader_epoch,
                ):
                    self._findings.add(
                        "I-02",
                        f"{shadow}: {segment.log.path} has another batch at {header.base_offset} "
                        f"than was written: {batch}",
                        shadow.at,
                    )
                    return None
                found.append((header.base_offset, header.last_offset, position))
                index += 1
        except (CorruptRecords, StorageError) as error:
            self._findings.add("I-02", f"{shadow}: {segment.log.path}: {error}", shadow.at)
            return None
        return found

    def _check_indexes(
        self,
        shadow: Shadow,
        segment: Segment,
        batches: list[tuple[int, int, int]],
        *,
        is_full: bool,
    ) -> None:
        """I-04. An index that the node has not opened since a crash may need to be rebuilt first;
        then it is left alone."""
        index, times = segment.offset_index, segment.time_index
        if not index.is_open or not times.is_open:
            return
        ends = {last: position for _, last, position in batches}
        step = 1 if is_full else max(1, index.entries // PROBES)
        for slot in range(0, index.entries, step):
            relative, position = index.entry(slot)
            if ends.get(segment.base_offset + relative) != position:
                self._add_index(
                    shadow, segment, f"says that {segment.base_offset + relative} is at {position}"
                )
        for slot in range(0, times.entries, step):
            timestamp, relative = times.entry(slot)
            if segment.base_offset + relative not in ends:
                self._add_index(
                    shadow,
                    segment,
                    f"names offset {segment.base_offset + relative} for {timestamp}",
                )
        bases = [base for base, _, _ in batches]
        step = 1 if is_full else max(1, len(batches) // PROBES)
        for base, last, position in batches[::step]:
            floor = index.lookup(last)
            if floor.position > position or (
                floor.position and floor.position not in ends.values()
            ):
                self._add_index(shadow, segment, f"leads to {floor} for offset {base}")
            if bisect_left(bases, base) >= len(bases):
                return

    def _add_index(self, shadow: Shadow, segment: Segment, what: str) -> None:
        self._findings.add("I-04", f"{shadow}: an index of {segment.log.path} {what}", shadow.at)

    # -- Directories -------------------------------------------------------------------------

    def check_partition_files(self, machine: Machine, shadow: Shadow) -> None:
        """I-08 for the directory of one partition."""
        log = shadow.log
        if log.failure is not None or log.closed or is_touched(machine, log.directory):
            return
        with machine.disk.unobserved():
            names = set(machine.disk.files.list_directory(log.directory))
        bases: set[int] = set(log.segments.base_offsets)
        snapshots: set[int] = set(log.producers.snapshots.offsets)
        leaving = {path.rpartition("/")[2] for r in log.segments.removals for path in r.paths}
        for name in sorted(names):
            if not _belongs(name, bases, snapshots, leaving):
                self._findings.add(
                    "I-08", f"{shadow} has the file {name}, which belongs to nothing", shadow.at
                )
        for segment in log.segments.all:
            name = segment.log.path.rpartition("/")[2]
            if name not in names:
                self._findings.add("I-08", f"{shadow} has no file {name} any more", shadow.at)

    def check_directories(self, machine: Machine) -> None:
        """I-08 for log directories, and I-07 for the recovery points written down there."""
        for directory in machine.node.replicas.directories:
            if directory.offline_reason is not None:
                continue
            with machine.disk.unobserved():
                self._check_directory(machine, directory)

    def _check_directory(self, machine: Machine, directory: LogDirectory[Log]) -> None:
        files = machine.disk.files
        known = {join(directory.path, str(at)) for at in directory.logs}
        for name in files.list_directory(directory.path):
            path = join(directory.path, name)
            if not files.is_directory(path):
                if name.removesuffix(".tmp") not in DIRECTORY_FILES:
                    self._findings.add("I-08", f"Broker {machine.broker_id} has the file {path}")
            elif parse_directory_name(name).kind is DirectoryKind.PARTITION and path not in known:
                self._findings.add(
                    "I-08", f"Broker {machine.broker_id} has the directory {path} and no log in it"
                )
        if any(path.startswith(directory.path + "/") for path in machine.disk.damaged):
            return
        table = checkpoint_in(
            machine.disk.peek(join(directory.path, "recovery-point-offset-checkpoint"))
        )
        for at, log in directory.logs.items():
            written = table.get(at, 0)
            if written > log.recovery_point and log.failure is None and not log.recovery_point_fell:
                self._findings.add(
                    "I-07",
                    f"{at} on broker {machine.broker_id} has the recovery point "
                    f"{log.recovery_point}, but {written} is written down",
                    at,
                )


def checkpoint_in(data: bytes | None) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint file, by partition."""
    found: dict[TopicPartition, int] = {}
    for line in (data or b"").decode().splitlines()[2:]:
        topic, number, offset = line.split()
        found[TopicPartition(topic, int(number))] = int(offset)
    return found


def batches_in(data: bytes) -> list[tuple[int, ...]]:
    """The headers of the whole batches in the bytes of a segment."""
    found, position = [], 0
    while (fields := header_fields(data, position)) is not None:
        found.append(fields)
        position += fields[1] + LOG_OVERHEAD
    return found


def bytes_of(log: Log) -> bytes:
    """All bytes of a log."""
    return b"".join(peek(segment.log, 0, segment.size) for segment in log.segments.all)


def _belongs(name: str, bases: set[int], snapshots: set[int], leaving: set[str]) -> bool:
    if name in leaving or name.removesuffix(".tmp") in PARTITION_FILES:
        return True
    parsed = parse_segment_name(name.removesuffix(".tmp"))
    if parsed is None:
        return False
    if parsed.suffix == DELETED:
        return True  # of a former process: it goes with the next start
    if parsed.kind == SNAPSHOT:
        return parsed.base_offset in snapshots
    return parsed.base_offset in bases
