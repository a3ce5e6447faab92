"""The node's side of the transaction coordinator: loads it, carries out effects, keeps its time.

As `group_host` for the group coordinator. A partition of `__transaction_state` is served once all
that was found in its log is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any

from strandline.cluster.topic_names import TRANSACTION_STATE
from strandline.config.broker import BrokerConfig
from strandline.errors import (
    ErrorCode,
    InvariantViolated,
    ProtocolError,
)
from strandline.node.coordinator_loading import Load, Loading, ReadRecords, replay_plain
from strandline.node.coordinator_topic import CoordinatorTopic, state_batch
from strandline.node.deadline_timer import DeadlineTimer
from strandline.node.marker_sending import MarkerSender
from strandline.node.producer_ids import ProducerIds
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.timers import Timers
from strandline.transactions.coordinator import TransactionCoordinator
from strandline.transactions.effects import (
    AppendRecords,
    Call,
    CancelMarkers,
    Effect,
    Reply,
    SendMarkers,
    TakeProducerId,
)
from strandline.transactions.producing import Joins
from strandline.transactions.settings import TransactionSettings
from strandline.transactions.shard import Entry
from strandline.types import Instant, ProducerEpoch, ProducerId, TopicPartition

log = logging.getLogger(__name__)

Done = Callable[[Any, Instant], object]
"""Gets the coordinator's response."""


@dataclass(slots=True, eq=False)
class _Asked:
    """The coordinator's token for a request: who gets its answer."""

    done: Done


class TransactionHost:
    """Everything around one `TransactionCoordinator`."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        replicas: Replicas,
        timers: Timers,
        producer_ids: ProducerIds,
        markers: MarkerSender,
        read_bytes: int,
    ) -> None:
        """Of a log `read_bytes` are read at once."""
        self._coordinator = coordinator
        self._topic = CoordinatorTopic(TRANSACTION_STATE, replicas, self._ended)
        self._producer_ids = producer_ids
        self._markers = markers
        self._timer = DeadlineTimer("transactions", timers, coordinator.next_deadline, self._tick)
        self._loading = Loading(
            "transactions",
            timers,
            read_bytes,
            replay=self._replay,
            finish=self._await_commit,
            drop=self.lost_leadership,
            lead=self.became_leader,
        )
        markers.written = self._markers_written

    def ask(self, body: object, version: int, done: Done, now: Instant) -> None:
        """Hand a request to the coordinator, whose response `done` gets."""
        call = Call(_Asked(done), version, body)
        self._carry_out(self._coordinator.handle(call, now), now)

    def join(
        self, asked: Joins, partitions: frozenset[TopicPartition], done: Done, now: Instant
    ) -> None:
        """Let partitions that are led here join a transaction; `done` gets the outcome of each."""
        self._carry_out(self._coordinator.join(_Asked(done), asked, partitions, now), now)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` in which an id lives."""
        return self._coordinator.partition_for(transactional_id)

    def confirms(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Set[TopicPartition],
    ) -> bool:
        """See `TransactionCoordinator`."""
        return self._coordinator.confirms(transactional_id, producer_id, producer_epoch, partitions)

    @property
    def loading(self) -> list[int]:
        """Partitions of `__transaction_state` that are led here and not served yet."""
        return self._loading.partitions

    def open_transactions(self) -> list[tuple[int, Entry]]:
        """See `TransactionCoordinator`."""
        return self._coordinator.open_transactions()

    @property
    def is_deciding(self) -> bool:
        """Whether a transaction that is coordinated here is being ended."""
        return self._coordinator.is_deciding

    def check(self) -> None:
        """Verify the coordinator's invariants."""
        self._coordinator.check()

    # -- Partitions --------------------------------------------------------------------------

    def became_leader(self, replica: Replica, now: Instant) -> None:
        """Load a partition of `__transaction_state` that is led here now."""
        partition, epoch = replica.topic_partition.partition, replica.leader_epoch
        effects = self._coordinator.start_loading(partition, epoch, now)
        load = self._loading.begin(replica)
        self._carry_out(effects, now)
        self._loading.go_on(load, now)

    def lost_leadership(self, replica: Replica, now: Instant) -> None:
        """Another broker coordinates the transactions of this partition, or none does."""
        partition = replica.topic_partition.partition
        self._loading.done(partition)
        effects = self._coordinator.unload_partition(partition, replica.leader_epoch)
        self._carry_out(effects, now)

    def deleted(self, partition: int, now: Instant) -> None:
        """The topic is gone. To be told of every partition, also of those that others led."""
        self._loading.done(partition)
        self._carry_out(self._coordinator.unload_partition(partition, None), now)

    def _replay(self, load: Load, records: ReadRecords) -> None:
        """Raises `CorruptRecords`: no transaction may end otherwise than was decided."""
        replay_plain(self._coordinator.replay, load, records)

    def _await_commit(self, load: Load, now: Instant) -> None:
        self._loading.when_committed(load, self._loaded, now)

    def _loaded(self, load: Load, now: Instant) -> None:
        effects = self._coordinator.finish_loading(load.partition, load.leader_epoch)
        self._carry_out(effects, now)

    # -- Effects -----------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[Effect], now: Instant) -> None:
        queue = deque(effects)
        while queue:
            match queue.popleft():
                case AppendRecords() as effect:
                    for outcome in self._append(effect, now):
                        queue += self._coordinator.appended(effect.append_id, outcome, now)
                case Reply(_Asked(done), response):
                    done(response, now)
                case TakeProducerId(request_id):
                    self._take_producer_id(request_id, now)
                case SendMarkers() as effect:
                    self._markers.send(effect, now)
                case CancelMarkers(partition):
                    self._markers.cancel(partition)
                case effect:
                    raise InvariantViolated(f"{effect!r} was not asked here.")
        self._timer.set()

    def _append(self, effect: AppendRecords, now: Instant) -> Iterable[ErrorCode | None]:
        batch = state_batch(effect.records, now)
        return self._topic.append(
            effect.partition, effect.leader_epoch, effect.append_id, batch, now
        )

    def _ended(self, append_id: int, error: ErrorCode | None, now: Instant) -> None:
        self._carry_out(self._coordinator.appended(append_id, error, now), now)

    def _markers_written(self, send_id: int, now: Instant) -> None:
        self._carry_out(self._coordinator.markers_written(send_id, now), now)

    def _take_producer_id(self, request_id: int, now: Instant) -> None:
        def answer(taken: ProducerId | ProtocolError, at: Instant) -> None:
            outcome = (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
                if isinstance(taken, ProtocolError)
                else taken
            )
            self._carry_out(self._coordinator.producer_id_taken(request_id, outcome, at), at)

        self._producer_ids.take(answer, now)

    def _tick(self, now: Instant) -> None:
        self._carry_out(self._coordinator.tick(now), now)


def transaction_settings(broker: BrokerConfig) -> TransactionSettings:
    """The coordinator's settings as the broker's configuration has them."""
    return TransactionSettings(
        timeout_max_ms=broker.transaction_max_timeout_ms,
        abort_interval_ms=broker.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        id_expiration_ms=broker.transactional_id_expiration_ms,
        expiry_interval_ms=broker.transaction_remove_expired_transaction_cleanup_interval_ms,
        join_wait_max_ms=broker.add_partitions_to_txn_retry_backoff_max_ms,
    )
