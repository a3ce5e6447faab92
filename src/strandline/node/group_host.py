"""The node's side of the group coordinator: loads it, carries out its effects, keeps its time.

The coordinator is a state machine that knows neither logs nor the wire. This file turns its
appends into batches in `__consumer_offsets`, feeds the log's records back to it when a partition
is taken over, and hands its replies to whoever waits for them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.config.broker import BrokerConfig
from strandline.errors import CorruptRecords, ErrorCode, ProtocolError, StorageError
from strandline.groups.coordinator import GroupCoordinator
from strandline.groups.coordinator import Request as GroupRequest
from strandline.groups.effects import AppendRecords, Effect
from strandline.groups.offset_records import CoordinatorRecord
from strandline.groups.overview import GroupOverview
from strandline.groups.settings import GroupSettings
from strandline.node.group_answers import answer
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.timers import Timer, Timers
from strandline.records.batch import iterate_headers
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.control import parse_marker
from strandline.records.record import Record, read_records
from strandline.storage.log import Log
from strandline.types import NO_OFFSET, Instant, Offset, ProducerId, TopicId

log = logging.getLogger(__name__)

_READ_BYTES: Final = 1 << 20
_RETRY_MS: Final = 1000


class GroupHost:
    """Everything around one `GroupCoordinator`."""

    def __init__(
        self, coordinator: GroupCoordinator, replicas: Replicas, timers: Timers, codec: Codec
    ) -> None:
        self._coordinator = coordinator
        self._replicas = replicas
        self._timers = timers
        self._codec = codec
        self._timer: Timer | None = None

    def ask(self, request: GroupRequest, now: Instant) -> None:
        """Hand a request to the coordinator; its token is the wire request to be answered."""
        self._carry_out(self._coordinator.handle(request, now), now)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` in which a group lives."""
        return self._coordinator.partition_for(group_id)

    def overviews(self) -> list[GroupOverview]:
        """All groups that are coordinated here."""
        return self._coordinator.overviews()

    def became_leader(self, replica: Replica, now: Instant) -> None:
        """Load the groups of a partition of `__consumer_offsets` that is led here now."""
        partition = replica.topic_partition.partition
        try:
            effects, report = self._coordinator.load_partition(
                partition, replica.leader_epoch, committed_records(replica.log), now
            )
        except (CorruptRecords, StorageError) as error:
            # The groups of this partition stay away, and clients retry; all others are served.
            log.error("The groups in %s cannot be loaded: %s", replica.topic_partition, error)
            return
        if report is not None and (report.unknown_kinds or report.damaged_records):
            log.warning(
                "%s holds records that were skipped: %d damaged, %s of kinds that are not served",
                replica.topic_partition,
                report.damaged_records,
                dict(report.unknown_kinds),
            )
        self._carry_out(effects, now)

    def topics_deleted(self, topics: Iterable[tuple[str, TopicId]], now: Instant) -> None:
        """Forget the offsets of topics that are gone."""
        self._carry_out(self._coordinator.topics_deleted(topics, now), now)

    def _carry_out(self, effects: Iterable[Effect], now: Instant) -> None:
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            if isinstance(effect, AppendRecords):
                error = self._append(effect, now)
                queue += self._coordinator.appended(effect.append_id, error, now)
            else:
                answer(effect.token, effect.response)
        self._keep_time()

    def _append(self, effect: AppendRecords, now: Instant) -> ErrorCode | None:
        batch = build_batch(
            (Record(NO_OFFSET, now.wall_ms, record.key, record.value) for record in effect.records),
            codec=self._codec,
        )
        try:
            replica = self._replicas.leader(CONSUMER_OFFSETS, effect.partition)
            if replica.leader_epoch != effect.leader_epoch:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
            replica.append_as_coordinator(bytearray(batch), now.wall_ms)
        except ProtocolError as error:
            return error.code
        except StorageError as error:
            log.error("Group state could not be written: %s", error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return None

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
            log.exception("The time of the groups could not be kept")
            self._timer = self._timers.schedule(now.monotonic_ms + _RETRY_MS, self._tick)


def group_settings(broker: BrokerConfig) -> GroupSettings:
    """The coordinator's settings as the broker's configuration has them."""
    return GroupSettings(
        session_timeout_min_ms=broker.group_min_session_timeout_ms,
        session_timeout_max_ms=broker.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=broker.group_initial_rebalance_delay_ms,
        members_max=broker.group_max_size,
        offset_metadata_max=broker.offset_metadata_max_bytes,
        offset_commit_timeout_ms=broker.offsets_commit_timeout_ms,
        offsets_retention_ms=broker.offsets_retention_ms,
        offsets_retention_check_interval_ms=broker.offsets_retention_check_interval_ms,
    )


def committed_records(source: Log) -> Iterator[CoordinatorRecord]:
    """The records of a whole log in their order, without those of open and aborted transactions.

    A transaction's records come with its commit marker, except those that a plain record with the
    same key and a higher offset has overtaken.
    """
    undecided: dict[ProducerId, list[Record]] = {}
    overtakers: dict[bytes, Offset] = {}
    position = source.log_start_offset
    while position < source.log_end_offset:
        found = source.read(
            position, _READ_BYTES, end_offset=source.log_end_offset, at_least_one_batch=True
        )
        if found is None:
            return
        data = found.file.read_at(found.position, found.length)
        for at, header in iterate_headers(data):
            position = header.next_offset
            records = list(read_records(data, at))
            if header.is_control:
                ended = undecided.pop(header.producer_id, [])
                if any(
                    marker is not None and marker.commits for marker in map(parse_marker, records)
                ):
                    yield from (
                        CoordinatorRecord(record.key or b"", record.value)
                        for record in ended
                        if record.offset > overtakers.get(record.key or b"", NO_OFFSET)
                    )
                if not undecided:
                    overtakers.clear()
            elif header.is_transactional:
                undecided.setdefault(header.producer_id, []).extend(records)
            else:
                if undecided:
                    overtakers.update((record.key or b"", record.offset) for record in records)
                yield from (CoordinatorRecord(r.key or b"", r.value) for r in records)
