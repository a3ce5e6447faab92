"""Rules for the files on the disk of a broker: I-02 in full, I-04, I-07 for the tables, I-08.

These look at everything and cost accordingly, so a sweep takes one replica at a time, and the ends
of phases take all. Reads go through the ordinary classes of `storage`, with the disk told not to
observe them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from strandline.errors import CorruptRecords, StorageError
from strandline.records.batch import iterate_headers
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.marked_aborts import aborts_in
from strandline.sim.checkers.violations import Findings
from strandline.storage.directory_names import DirectoryKind, parse_directory_name
from strandline.storage.files import join
from strandline.storage.leader_epochs import FILE_NAME as LEADER_EPOCHS
from strandline.storage.leader_epochs import NEXT_SUFFIX
from strandline.storage.ledger import Ledger, is_of_ledger
from strandline.storage.log_directory import LogDirectory
from strandline.storage.segment_names import CLEANED, DELETED, SNAPSHOT, parse_segment_name
from strandline.storage.transaction_index import TransactionIndex
from strandline.storage.verify.indexes import IndexFault, OffsetIndexCheck, TimeIndexCheck
from strandline.storage.verify.reading import checked_batches
from strandline.types import Offset, TopicPartition

if TYPE_CHECKING:
    from strandline.sim.machine import Machine
    from strandline.storage.log import Log
    from strandline.storage.segment import Segment

PARTITION_FILES = frozenset({LEADER_EPOCHS, LEADER_EPOCHS + NEXT_SUFFIX, "partition.metadata"})
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
PROBES = 20


class StorageRules:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    # -- One log -----------------------------------------------------------------------------

    def check_state(self, model: LogModel) -> None:
        """A log is as long as its batches; cheap."""
        log = model.log
        if log.failure is not None or log.closed:
            return
        if log.segments.size_bytes != model.size_bytes:
            self._findings.add(
                "I-02",
                f"{model} has {log.segments.size_bytes} bytes, but its batches {model.size_bytes}",
                model.at,
            )

    def check_log(self, machine: Machine, model: LogModel, *, is_full: bool) -> None:
        """Read the log again, and look things up in its indexes: all, or a few in one segment."""
        log = model.log
        if log.failure is not None or log.closed:
            return
        counters = self._findings.counters
        with machine.disk.unobserved():
            segments = log.segments.all
            if not is_full:
                counters["storage sweeps"] += 1
                segments = [segments[counters["storage sweeps"] % len(segments)]]
            for segment in segments:
                first, stop = indexes_in(model, segment)
                if is_full:
                    self._check_batches(model, segment, first, stop)
                    self._check_indexes(model, segment, range(first, stop))
                elif stop > first:
                    at = first + counters["storage sweeps"] * PROBES % (stop - first)
                    window = range(at, min(stop, at + PROBES))
                    self._check_batches(model, segment, window.start, window.stop)
                    self._check_indexes(model, segment, window)

    def _check_batches(self, model: LogModel, segment: Segment, first: int, stop: int) -> None:
        """I-02: the batches are on disk as they were written."""
        start = position_in(model, segment, first)
        end = start + model.bytes_between(first, stop)
        index = first
        try:
            for _, header, _ in checked_batches(segment.log, start, end):
                batch = model.batches[index] if index < stop else None
                if batch is None or (header.base_offset, header.crc, header.leader_epoch) != (
                    batch.base_offset,
                    model.crc_of(batch),
                    batch.leader_epoch,
                ):
                    self._add_damage(
                        model, segment, f"another batch at {header.base_offset} than {batch}"
                    )
                    return
                index += 1
        except (CorruptRecords, StorageError) as error:
            self._add_damage(model, segment, f"no readable batches: {error}")
            return
        if index != stop:
            self._add_damage(model, segment, f"only {index - first} of {stop - first} batches")

    def _add_damage(self, model: LogModel, segment: Segment, what: str) -> None:
        self._findings.add("I-02", f"{model}: {segment.log.path} has {what}", model.at)

    def _check_indexes(self, model: LogModel, segment: Segment, batches: range) -> None:
        """I-04. An index that the node has not opened since a crash may need to be rebuilt first;
        then it is left alone."""
        offsets = segment.offset_index
        if not offsets.is_open or not segment.time_index.is_open:
            return
        for fault in _index_faults(model, segment):
            if fault is not None:
                self._add_index(model, segment, fault.sentence)
        for index in batches:
            batch = model.batches[index]
            floor = offsets.lookup(batch.next_offset - 1)
            position = position_in(model, segment, index)
            if floor.position > position or (
                floor.position
                and self._position_of_end(model, segment, floor.offset) != floor.position
            ):
                self._add_index(model, segment, f"It leads to {floor} for {batch} at {position}.")

    @staticmethod
    def _position_of_end(model: LogModel, segment: Segment, offset: int) -> int | None:
        """Where the batch stands that ends with the offset, if there is one."""
        index = model.index_at(offset + 1) - 1
        if index < 0 or model.batches[index].next_offset != offset + 1:
            return None
        return position_in(model, segment, index)

    def _add_index(self, model: LogModel, segment: Segment, what: str) -> None:
        self._findings.add("I-04", f"{model}: an index of {segment.log.path}: {what}", model.at)

    def check_aborts(self, machine: Machine, model: LogModel) -> None:
        """I-04 for transaction indexes: each names the aborted transactions whose markers lie in
        its segment and, unless the log is compacted, no others. One of which no batch is left need
        not be named."""
        log = model.log
        if log.failure is not None or log.closed:
            return
        with machine.disk.unobserved():
            for segment, aborts in aborts_in(log):
                index = TransactionIndex(machine.disk.files, segment.transaction_index.path)
                try:
                    found = {entry.last_offset: entry for entry in index.entries()}
                except StorageError as error:
                    self._add_index(model, segment, str(error))
                    continue
                self._findings.counters["aborts looked up"] += len(aborts)
                for abort in aborts:
                    entry = found.pop(Offset(abort.offset), None)
                    if abort.first_offset is not None and (
                        entry is None
                        or entry.producer_id != abort.producer_id
                        or entry.first_offset > abort.first_offset
                    ):
                        self._add_index(model, segment, f"It has {entry} for {abort}.")
                if found and not model.is_compacted:
                    self._add_index(model, segment, f"It has {list(found.values())} of no marker.")

    # -- Directories -------------------------------------------------------------------------

    def check_partition_files(self, machine: Machine, model: LogModel) -> None:
        """I-08 for the directory of one partition."""
        log = model.log
        if log.failure is not None or log.closed:
            return
        if is_offline(machine, log.directory):
            return
        files = machine.disk.files
        with machine.disk.unobserved():
            is_there = files.is_directory(log.directory)
            names = set(files.list_directory(log.directory) if is_there else ())
        bases: set[int] = set(log.segments.base_offsets)
        snapshots: set[int] = set(log.producers.snapshots.offsets)
        leaving = {path.rpartition("/")[2] for r in log.segments.removals for path in r.paths}
        # A round hears a while later that the segments which it compacts are not there any more.
        is_compacting = machine.node.background.cleaning.is_under_way(log)
        for name in sorted(names):
            if name.endswith(CLEANED) and is_compacting:
                continue
            if not _belongs(name, bases, snapshots, leaving):
                self._findings.add(
                    "I-08", f"{model} has the file {name}, which belongs to nothing", model.at
                )
        for segment in log.segments.all:
            name = segment.log.path.rpartition("/")[2]
            if name not in names:
                self._findings.add("I-08", f"{model} has no file {name} any more", model.at)

    def check_directories(self, machine: Machine) -> None:
        """I-08 for log directories, and I-07 for the recovery points written down there."""
        for directory in machine.node.replicas.logs.directories:
            if directory.offline_reason is not None:
                continue
            with machine.disk.unobserved():
                self._check_directory(machine, directory)

    def _check_directory(self, machine: Machine, directory: LogDirectory[Log]) -> None:
        files = machine.disk.files
        known = {join(directory.path, str(at)) for at in directory.logs}
        # The name of a log that has moved may wait for the handle that makes it durable.
        known |= {future.directory for future in directory.futures.values()}
        for name in files.list_directory(directory.path):
            path = join(directory.path, name)
            if not files.is_directory(path):
                if name.removesuffix(".tmp") not in DIRECTORY_FILES and not is_of_ledger(name):
                    self._findings.add("I-08", f"Broker {machine.broker_id} has the file {path}")
            elif parse_directory_name(name).kind is DirectoryKind.PARTITION and path not in known:
                self._findings.add(
                    "I-08", f"Broker {machine.broker_id} has the directory {path} and no log in it"
                )
        self._check_ledger(machine, directory.path)
        table = checkpoint_in(
            machine.disk.peek(join(directory.path, "recovery-point-offset-checkpoint"))
        )
        for at, log in directory.logs.items():
            written = table.get(at, 0)
            if (
                written > log.recovery_point
                and log.failure is None
                and not log.offsets.recovery_point_fell
            ):
                self._findings.add(
                    "I-07",
                    f"{at} on broker {machine.broker_id} has the recovery point "
                    f"{log.recovery_point}, but {written} is written down",
                    at,
                )

    def _check_ledger(self, machine: Machine, directory: str) -> None:
        """Every entry is whole, and holds the offsets that it names."""
        ledger = Ledger(machine.disk.files, directory)
        try:
            for entry in ledger.entries():
                data = ledger.read(entry.id, 0, entry.size_bytes + 1)
                headers = [header for _, header in iterate_headers(data)]
                found = (len(data), headers[0].base_offset)
                last = headers[-1].next_offset
                if found != (entry.size_bytes, entry.from_offset) or last > entry.kept_to_offset:
                    self._findings.add(
                        "I-08", f"{entry} has {found[0]} bytes from {found[1]} to {last}"
                    )
        except (StorageError, CorruptRecords) as error:
            self._findings.add("I-08", f"Broker {machine.broker_id} has a bad ledger: {error}")


def _index_faults(model: LogModel, segment: Segment) -> Iterator[IndexFault | None]:
    """All entries of a segment's indexes, compared with all batches that it is known to have."""
    offsets, times = OffsetIndexCheck(segment.base_offset), TimeIndexCheck(segment.base_offset)
    for slot in range(segment.offset_index.entries):
        yield offsets.enter(*segment.offset_index.entry(slot))
    for slot in range(segment.time_index.entries):
        yield times.enter(*segment.time_index.entry(slot))
    first, stop = indexes_in(model, segment)
    for index in range(first, stop):
        batch = model.batches[index]
        yield offsets.see(model.bytes_between(first, index), batch.next_offset - 1)
        yield times.see(batch.next_offset - 1, model.newest_in(batch))
    yield from offsets.unanswered()
    yield from times.unanswered()


def is_offline(machine: Machine, directory: str) -> bool:
    """Whether the disk under a partition has failed: then what is half done stays so."""
    above = directory.rpartition("/")[0]
    return any(
        each.path == above and each.offline_reason is not None
        for each in machine.node.replicas.logs.directories
    )


def checkpoint_in(data: bytes | None) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint file, by partition."""
    found: dict[TopicPartition, int] = {}
    for line in (data or b"").decode().splitlines()[2:]:
        topic, number, offset = line.split()
        found[TopicPartition(topic, int(number))] = int(offset)
    return found


def indexes_in(model: LogModel, segment: Segment) -> tuple[int, int]:
    """Which batches of the model lie in a segment: from the first index up to the second."""
    first = model.index_at(segment.base_offset)
    above = model.log.segments.above(segment.base_offset)
    stop = model.index_at(above[0].base_offset) if above else len(model.batches)
    return first, stop


def position_in(model: LogModel, segment: Segment, index: int) -> int:
    """Where in the segment's file the batch with that index stands."""
    return model.bytes_between(model.index_at(segment.base_offset), index)


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
