"""The audit of one partition: each replica by itself, and all of them beside each other.

This file knows in which order the checks run and which of them make sense. It needs no Spark, and
is what a Spark task runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from strandline.errors import StorageError
from strandline.storage.files import Files, MissingFile
from strandline.storage.kafka_uuid import format_uuid
from strandline.storage.partition_metadata import read_topic_id
from strandline.storage.verify.compacted import CompactedReplica, compare_final_values
from strandline.storage.verify.compare import compare
from strandline.storage.verify.directories import Inventory, Replica
from strandline.storage.verify.files import SegmentFiles, lonely_indexes, segments_of, signature
from strandline.storage.verify.findings import Finding, Findings, Kind, PartitionReport
from strandline.storage.verify.walk import Walk
from strandline.types import TopicId, TopicPartition

_ATTEMPTS: Final = 6
"""A running broker drops and rewrites segments while they are read: then it is read again."""

_LOSE_RECORDS: Final = (Kind.DAMAGED_BATCH, Kind.OFFSET_GAP, Kind.OFFSET_ORDER)


def audit_partition(
    files: Files, partition: TopicPartition, replicas: Sequence[Replica]
) -> PartitionReport:
    """Everything that is wrong with the replicas of one partition.

    Raises `StorageError` when a file cannot be read for reasons that are the machine's.
    """
    report = None
    for _ in range(_ATTEMPTS):
        try:
            before = [signature(files, each.directory) for each in replicas]
            report = _Audit(files, partition, replicas).run()
            if not report.findings or before == [signature(files, r.directory) for r in replicas]:
                return report
        except MissingFile:
            continue
    if report is None:
        brokers = tuple(each.broker for each in replicas)
        report = PartitionReport(
            topic=partition.topic, partition=partition.partition, brokers=brokers
        )
    report.findings = []
    report.notes.append(
        f"Segments were dropped or rewritten each of {_ATTEMPTS} times while they were read: "
        "nothing can be said of this partition while its brokers run."
    )
    return report


def audit_here(inventory: Inventory, files: Files) -> list[PartitionReport]:
    """Audit one partition after the other in this process."""
    return [audit_or_say_why(files, at, replicas) for at, replicas in inventory.partitions.items()]


def audit_or_say_why(
    files: Files, at: TopicPartition, replicas: Sequence[Replica]
) -> PartitionReport:
    """A partition that cannot be read is a finding: the others are audited all the same."""
    try:
        return audit_partition(files, at, replicas)
    except StorageError as error:
        brokers = tuple(each.broker for each in replicas)
        unreadable = Finding(
            kind=Kind.DAMAGED_BATCH,
            topic=at.topic,
            partition=at.partition,
            brokers=brokers,
            path="",
            offset=-1,
            end_offset=-1,
            sentence=str(error),
        )
        return PartitionReport(
            topic=at.topic, partition=at.partition, brokers=brokers, findings=[unreadable]
        )


class _Audit:
    """One attempt."""

    def __init__(
        self, files: Files, partition: TopicPartition, replicas: Sequence[Replica]
    ) -> None:
        self._files = files
        self._partition = partition
        self._replicas = replicas
        self._brokers = tuple(each.broker for each in replicas)
        self._segments: dict[int, list[SegmentFiles]] = {
            each.broker: segments_of(files, each.directory) for each in replicas
        }
        self._shared = Findings(partition, self._brokers)
        self._notes: list[str] = []

    def run(self) -> PartitionReport:
        compared = self._of_one_topic()
        is_compacted = any(each.was_compacted for each in self._replicas)
        walks, shared = self._walk(compared, is_compacted)
        if not is_compacted and any(walk.was_compacted for walk in walks):
            is_compacted = True
            walks, shared = self._walk(compared, is_compacted)
        if is_compacted:
            self._compare_final_values(walks, shared)
        for replica in self._replicas:
            if replica.high_watermark is None:
                self._notes.append(
                    f"Nothing tells the high watermark of broker {replica.broker}'s replica, so it "
                    "was not compared."
                )
        for walk in walks:
            if walk.ended_early and walk.replica.high_watermark is not None:
                # The same words for each partition, so that they can be shown together.
                self._notes.append(
                    f"Broker {walk.replica.broker} is running, or was not stopped cleanly: of its "
                    "replica only what lies below the checkpointed high watermark was judged."
                )
        findings = [*self._shared.listed]
        for walk in walks:
            findings += walk.findings.listed
        return PartitionReport(
            topic=self._partition.topic,
            partition=self._partition.partition,
            brokers=self._brokers,
            batches=sum(walk.batches for walk in walks),
            records=sum(walk.records for walk in walks),
            bytes_read=sum(walk.bytes_read for walk in walks),
            start_offset=min((walk.first_offset for walk in walks), default=0),
            end_offset=max((each.high_watermark or 0 for each in self._replicas), default=0),
            findings=[*findings, *shared.listed],
            notes=self._notes,
        )

    def _of_one_topic(self) -> list[Replica]:
        """The replicas that belong to the same topic; others are findings, and not compared."""
        ids: dict[int, TopicId | None] = {}
        for replica in self._replicas:
            try:
                ids[replica.broker] = read_topic_id(self._files, replica.directory)
            except StorageError as error:
                ids[replica.broker] = None
                self._shared.add(
                    Kind.TOPIC_ID, str(error), path=replica.directory, brokers=(replica.broker,)
                )
        counted = Counter(each for each in ids.values() if each is not None)
        if len(counted) < 2:
            return list(self._replicas)
        usual, _ = counted.most_common(1)[0]
        for replica in self._replicas:
            own = ids[replica.broker]
            if own is not None and own != usual:
                self._shared.add(
                    Kind.TOPIC_ID,
                    f"The replica is of topic id {format_uuid(own)}, others are of "
                    f"{format_uuid(usual)}.",
                    path=replica.directory,
                    brokers=(replica.broker,),
                )
        return [each for each in self._replicas if ids[each.broker] in (usual, None)]

    def _walk(self, compared: Sequence[Replica], is_compacted: bool) -> tuple[list[Walk], Findings]:
        frontier = self._frontier() if is_compacted else 0
        walks = [
            Walk(
                self._files,
                each,
                self._segments[each.broker],
                Findings(self._partition, (each.broker,)),
                frontier=frontier,
            )
            for each in self._replicas
        ]
        shared = Findings(self._partition, self._brokers)
        compare([each for each in walks if each.replica in compared], shared, frontier=frontier)
        for walk in walks:
            if walk.replica not in compared:
                compare([walk], shared, frontier=frontier)
            if is_compacted:
                self._find_lost_segments(walk)
        return walks, shared

    def _find_lost_segments(self, walk: Walk) -> None:
        """Below the frontier a segment that is gone shows by what it left behind."""
        segments = self._segments[walk.replica.broker]
        if any(segment.is_swapped for segment in segments):
            return
        end = min(self._frontier(), segments[-1].base_offset if segments else 0)
        for base_offset, path in lonely_indexes(self._files, walk.replica.directory):
            if walk.first_offset <= base_offset < end:
                walk.findings.add(
                    Kind.OFFSET_GAP,
                    "The segment of this index is gone, but there are newer ones.",
                    path=path,
                    offset=base_offset,
                )

    def _compare_final_values(self, walks: Sequence[Walk], shared: Findings) -> None:
        frontier = self._frontier()
        ready: list[Walk] = []
        for walk in walks:
            broker = walk.replica.broker
            if any(kind in walk.findings.counts for kind in _LOSE_RECORDS):
                self._notes.append(
                    f"The keys of broker {broker}'s replica were not compared: records of it are "
                    "missing anyway."
                )
            elif (walk.replica.high_watermark or 0) >= frontier:
                ready.append(walk)
            else:
                self._notes.append(
                    f"The high watermark of broker {broker}'s replica is below the compacted part, "
                    f"which ends at {frontier}: its keys were not compared."
                )
        if len(ready) < 2:
            return
        sources = [
            CompactedReplica(walk.replica, self._segments[walk.replica.broker], walk.first_offset)
            for walk in ready
        ]
        records = max(walk.records for walk in ready)
        compare_final_values(self._files, sources, shared, frontier=frontier, records=records)

    def _frontier(self) -> int:
        """No cleaner touches active segments: below the last of them logs may differ."""
        return max(
            (segments[-1].base_offset for segments in self._segments.values() if segments),
            default=0,
        )
