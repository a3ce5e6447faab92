"""The true state of one partition, whatever its replicas believe: commits and leaderships.

A record is committed when a leader's high watermark has passed it. That is remembered here for
ever; the replicas come, go and are compared with it.

This file knows offsets and sets of brokers. It must not know nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from strandline.cluster.image import PartitionImage
from strandline.sim.checkers.batches import Batch, Batches
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId, TopicId, TopicPartition


class PartitionModel:
    """One partition of one topic; a topic that is made anew is another one.

    - `state`: the newest state in the store.
    - `models`: the newest log of each broker, that of a dead process included.
    - `leaders`: which process accepted leadership in each epoch: broker and life.
    - `deleted_to`: records below were deleted, by an answer to a client.
    """

    def __init__(self, at: TopicPartition, topic_id: TopicId, findings: Findings) -> None:
        self.at = at
        self.topic_id = topic_id
        self.batches = Batches(str(at), findings)
        self.state: PartitionImage | None = None
        self.state_since_us = 0
        self.with_eligible: set[int] = set()
        """Partition epochs of states that name replicas which may lead beside the in-sync set."""
        self.models: dict[BrokerId, LogModel] = {}
        self.leaders: dict[int, tuple[BrokerId, int]] = {}
        self.newest_epoch = -1
        self.deleted_to = 0
        self._committed: list[Batch] = []
        self._bases: list[int] = []

    # -- What is committed -------------------------------------------------------------------

    @property
    def last_committed(self) -> Batch | None:
        """The committed batch with the highest offsets."""
        return self._committed[-1] if self._committed else None

    @property
    def committed(self) -> Sequence[Batch]:
        """Everything that is committed, in order."""
        return self._committed

    @property
    def committed_end(self) -> int:
        """The true high watermark: the offset behind everything that is committed."""
        return self._committed[-1].next_offset if self._committed else 0

    def is_committed(self, batch: Batch) -> bool:
        """Whether this very batch is committed."""
        index = bisect_left(self._bases, batch.base_offset)
        return index < len(self._committed) and self._committed[index] is batch

    def is_kept(self, offset: int, leader_epoch: int) -> bool:
        """Whether what a leader wrote there in that epoch must be there: the log that was committed
        has a batch of this epoch there, which that one process wrote, or it leads still."""
        if offset >= self.committed_end:
            return self.state is not None and leader_epoch == self.state.leader_epoch
        batch = self._at(offset)
        is_there = batch.base_offset <= offset < batch.next_offset
        return is_there and batch.leader_epoch == leader_epoch

    def commit(self, model: LogModel, high_watermark: int) -> Batch | None:
        """A leader calls everything below its high watermark committed.

        Returns a committed batch that its log contradicts, if there is one. What stands below the
        start of its log is deleted there and contradicts nothing: no reader can get it.
        """
        committed, bases = self._committed, self._bases
        newest = model.below(high_watermark)
        if newest is None:
            return None
        last = self.last_committed
        if last is None or last.next_offset <= newest.base_offset:
            start = model.index_at(0 if last is None else last.next_offset)
            stop = model.index_at(high_watermark)
            if (
                last is None
                or not start
                or model.batches[start - 1] is last
                or model.batches[start - 1].next_offset <= model.log_start
                or last.compacted_away
            ):
                committed.extend(model.batches[start:stop])
                bases.extend(model.bases[start:stop])
                return None
            return last
        if self.is_committed(newest) or newest.next_offset <= model.log_start:
            return None
        return self._at(newest.base_offset)

    def _at(self, offset: int) -> Batch:
        index = bisect_left(self._bases, offset + 1)
        return self._committed[max(0, index - 1)]

    def forget(self, model: LogModel) -> None:
        """A broker has deleted its log of the partition."""
        if self.models.get(model.broker_id) is model:
            del self.models[model.broker_id]

    def deleted(self, low_watermark: int) -> None:
        """A client got the answer that the records below are deleted."""
        self.deleted_to = max(self.deleted_to, low_watermark)


class PartitionModels:
    """Every partition that there ever was, by topic id: a topic made anew is another one."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._known: dict[tuple[TopicId, TopicPartition], PartitionModel] = {}

    def __iter__(self) -> Iterator[PartitionModel]:
        return iter(self._known.values())

    def of(self, at: TopicPartition, topic_id: TopicId) -> PartitionModel:
        """The partition of that topic."""
        partition = self._known.get((topic_id, at))
        if partition is None:
            partition = PartitionModel(at, topic_id, self._findings)
            self._known[topic_id, at] = partition
        return partition

    def named(self, at: TopicPartition) -> list[PartitionModel]:
        """The partitions of all topics that had that name."""
        return [partition for partition in self._known.values() if partition.at == at]
