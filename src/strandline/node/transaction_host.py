"""The node's side of the transaction coordinator: loads it, carries out effects, keeps its time.

As `group_host` for the group coordinator. A partition of `__transaction_state` is served once all
that was found in its log is committed.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from strandline.cluster.topic_names import TRANSACTION_STATE
from strandline.config.broker import BrokerConfig
from strandline.errors import (
    CorruptRecords,
    ErrorCode,
    InvariantViolated,
    ProtocolError,
    StorageError,
)
from strandline.node.coordinator_topic import CoordinatorTopic, committed_records
from strandline.node.marker_sending import MarkerSender
from strandline.node.producer_ids import ProducerIds
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.timers import Timer, Timers
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.records.builder import build_batch
from strandline.records.record import Record
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
from strandline.transactions.settings import TransactionSettings
from strandline.transactions.shard import Entry
from strandline.types import NO_OFFSET, Instant, LeaderEpoch, Offset, ProducerId

log = logging.getLogger(__name__)

_RETRY_MS: Final = 1000
_RECORDS_PER_STEP: Final = 2000
_LOOK_AGAIN_MS: Final = 60_000

Done = Callable[[Any, Instant], object]
"""Gets the coordinator's response."""


@dataclass(slots=True, eq=False)
class _Asked:
    """The coordinator's token for a request: who gets its answer."""

    done: Done


class _Load(NamedTuple):
    """A partition whose records are being read."""

    replica: Replica
    leader_epoch: LeaderEpoch
    end_offset: Offset
    records: Iterator[CoordinatorRecord | OpenRecord]


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
        self._timers = timers
        self._producer_ids = producer_ids
        self._markers = markers
        self._read_bytes = read_bytes
        self._timer: Timer | None = None
        self._loads: dict[int, _Load] = {}
        markers.written = self._markers_written

    def ask(self, body: object, version: int, done: Done, now: Instant) -> None:
        """Hand a request to the coordinator, whose response `done` gets."""
        call = Call(_Asked(done), version, body)
        self._carry_out(self._coordinator.handle(call, now), now)

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` in which an id lives."""
        return self._coordinator.partition_for(transactional_id)

    @property
    def loading(self) -> list[int]:
        """Partitions of `__transaction_state` that are led here and not served yet."""
        return sorted(self._loads)

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
        end_offset = replica.log.log_end_offset
        records = committed_records(replica.log, end_offset, self._read_bytes)
        load = self._loads[partition] = _Load(replica, epoch, end_offset, records)
        self._carry_out(effects, now)
        self._load_on(load, now)

    def lost_leadership(self, replica: Replica, now: Instant) -> None:
        """Another broker coordinates the transactions of this partition, or none does."""
        partition = replica.topic_partition.partition
        self._loads.pop(partition, None)
        effects = self._coordinator.unload_partition(partition, replica.leader_epoch)
        self._carry_out(effects, now)

    def _load_on(self, load: _Load, now: Instant) -> None:
        """The next step of loading, if the partition is still led here in the same epoch."""
        at = load.replica.topic_partition
        if self._loads.get(at.partition) is not load:
            return
        try:
            records = list(islice(load.records, _RECORDS_PER_STEP))
            plain = [record for record in records if isinstance(record, CoordinatorRecord)]
            skipped = self._coordinator.replay(at.partition, load.leader_epoch, plain)
        except (CorruptRecords, StorageError) as error:
            # These transactions stay away, and clients retry: none may end otherwise than decided.
            log.error("The transactions in %s cannot be loaded: %s", at, error)
            if isinstance(error, StorageError):
                load.replica.failed_to_read(error)
                self._timers.schedule(now.monotonic_ms + _RETRY_MS, partial(self._reload, load))
            return
        if skipped:
            log.warning("%s holds %d records of kinds that are not served", at, skipped)
        if len(records) == _RECORDS_PER_STEP:
            self._timers.schedule(now.monotonic_ms + 1, lambda later: self._load_on(load, later))
        else:
            self._await_commit(load, now)

    def _reload(self, load: _Load, now: Instant) -> None:
        """Begin anew with what could not be read for want of descriptors."""
        if self._loads.get(load.replica.topic_partition.partition) is load:
            self.lost_leadership(load.replica, now)
            self.became_leader(load.replica, now)

    def _await_commit(self, load: _Load, now: Instant) -> None:
        """Serve what was read once it cannot be lost any more."""

        def decided(code: ErrorCode, at: Instant) -> None:
            if self._loads.get(load.replica.topic_partition.partition) is not load:
                return
            if code is ErrorCode.REQUEST_TIMED_OUT:
                self._await_commit(load, at)
            elif code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                self._loaded(load, at)

        code = load.replica.commit_outcome(load.end_offset)
        if code is not None:
            decided(code, now)
        else:
            deadline_ms = now.monotonic_ms + _LOOK_AGAIN_MS
            load.replica.await_commit(load.end_offset, decided, deadline_ms=deadline_ms)

    def _loaded(self, load: _Load, now: Instant) -> None:
        partition = load.replica.topic_partition.partition
        del self._loads[partition]
        self._carry_out(self._coordinator.finish_loading(partition, load.leader_epoch), now)

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
        self._keep_time()

    def _append(self, effect: AppendRecords, now: Instant) -> Iterable[ErrorCode | None]:
        batch = build_batch(
            Record(NO_OFFSET, now.wall_ms, record.key, record.value) for record in effect.records
        )
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

    def _keep_time(self) -> None:
        deadline_ms = self._coordinator.next_deadline()
        timer = self._timer
        if timer is not None and timer.callback is not None:
            if timer.at_ms == deadline_ms:
                return
            timer.cancel()
        self._timer = None
        if deadline_ms is not None:
            self._timer = self._timers.schedule(deadline_ms, self._tick)

    def _tick(self, now: Instant) -> None:
        try:
            self._carry_out(self._coordinator.tick(now), now)
        except Exception:
            log.exception("The time of the transactions could not be kept")
            self._timer = self._timers.schedule(now.monotonic_ms + _RETRY_MS, self._tick)


def transaction_settings(broker: BrokerConfig) -> TransactionSettings:
    """The coordinator's settings as the broker's configuration has them."""
    return TransactionSettings(
        timeout_max_ms=broker.transaction_max_timeout_ms,
        abort_interval_ms=broker.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        id_expiration_ms=broker.transactional_id_expiration_ms,
        expiry_interval_ms=broker.transaction_remove_expired_transaction_cleanup_interval_ms,
    )
