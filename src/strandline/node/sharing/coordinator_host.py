"""The node's side of the share coordinator: loads it, carries out effects, keeps its time.

As `transaction_host` for transactions. A partition of `__share_group_state` is served once all that
was found in its log is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

from strandline.cluster.topic_names import SHARE_GROUP_STATE
from strandline.config.broker import BrokerConfig
from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.coordinator_loading import Load, Loading, ReadRecords, replay_plain
from strandline.node.coordinator_topic import CoordinatorTopic, state_batch
from strandline.node.deadline_timer import DeadlineTimer
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.timers import Timers
from strandline.sharing.coordinator import ShareCoordinator
from strandline.sharing.effects import (
    AppendRecords,
    Done,
    Effect,
    Prune,
    Reply,
    ShareCoordinatorSettings,
)
from strandline.types import Instant, LeaderEpoch, Offset, TopicId, TopicPartition

log = logging.getLogger(__name__)


class ShareCoordinatorHost:
    """Everything around one `ShareCoordinator`."""

    def __init__(
        self, coordinator: ShareCoordinator, replicas: Replicas, timers: Timers, read_bytes: int
    ) -> None:
        """Of a log `read_bytes` are read at once."""
        self.coordinator = coordinator
        self._topic = CoordinatorTopic(SHARE_GROUP_STATE, replicas, self._ended)
        self._replicas = replicas
        self._timer = DeadlineTimer(
            "share partitions", timers, coordinator.next_deadline, self._tick
        )
        self._loading = Loading(
            "share partitions",
            timers,
            read_bytes,
            replay=self._replay,
            finish=self._await_commit,
            drop=self.lost_leadership,
            lead=self.became_leader,
        )

    def ask(self, body: object, done: Done, now: Instant) -> None:
        """Hand a request to the coordinator, whose response `done` gets."""
        self._carry_out(self.coordinator.handle(body, done, now), now)

    @property
    def loading(self) -> list[int]:
        """Partitions of `__share_group_state` that are led here and not served yet."""
        return self._loading.partitions

    def topics_deleted(self, topic_ids: Iterable[TopicId], now: Instant) -> None:
        """Topics are gone, and with them their share partitions."""
        self._carry_out(self.coordinator.topics_deleted(topic_ids, now), now)

    # -- Partitions --------------------------------------------------------------------------

    def became_leader(self, replica: Replica, now: Instant) -> None:
        """Load a partition of `__share_group_state` that is led here now."""
        partition, epoch = replica.topic_partition.partition, replica.leader_epoch
        effects = self.coordinator.start_loading(partition, epoch, now)
        load = self._loading.begin(replica)
        self._carry_out(effects, now)
        self._loading.go_on(load, now)

    def lost_leadership(self, replica: Replica, now: Instant) -> None:
        """Another broker keeps the states of this partition, or none does."""
        partition = replica.topic_partition.partition
        self._loading.done(partition)
        self._carry_out(self.coordinator.unload_partition(partition, now), now)

    def _replay(self, load: Load, records: ReadRecords) -> None:
        replay_plain(self.coordinator.replay, load, records)

    def _await_commit(self, load: Load, now: Instant) -> None:
        self._loading.when_committed(load, self._loaded, now)

    def _loaded(self, load: Load, now: Instant) -> None:
        effects = self.coordinator.finish_loading(load.partition, load.leader_epoch, now)
        self._carry_out(effects, now)

    # -- Effects -----------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[Effect], now: Instant) -> None:
        queue = deque(effects)
        while queue:
            match queue.popleft():
                case AppendRecords() as effect:
                    for outcome in self._append(effect, now):
                        queue += self.coordinator.appended(effect.append_id, outcome, now)
                case Reply(done, response):
                    done(response, now)
                case Prune(partition, leader_epoch, before):
                    self._prune(partition, leader_epoch, before)
        self._timer.set()

    def _append(self, effect: AppendRecords, now: Instant) -> Iterable[ErrorCode | None]:
        batch = state_batch(effect.records, now)
        replica = self._replicas.find(TopicPartition(SHARE_GROUP_STATE, effect.partition))
        if replica is not None:
            self.coordinator.placed(effect.append_id, replica.log.log_end_offset)
        return self._topic.append(
            effect.partition, effect.leader_epoch, effect.append_id, batch, now
        )

    def _prune(self, partition: int, leader_epoch: LeaderEpoch, before: int) -> None:
        """Delete what newer snapshots stand for, as DeleteRecords would."""
        try:
            replica = self._replicas.leader(SHARE_GROUP_STATE, partition)
            if replica.leader_epoch == leader_epoch and before <= replica.log.high_watermark:
                replica.log.retention.delete_records_to(Offset(before))
                replica.changed()
        except (ProtocolError, StorageError) as error:
            log.warning("%s-%d could not be pruned: %s", SHARE_GROUP_STATE, partition, error)

    def _ended(self, append_id: int, error: ErrorCode | None, now: Instant) -> None:
        self._carry_out(self.coordinator.appended(append_id, error, now), now)

    def _tick(self, now: Instant) -> None:
        self._carry_out(self.coordinator.tick(now), now)


def share_coordinator_settings(broker: BrokerConfig) -> ShareCoordinatorSettings:
    """The coordinator's settings as the broker's configuration has them."""
    return ShareCoordinatorSettings(
        updates_per_snapshot=broker.share_coordinator_snapshot_update_records_per_snapshot,
        write_timeout_ms=broker.share_coordinator_write_timeout_ms,
        prune_interval_ms=broker.share_coordinator_state_topic_prune_interval_ms,
    )
