"""Rules for what coordinators keep in their topics, asked once at the end of a run (I-39, I-59).

A coordinator answers from memory, and its successor reads a log that was compacted by itself. So
what one knows and what the logs of all replicas say must be the same, however far each of them was
compacted: another election would otherwise change what clients are told.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from strandline.errors import CorruptRecords
from strandline.groups.offset_records import OffsetRecord, decode_record
from strandline.groups.offset_store import OffsetStore
from strandline.node.coordinator_topic import committed_records
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.sharing.shard import Shard
from strandline.sim.checkers.violations import Findings
from strandline.storage.log import Log
from strandline.types import NO_EPOCH, TopicPartition

if TYPE_CHECKING:
    from strandline.cluster.image import ClusterImage
    from strandline.node.replica import Replica
    from strandline.sim.machine import Machine

_READ_BYTES: Final = 1_000_000

Stored = Mapping[tuple[str, TopicPartition], int]
"""The offset of each group and partition."""


class CoordinatorRules:
    """See the module."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings

    def check(self, image: ClusterImage, machines: Iterable[Machine]) -> None:
        """Everything, of brokers that are up, in a cluster that has come to rest."""
        leaders: dict[TopicPartition, tuple[Machine, Replica]] = {}
        up = [each for each in machines if each.is_up]
        for machine in up:
            for replica in machine.node.replicas:
                if replica.is_leading:
                    leaders[replica.topic_partition] = machine, replica
        for at, (machine, replica) in leaders.items():
            with machine.disk.unobserved():
                if at.topic == CONSUMER_OFFSETS:
                    self._check_offsets(at, machine, replica.log, up)
                elif at.topic == SHARE_GROUP_STATE:
                    self._check_states(at, image, replica.log, leaders)

    def _check_offsets(
        self, at: TopicPartition, machine: Machine, led: Log, machines: Iterable[Machine]
    ) -> None:
        """I-39: what the coordinator has in memory is what each replica of its log says."""
        known = {
            (group.group_id, partition): offset.offset
            for group in machine.node.groups.host.overviews()
            if group.partition == at.partition
            for partition, offset in group.committed.items()
        }
        for each in machines:
            replica = each.node.replicas.find(at)
            if replica is None or replica.log.log_start_offset or led.log_start_offset:
                continue  # what retention has dropped is in no log any more
            with each.disk.unobserved():
                said = _offsets_in(replica.log)
            if said != known:
                differing = sorted(
                    f"{group} {partition}: {known.get((group, partition))} and not "
                    f"{said.get((group, partition))}"
                    for group, partition in said.keys() | known.keys()
                    if said.get((group, partition)) != known.get((group, partition))
                )
                self._findings.add(
                    "I-39",
                    f"{at}: broker {machine.broker_id} tells other offsets than the log on broker "
                    f"{each.broker_id} has: {'; '.join(differing)}",
                    at,
                )

    def _check_states(
        self,
        at: TopicPartition,
        image: ClusterImage,
        log: Log,
        leaders: Mapping[TopicPartition, tuple[Machine, Replica]],
    ) -> None:
        """I-59: states are of records that have been written. That of a topic which was deleted
        while no broker led this partition stays: its id never comes again, and a new coordinator
        might end the state of a topic of which it has yet to hear, if it looked for such."""
        names = {topic.topic_id: name for name, topic in image.topics.items()}
        shard = Shard(at.partition, NO_EPOCH)
        shard.replay(_records_of(log))
        for key in shard.share_partitions():
            state, name = shard.current(key), names.get(key.topic_id)
            if state is None or name is None:
                continue
            of = TopicPartition(name, key.partition)
            if of not in leaders:
                continue
            end = leaders[of][1].log.log_end_offset
            last = max((batch.last for batch in state.batches), default=state.start - 1)
            if last >= end:
                self._findings.add(
                    "I-59",
                    f"{at} has a state of group {key.group_id} up to offset {last} of {of}, which "
                    f"ends at {end}",
                    of,
                )


def _records_of(log: Log) -> Iterator[CoordinatorRecord]:
    for record in committed_records(log, log.log_end_offset, _READ_BYTES):
        if isinstance(record, CoordinatorRecord):
            yield record


def _offsets_in(log: Log) -> Stored:
    store = OffsetStore()
    for record in _records_of(log):
        try:
            found = decode_record(record)
        except CorruptRecords:
            continue
        if isinstance(found, OffsetRecord):
            store.replay(found)
    return {
        (group, partition): offset.offset
        for group in store.group_ids()
        for partition, offset in store.committed(group).items()
    }
