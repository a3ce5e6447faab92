"""The share partitions of the partitions that this node leads: loaded, stored, and timed.

A share partition is loaded from its coordinator when a member first asks for it, and given up with
the leadership, or when the group's last session on this broker ends. Each change of its state wakes
the fetches that wait for it. Must not know requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

from strandline.config.allowed import share_reset_ms
from strandline.config.group import GroupConfig
from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.node.deadline_timer import DeadlineTimer
from strandline.node.metadata import Metadata
from strandline.node.purgatory import Purgatory, Watched
from strandline.node.replica import Replica
from strandline.node.settings import Settings
from strandline.node.sharing.persister import Answered, SharePersister
from strandline.node.timers import Timers
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.write_share_group_state import StateBatch
from strandline.sharing.partition import SharePartition
from strandline.sharing.records import ShareKey, stored_batches
from strandline.sharing.runs import StateBatch as RunBatch
from strandline.sharing.values import AckBatch, Limits
from strandline.types import NO_TOPIC_ID, Instant, Offset, TopicPartition

log = logging.getLogger(__name__)

READ_COMMITTED: Final = 1
READ_UNCOMMITTED: Final = 0

Told: TypeAlias = Callable[[ErrorCode, Instant], None]
"""Told once whether an acknowledgement counts."""

_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_UNKNOWN: Final = frozenset(
    {
        ErrorCode.INVALID_REQUEST,  # it is not initialised
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class LedSharePartition(Watched):
    """One share partition under one leadership. `state` is None until it is loaded."""

    __slots__ = (
        "error",
        "is_idle",
        "key",
        "leader_epoch",
        "replica",
        "state",
        "state_epoch",
        "timer",
        "told",
    )

    def __init__(self, key: ShareKey, replica: Replica) -> None:
        super().__init__()
        self.key = key
        self.replica = replica
        self.leader_epoch = replica.leader_epoch
        self.state: SharePartition | None = None
        self.state_epoch = 0
        self.error: ErrorCode | None = None
        """Why it was given up, or could not be loaded."""
        self.is_idle = False
        """Whether it is to be given up when no write is under way."""
        self.timer: DeadlineTimer | None = None
        self.told: dict[int, list[Told]] = {}
        """Who waits for which write."""

    def next_deadline(self) -> int | None:
        """When its state is to be looked at (monotonic, ms); None: nothing waits for time."""
        return None if self.state is None or self.error is not None else self.state.next_deadline()


class LedSharePartitions:
    """See the module."""

    def __init__(
        self,
        metadata: Metadata,
        settings: Settings,
        purgatory: Purgatory,
        timers: Timers,
        persister: SharePersister,
    ) -> None:
        self._metadata = metadata
        self._settings = settings
        self._purgatory = purgatory
        self._timers = timers
        self._persister = persister
        self._led: dict[TopicPartition, dict[str, LedSharePartition]] = {}
        """By partition and group."""
        self._by_group: dict[str, dict[TopicPartition, LedSharePartition]] = {}
        """The same the other way round. No empty groups."""

    def all(self) -> list[LedSharePartition]:
        """Every share partition that is loaded, or being loaded."""
        return [each for led in self._led.values() for each in led.values()]

    # -- Settings of groups ------------------------------------------------------------------

    def config_of(self, group_id: str) -> GroupConfig:
        """What is set for a group."""
        return self._settings.of_group(group_id, self._metadata.image)

    def limits_of(self, group_id: str) -> Limits:
        """What a group's settings allow."""
        config = self.config_of(group_id)
        return Limits(
            lock_ms=config.share_record_lock_duration_ms,
            deliveries_max=config.share_delivery_count_limit,
            window_max=config.share_partition_max_record_locks,
            may_renew=config.share_renew_acknowledge_enable,
        )

    # -- Coming and going --------------------------------------------------------------------

    def of(self, group_id: str, replica: Replica, now: Instant) -> LedSharePartition:
        """The share partition of a group in a partition that is led here; it may be loading."""
        led = self._led.setdefault(replica.topic_partition, {})
        known = led.get(group_id)
        if known is not None:
            if known.replica is replica and known.leader_epoch == replica.leader_epoch:
                known.is_idle = False
                return known
            self._give_up(known, ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
            led = self._led.setdefault(replica.topic_partition, {})
        topic = self._metadata.image.topics.get(replica.topic_partition.topic)
        topic_id = NO_TOPIC_ID if topic is None else topic.topic_id
        key = ShareKey(group_id, topic_id, replica.topic_partition.partition)
        made = led[group_id] = LedSharePartition(key, replica)
        self._by_group.setdefault(group_id, {})[replica.topic_partition] = made
        made.timer = DeadlineTimer(
            "share partition", self._timers, made.next_deadline, partial(self._tick, made)
        )
        self._persister.ask(
            ApiKey.READ_SHARE_GROUP_STATE,
            key,
            {"leader_epoch": made.leader_epoch},
            partial(self._loaded, made),
            now,
        )
        return made

    def _loaded(self, led: LedSharePartition, result: Any, now: Instant) -> None:
        if not self._is_there(led) or self._refused(led, result, now):
            return
        try:
            batches = stored_batches(result.state_batches)
        except CorruptRecords as error:
            log.error("The state of %s makes no sense: %s", led.key, error)
            self._give_up(led, ErrorCode.UNKNOWN_SERVER_ERROR, now)
            return
        led.state_epoch = result.state_epoch
        if result.start_offset >= 0:
            self._begin(led, result.start_offset, batches, now)
            return
        # It is stored before a member gets anything: a leader that comes after this one must not
        # begin behind records that a member had, and did not acknowledge.
        start = self._first_start(led, now)
        self._store(led, start, 0, (), partial(self._start_stored, led, start), now)

    def _start_stored(self, led: LedSharePartition, start: int, result: Any, now: Instant) -> None:
        if self._is_there(led) and not self._refused(led, result, now):
            self._begin(led, start, (), now)

    def _refused(self, led: LedSharePartition, result: Any, now: Instant) -> bool:
        """Give a share partition up if the coordinator refused; whether it did."""
        if not result.error_code:
            return False
        code = _for_members(ErrorCode(result.error_code))
        log.info("%s of %s: %s", led.replica.topic_partition, led.key.group_id, code.name)
        self._give_up(led, code, now)
        return True

    def _store(
        self,
        led: LedSharePartition,
        start: int,
        done_count: int,
        batches: Iterable[RunBatch],
        stored: Answered,
        now: Instant,
    ) -> None:
        fields = {
            "state_epoch": led.state_epoch,
            "leader_epoch": led.leader_epoch,
            "start_offset": start,
            "delivery_complete_count": done_count,
            "state_batches": [
                StateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.deliveries,
                )
                for batch in batches
            ],
        }
        self._persister.ask(ApiKey.WRITE_SHARE_GROUP_STATE, led.key, fields, stored, now)

    def _begin(
        self, led: LedSharePartition, start: int, batches: Sequence[RunBatch], now: Instant
    ) -> None:
        replica_log = led.replica.log
        state = SharePartition.loaded(
            start,
            batches,
            log_start=replica_log.log_start_offset,
            log_end=replica_log.log_end_offset,
        )
        write = state.next_write()
        if write is None:
            self._serve(led, state, now)
            return
        # The same holds for what the log has lost: to a leader that comes after this one, records
        # that take the offsets of accepted ones must not be accepted, too.
        stored = partial(self._losses_stored, led, state, write.write_id)
        self._store(led, write.start, write.done_count, write.batches, stored, now)

    def _losses_stored(
        self,
        led: LedSharePartition,
        state: SharePartition,
        write_id: int,
        result: Any,
        now: Instant,
    ) -> None:
        if self._is_there(led) and not self._refused(led, result, now):
            state.written(write_id, is_stored=True)
            self._serve(led, state, now)

    def _serve(self, led: LedSharePartition, state: SharePartition, now: Instant) -> None:
        led.state = state
        self.changed(led, now)

    def _first_start(self, led: LedSharePartition, now: Instant) -> int:
        """Where a group begins that has not read the partition yet: `share.auto.offset.reset`."""
        replica_log = led.replica.log
        reset = self.config_of(led.key.group_id).share_auto_offset_reset
        if reset == "earliest":
            return replica_log.log_start_offset
        ago_ms = share_reset_ms(reset)
        if ago_ms is not None:
            found = replica_log.reader.offset_for_timestamp(now.wall_ms - ago_ms)
            if found is not None and found.offset < replica_log.high_watermark:
                return found.offset
        return replica_log.high_watermark

    def forget(self, at: TopicPartition, now: Instant) -> None:
        """The leadership of a partition has changed."""
        for led in list(self._led.get(at, {}).values()):
            self._give_up(led, ErrorCode.NOT_LEADER_OR_FOLLOWER, now)

    def group_is_idle(self, group_id: str, now: Instant) -> None:
        """No member of a group has a session here any more: its next one starts from what is
        stored, which may have been changed meanwhile."""
        for led in list(self._by_group.get(group_id, {}).values()):
            led.is_idle = True
            self.changed(led, now)

    def _is_there(self, led: LedSharePartition) -> bool:
        return self._led.get(led.replica.topic_partition, {}).get(led.key.group_id) is led

    def _give_up(self, led: LedSharePartition, code: ErrorCode, now: Instant) -> None:
        at = led.replica.topic_partition
        del self._led[at][led.key.group_id]
        if not self._led[at]:
            del self._led[at]
        of_group = self._by_group[led.key.group_id]
        del of_group[at]
        if not of_group:
            del self._by_group[led.key.group_id]
        led.error = code
        if led.timer is not None:
            led.timer.set()
        told, led.told = led.told, {}
        for each in told.values():
            for tell in each:
                tell(code, now)
        self._purgatory.changed(led)

    # -- Members -----------------------------------------------------------------------------

    def acknowledge(
        self,
        led: LedSharePartition,
        member_id: str,
        batches: Sequence[AckBatch],
        told: Told,
        now: Instant,
    ) -> None:
        """Take over what a member says of its records; `told` when that counts, or is refused."""
        if led.state is None:
            # This leader has given nothing to the member.
            told(led.error or ErrorCode.INVALID_RECORD_STATE, now)
            return
        limits = self.limits_of(led.key.group_id)
        led.state.tick(limits, now)
        try:
            write_id = led.state.acknowledge(member_id, batches, limits, now)
        except ProtocolError as refusal:
            told(refusal.code, now)
        else:
            if write_id is None:
                told(ErrorCode.NONE, now)
            else:
                led.told.setdefault(write_id, []).append(told)
        self.changed(led, now)

    def release(self, group_id: str, member_id: str, now: Instant) -> None:
        """A member has gone: what it had is available."""
        limits = self.limits_of(group_id)
        for led in list(self._by_group.get(group_id, {}).values()):
            if led.state is not None:
                led.state.release(member_id, limits)
                self.changed(led, now)

    # -- States ------------------------------------------------------------------------------

    def changed(self, led: LedSharePartition, now: Instant) -> None:
        """A state may have changed: store it, keep its time, and wake those who wait for it."""
        self.follow(led, now)
        self._purgatory.changed(led)

    def follow(self, led: LedSharePartition, now: Instant) -> None:
        """A state may have changed, to no other member's gain: store it, and keep its time."""
        if not self._is_there(led):
            return
        state = led.state
        if led.is_idle and (state is None or not state.is_writing):
            self._give_up(led, ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
            return
        if state is None:
            return
        write = state.next_write()
        if write is not None:
            written = partial(self._written, led, write.write_id)
            self._store(led, write.start, write.done_count, write.batches, written, now)
        if led.timer is not None:
            led.timer.set()

    def _written(self, led: LedSharePartition, write_id: int, result: Any, now: Instant) -> None:
        if not self._is_there(led) or led.state is None:
            return
        code = ErrorCode(result.error_code)
        led.state.written(write_id, is_stored=code is ErrorCode.NONE)
        if code is not ErrorCode.NONE:
            log.warning("The state of %s could not be stored: %s", led.key, code.name)
            code = _for_members(code)
        for tell in led.told.pop(write_id, ()):
            tell(code, now)
        if code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            # Another leader has taken over, or the group's offsets were altered.
            if self._is_there(led):
                self._give_up(led, code, now)
        else:
            self.changed(led, now)

    def _tick(self, led: LedSharePartition, now: Instant) -> None:
        if led.state is not None and self._is_there(led):
            led.state.tick(self.limits_of(led.key.group_id), now)
            self.changed(led, now)

    def check(self) -> None:
        """Verify the invariants of all share partitions. To be asked between two turns."""
        for led in self.all():
            if led.state is not None:
                led.state.check()

    def readable_end(self, led: LedSharePartition) -> Offset:
        """Up to where a group may read."""
        return led.replica.readable_end(self.isolation_of(led.key.group_id))

    def isolation_of(self, group_id: str) -> int:
        """`share.isolation.level` as a number of Kafka's."""
        level = self.config_of(group_id).share_isolation_level
        return READ_COMMITTED if level == "read_committed" else READ_UNCOMMITTED


def _for_members(code: ErrorCode) -> ErrorCode:
    """What members are told if a coordinator refuses with `code`."""
    if code in _FENCED:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if code in _UNKNOWN:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return code
