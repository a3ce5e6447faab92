"""One replica of the one partition of a scenario: a broker process, its disk, its real log.

This file knows what survives a process or a power cut, and how to look into a log. The rules of
replication are those of `strandline.replication`; who calls them when stands in `world`.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple
from uuid import UUID

from strandline.config.topic import TopicConfig
from strandline.errors import InvariantViolated
from strandline.records.batch import iterate_headers
from strandline.records.control import control_type
from strandline.records.record import read_records
from strandline.replication.leader import Leader
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.log import Log
from strandline.storage.log_directory import HIGH_WATERMARKS, LogDirectory, LogToLoad
from strandline.storage.memory_files import MemoryFiles
from strandline.types import BrokerId, LeaderEpoch, Offset, TopicPartition

PARTITION = TopicPartition("t", 0)
TOPIC_ID = UUID(int=1)
WALL_MS = 1_700_000_000_000
ROOT = "/data"
NO_LEADER = LeaderEpoch(-1)


class Entry(NamedTuple):
    """One record in a log."""

    offset: int
    leader_epoch: int
    value: str


class Replica:
    """See the module.

    - `broker_epoch` changes with every registration; `is_registered` is what the store shows.
    - `is_cut`: no metadata, no fetches in either direction; clients still reach it.
    - `leader` while it leads, `following` (name, epoch) while it follows.
    """

    def __init__(self, name: str, config: TopicConfig) -> None:
        self.name = name
        self.broker_id = broker_id_of(name)
        self.config = config
        self.files = MemoryFiles()
        self.is_running = False
        self.is_cut = False
        self.is_registered = False
        self.is_shutting_down = False
        self.broker_epoch = -1
        self.previous_epoch = -1
        self.leader: Leader | None = None
        self.leader_epoch = NO_LEADER
        self.leader_name: str | None = None
        self.compares_epochs = True
        self.has_lost_data = False
        self._format()

    def _format(self) -> None:
        self.files.make_directory(ROOT)
        self.files.sync_directory("/")

    # -- The process -------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """Load what the disk has, recovered if the last end was not clean."""
        self.directory: LogDirectory[Log] = LogDirectory(self.files, ROOT)
        opened = self.directory.open(self.broker_id, "cluster")
        if not opened or not self.directory.load_logs(lambda found: self._load(found, now_ms)):
            raise InvariantViolated(f"The disk of {self.name} cannot be read.")
        shutdown = self.directory.clean_shutdown
        self.previous_epoch = -1 if shutdown is None else shutdown.broker_epoch or -1
        if PARTITION in self.directory.logs:
            self.log = self.directory.logs[PARTITION]
        else:
            self.log = Log.create(
                self.files,
                f"{ROOT}/{PARTITION}",
                PARTITION,
                self.config,
                now_ms=WALL_MS + now_ms,
                random=Random(1),
            )
            self.log.assign_topic_id(TOPIC_ID)
            self.directory.add(self.log)
        self.is_running = True

    def _load(self, found: LogToLoad, now_ms: int) -> Log:
        return Log.load(self.files, found, self.config, now_ms=WALL_MS + now_ms, random=Random(1))

    def checkpoint(self) -> None:
        """Write the high watermark down: scenarios do it after every step."""
        self.directory.write_high_watermarks()

    def checkpointed(self) -> str:
        """The high watermark that is written down, whether the process runs or not."""
        table = OffsetCheckpoint(self.files, f"{ROOT}/{HIGH_WATERMARKS}").read()
        return str(table.get(PARTITION, "none"))

    def kill(self) -> None:
        """The process ends; the page cache stays."""
        self._end()
        self.files = self.files.kill_clone()

    def cut_power(self, keep: Offset) -> None:
        """The machine ends: of the log only what lies below `keep` had been synced."""
        before = self.log.log_end_offset
        segment, position = self.log.reader.position_of(keep)
        later = [s.log.path for s in self.log.segments.all if s.base_offset > segment]
        self._end()
        self.files = self.files.kill_clone()
        for path in later:
            self.files.remove(path)
        file = self.files.open(f"{ROOT}/{PARTITION}/{segment:020d}.log")
        file.truncate(position)
        file.sync()
        self.has_lost_data = keep < before

    def stop(self) -> None:
        """A clean shutdown: everything is synced and the marker written."""
        if not self.directory.close_clean(self.broker_epoch):
            raise InvariantViolated(f"The disk of {self.name} cannot be written.")
        self._end()

    def wipe(self) -> None:
        """The disk is replaced by an empty one."""
        self.files = MemoryFiles()
        self._format()
        self.has_lost_data = True

    def _end(self) -> None:
        self.is_running = False
        self.is_shutting_down = False
        self.leader = None
        self.leader_name = None
        self.leader_epoch = NO_LEADER
        self.log.close()

    # -- Looking into the log ----------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """The records in the log, from its start on; a marker is shown as COMMIT or ABORT."""
        return [
            entry
            for data in self._batches()
            for entry in _entries_of(data)
            if entry.offset >= self.log.log_start_offset
        ]

    def written_epochs(self) -> list[tuple[int, int]]:
        """The table of leader epochs, without one in which nothing was written yet."""
        return [
            (entry.epoch, entry.start_offset)
            for entry in self.log.leader_epochs.entries
            if entry.start_offset < self.log.log_end_offset
        ]

    def batch_bytes(self) -> dict[int, bytes]:
        """Each batch by its base offset."""
        return {next(iter(iterate_headers(data)))[1].base_offset: data for data in self._batches()}

    def _batches(self) -> list[bytes]:
        found: list[bytes] = []
        for segment in self.log.segments.all:
            data = segment.log.read_at(0, segment.size)
            found.extend(
                data[position : position + header.size_bytes]
                for position, header in iterate_headers(data)
            )
        return found

    @property
    def reign(self) -> Leader:
        """What it knows as a leader; only for one that leads."""
        if self.leader is None:
            raise InvariantViolated(f"{self.name} does not lead.")
        return self.leader

    @property
    def follows(self) -> bool:
        """Whether it follows some leader now."""
        return self.is_running and self.leader is None and self.leader_name is not None


def _entries_of(batch: bytes) -> list[Entry]:
    ((_, header),) = iterate_headers(batch)
    entries = []
    for record in read_records(batch):
        value = control_type(record).name if header.is_control else (record.value or b"").decode()
        entries.append(Entry(record.offset, header.leader_epoch, value))
    return entries


def broker_id_of(name: str) -> BrokerId:
    """A is 1, B is 2, and so on."""
    return BrokerId(ord(name) - ord("A") + 1)


def name_of(broker_id: BrokerId) -> str:
    """The letter of a broker."""
    return chr(broker_id + ord("A") - 1)


def names_of(broker_ids: frozenset[BrokerId] | tuple[BrokerId, ...]) -> str:
    """Several letters in order, as `ABC`."""
    return "".join(sorted(name_of(broker_id) for broker_id in broker_ids))
