"""What is true of one partition, whoever believes what: what is committed, what excuses its loss.

A record is committed when a leader's high watermark has passed it. That is remembered here for
ever; the replicas come, go and are compared with it. It is taken back in two cases only, both of
which must be permitted by what happened to the machines before: an unclean leader was elected, or
as many complete replicas lost what they had written as the topic's minimum of in-sync replicas.
Then the records that the next leader lacks are forgiven, and leaders from before count no more.

This file knows offsets and sets of brokers. It must not know nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from strandline.cluster.image import PartitionImage
from strandline.sim.checkers.batches import Batch, Batches
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId, TopicId, TopicPartition


class PartitionModel:
    """One partition of one topic; a topic that is made anew is another one.

    - `state`: the newest state in the store, `min_in_sync` the smallest effective minimum that a
      broker goes by.
    - `models`: the newest log of each broker, that of a dead process included.
    - `leaders`: who accepted leadership in each epoch: broker and life.
    - `floor`: leaders of epochs below commit nothing: a successor was permitted to contradict them.
    - `lossy`: members that lost what they had written and have not caught up since.
    - `weakest`: the smallest minimum under which something may have been committed that is not
      on more replicas by now.
    """

    def __init__(self, at: TopicPartition, topic_id: TopicId, findings: Findings) -> None:
        self.at = at
        self.topic_id = topic_id
        self.batches = Batches(str(at), findings)
        self.state: PartitionImage | None = None
        self.state_since_us = 0
        self.with_eligible: set[int] = set()
        """Partition epochs of states that name replicas which may lead beside the in-sync set."""
        self.min_in_sync = 1
        self.weakest = 1
        self.models: dict[BrokerId, LogModel] = {}
        self.leaders: dict[int, tuple[BrokerId, int]] = {}
        self.newest_epoch = -1
        self.floor = -1
        self.unclean_epoch = -1
        """The newest leader epoch that an unclean election began."""
        self.lossy: dict[BrokerId, None] = {}
        self.forgiven: set[Batch] = set()
        self.deleted_to = 0
        """Records below were deleted, as a client was told."""
        self.is_deletion_undone = False
        """Whether deleted records came back."""
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

    def was_committed(self, batch: Batch) -> bool:
        """Whether this very batch is committed, or was before its loss was permitted."""
        return self.is_committed(batch) or self.is_excused(batch)

    def is_excused(self, batch: Batch) -> bool:
        """Whether the batch was committed once and is permitted to be contradicted since."""
        return batch in self.forgiven

    def commit(self, model: LogModel, high_watermark: int) -> Batch | None:
        """A leader calls everything below its high watermark committed.

        Returns a committed batch that its log contradicts, if there is one. What stands below the
        start of its log is deleted there and contradicts nothing: nobody can read it.
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

    def forgive_beyond(self, model: LogModel) -> Sequence[Batch]:
        """The committed records that this log lacks are lost; returns them."""
        kept, visible = len(self._committed), model.visible_from
        while kept and not model.holds(self._committed[kept - 1]):
            if self._committed[kept - 1].next_offset <= visible:
                break  # deleted there, and so is everything below
            kept -= 1
        lost = self._committed[kept:]
        del self._committed[kept:], self._bases[kept:]
        self.forgiven.update(lost)
        return lost

    # -- What excuses loss -------------------------------------------------------------------

    @property
    def may_have_lost(self) -> bool:
        """Whether as many complete replicas lost something as the topic does not survive."""
        return len(self.lossy) >= self.weakest

    @property
    def members(self) -> tuple[BrokerId, ...]:
        """Who is said to have everything: in sync, or eligible."""
        state = self.state
        return () if state is None else (*state.in_sync_replicas, *state.elr)

    def lost(self, broker: BrokerId) -> None:
        """A machine has lost what it had written last, this partition perhaps included."""
        if broker in self.members:
            self.lossy[broker] = None

    def made_good(self, broker: BrokerId) -> None:
        """The broker has everything again, or lost nothing."""
        self.lossy.pop(broker, None)

    def forget(self, model: LogModel) -> None:
        """A broker has deleted its log of the partition."""
        if self.models.get(model.broker_id) is model:
            del self.models[model.broker_id]
            self.made_good(model.broker_id)

    def deleted(self, low_watermark: int) -> None:
        """A client was told that the records below are gone for good."""
        if low_watermark > self.deleted_to:
            self.deleted_to = low_watermark

    def came_back(self, log_start: int) -> None:
        """The newest leader's log starts there, so what was deleted from there on is back."""
        self.deleted_to = log_start
        self.is_deletion_undone = True

    def follow_minimum(self, min_in_sync: int) -> None:
        """The topic's setting, and the number of replicas in sync that bear what is committed."""
        self.min_in_sync = min_in_sync
        in_sync = 0 if self.state is None else len(self.state.in_sync_replicas)
        if in_sync >= min_in_sync or min_in_sync < self.weakest:
            self.weakest = min_in_sync
