"""Which partitions of `__consumer_offsets` this broker coordinates, under which leader epochs.

This file knows epochs, and how far the loading of each partition is. It must not know what groups
do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.metadata_hash import TopicHashes
from strandline.groups.loading_shard import LoadingShard
from strandline.groups.serving import ServedShard
from strandline.groups.shard import Shard, Surroundings
from strandline.protocol.coordinator_log import partition_for
from strandline.types import LeaderEpoch, TopicId


@dataclass(frozen=True, slots=True)
class _Owned:
    """A partition of ours: under which epoch, and how far its loading is."""

    epoch: LeaderEpoch
    state: LoadingShard | ServedShard


class OwnedShards:
    """See the module. Iterates over those that are served."""

    def __init__(
        self,
        surroundings: Surroundings,
        hashes: TopicHashes,
        partition_count: Callable[[], int],
    ) -> None:
        self._surroundings = surroundings
        self._hashes = hashes
        self._partition_count = partition_count
        self._owned: dict[int, _Owned] = {}
        self._newest_epochs: dict[int, LeaderEpoch] = {}
        """The newest epoch heard of, for every partition that was owned or given up since its topic
        was made."""

    def __iter__(self) -> Iterator[ServedShard]:
        for owned in self._owned.values():
            if isinstance(owned.state, ServedShard):
                yield owned.state

    @property
    def are_loaded(self) -> bool:
        """Whether all that are owned are served."""
        return not any(isinstance(each.state, LoadingShard) for each in self._owned.values())

    def partition_for(self, group_id: str) -> int:
        """The partition in which a group lives."""
        return partition_for(group_id, self._partition_count())

    def served(self, group_id: str) -> ServedShard:
        """The shard of a group. Raises `ProtocolError`: NOT_COORDINATOR and
        COORDINATOR_LOAD_IN_PROGRESS."""
        owned = self._owned.get(self.partition_for(group_id))
        if owned is None:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if isinstance(owned.state, LoadingShard):
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return owned.state

    def at(self, partition: int) -> ServedShard | None:
        """The shard of a partition, if it is served."""
        owned = self._owned.get(partition)
        return owned.state if owned and isinstance(owned.state, ServedShard) else None

    def loading(self, partition: int, epoch: LeaderEpoch) -> LoadingShard | None:
        """The shard of a partition, if it is loading under that epoch."""
        owned = self._owned.get(partition)
        if owned is None or owned.epoch != epoch or isinstance(owned.state, ServedShard):
            return None
        return owned.state

    def owns(self, partition: int, epoch: LeaderEpoch) -> bool:
        """Whether the partition is owned under that very epoch."""
        owned = self._owned.get(partition)
        return owned is not None and owned.epoch == epoch

    def is_news(self, partition: int, epoch: LeaderEpoch) -> bool:
        """Whether no newer epoch of the partition was heard of."""
        return epoch >= self._newest_epochs.get(partition, epoch)

    def begin(self, partition: int, epoch: LeaderEpoch) -> None:
        """The partition is to be loaded."""
        shard = Shard(partition, epoch, self._surroundings)
        served = ServedShard(shard, self._hashes)
        self._owned[partition] = _Owned(epoch, LoadingShard(served))

    def remember_deleted(self, topics: Sequence[tuple[str, TopicId]]) -> None:
        """Topics are gone: partitions that are loading see to it when they are loaded."""
        for owned in self._owned.values():
            if isinstance(owned.state, LoadingShard):
                owned.state.topics_deleted(topics)

    def serve(self, partition: int, epoch: LeaderEpoch, served: ServedShard) -> None:
        """The partition is loaded."""
        self._owned[partition] = _Owned(epoch, served)

    def give_up(self, partition: int, epoch: LeaderEpoch | None) -> ServedShard | None:
        """The epoch is news, and ends what was owned before: given back if it was served. None:
        the partition is gone with its topic; the epochs of one that is made again begin at 0."""
        if epoch is None:
            self._newest_epochs.pop(partition, None)
        else:
            self._newest_epochs[partition] = epoch
        owned = self._owned.pop(partition, None)
        return owned.state if owned and isinstance(owned.state, ServedShard) else None
