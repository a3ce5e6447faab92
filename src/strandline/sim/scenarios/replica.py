"""One replica of the one partition of a scenario, as it is to be seen from outside.

It looks through a simulated machine at what its node hosts, and at its disk. This file changes
nothing; what happens to a broker stands in `world`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple
from uuid import UUID

from strandline.errors import InvariantViolated
from strandline.node.replica import Replica as HostedReplica
from strandline.records.batch import iterate_headers
from strandline.records.control import control_type
from strandline.records.record import Record, read_records
from strandline.replication.leader import Leader
from strandline.sim.world import World
from strandline.storage.checkpoint_file import OffsetCheckpoint
from strandline.storage.log import Log
from strandline.storage.log_directory import HIGH_WATERMARKS
from strandline.types import NO_EPOCH, BrokerId, LeaderEpoch, TopicPartition

PARTITION: Final = TopicPartition("t", 0)
TOPIC_ID: Final = UUID(int=1)


class Entry(NamedTuple):
    """One record in a log."""

    offset: int
    leader_epoch: int
    value: str


class Replica:
    """See the module. `is_cut`: no metadata, no fetches in either direction; clients reach it."""

    def __init__(self, name: str, world: World, broker_id: BrokerId) -> None:
        self.name = name
        self.machine = world[broker_id]
        self.broker_id = broker_id
        self.is_cut = False
        self.unreachable_since_ms: int | None = None
        """Since when ticks have seen it paused or cut off."""
        self._world = world

    # -- The broker --------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether there is a process that works."""
        return self.machine.is_up

    @property
    def is_paused(self) -> bool:
        """Whether its process stands still."""
        return self.machine.is_paused

    @property
    def hosted(self) -> HostedReplica | None:
        """The partition on this node; None while the broker is down or has no replica of it."""
        return self._world.replica(self.broker_id, PARTITION)

    @property
    def leader(self) -> Leader | None:
        """What it knows while it leads."""
        hosted = self.hosted
        return None if hosted is None else hosted.leader

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The newest leader epoch that it was told of."""
        hosted = self.hosted
        return NO_EPOCH if hosted is None else hosted.leader_epoch

    @property
    def leader_name(self) -> str | None:
        """Whom it follows."""
        hosted = self.hosted
        return name_of(hosted.leader_id) if hosted is not None and hosted.is_following else None

    @property
    def role(self) -> str:
        """What it is now, in one word."""
        if not self.is_running:
            return "down"
        if self.leader is not None:
            return "leader"
        return "none" if self.leader_name is None else "follower"

    @property
    def leadership(self) -> Leader:
        """What it knows as a leader; only for one that leads."""
        if self.leader is None:
            raise InvariantViolated(f"{self.name} does not lead.")
        return self.leader

    # -- Its disk ----------------------------------------------------------------------------

    def checkpointed(self) -> str:
        """The high watermark that is written down, whether the process runs or not."""
        disk = self.machine.disk
        with disk.unobserved():
            table = OffsetCheckpoint(disk.files, f"{disk.data_dirs[0]}/{HIGH_WATERMARKS}").read()
        return str(table.get(PARTITION, "none"))

    # -- Its log -----------------------------------------------------------------------------

    @property
    def has_log(self) -> bool:
        """Whether there is one to look into."""
        return self.hosted is not None

    @property
    def log(self) -> Log:
        """The log; only while `has_log`."""
        if self.hosted is None:
            raise InvariantViolated(f"{self.name} has no replica.")
        return self.hosted.log

    def entries(self) -> list[Entry]:
        """The records in the log, from its start on; a marker is shown as COMMIT or ABORT."""
        if not self.has_log:
            return []
        start = self.log.log_start_offset
        return [e for data in self._batches() for e in _entries_of(data) if e.offset >= start]

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
        with self.machine.disk.unobserved():
            for segment in self.log.segments.all:
                data = segment.log.read_at(0, segment.size)
                found.extend(
                    data[position : position + header.size_bytes]
                    for position, header in iterate_headers(data)
                )
        return found

    def base_offset(self) -> int:
        """Where its first segment begins, which may be below its log start."""
        return self.log.segments.all[0].base_offset


def _entries_of(batch: bytes) -> list[Entry]:
    ((_, header),) = iterate_headers(batch)
    entries = []
    for record in read_records(batch):
        value = control_type(record).name if header.is_control else text_of(record)
        entries.append(Entry(record.offset, header.leader_epoch, value))
    return entries


def text_of(record: Record) -> str:
    """A record as scripts write it: its value, behind its key if it has one."""
    value = (record.value or b"").decode()
    return value if record.key is None else f"{record.key.decode()}:{value}"


def broker_id_of(name: str) -> BrokerId:
    """A is 1, B is 2, and so on."""
    return BrokerId(ord(name) - ord("A") + 1)


def name_of(broker_id: BrokerId) -> str:
    """The letter of a broker."""
    return chr(broker_id + ord("A") - 1)


def names_of(broker_ids: Collection[BrokerId]) -> str:
    """Several letters in order, as `ABC`."""
    return "".join(sorted(name_of(broker_id) for broker_id in broker_ids))
