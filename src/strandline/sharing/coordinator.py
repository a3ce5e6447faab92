"""The share coordinator of one broker: keeps the states of share partitions, and fences their old
leaders.

Share partitions are spread over the partitions of `__share_group_state` by a hash of their names;
this broker keeps those of the partitions that it leads. A part that decides: requests, ends of
appends and the time come in, effects come out, in order.

    Initialize   a share partition begins, under a state epoch that only grows
    Read         its leader takes it over: from then on no older leader may write
    Write        what changed, from the leader of the newest epoch alone
    Summary      where it starts
    Delete       it ends
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError
from strandline.protocol.coordinator_log import CoordinatorRecord, partition_for
from strandline.protocol.messages.delete_share_group_state import DeleteShareGroupStateRequest
from strandline.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
)
from strandline.protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    StateBatch,
)
from strandline.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
)
from strandline.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from strandline.sharing.answer import Answer, Part, tell_end
from strandline.sharing.effects import Done, Effect, Prune, Reply, ShareCoordinatorSettings
from strandline.sharing.records import Change, ShareKey, ShareState, Update, stored_batches
from strandline.sharing.shard import Shard
from strandline.sharing.state import UNCHANGED, combined
from strandline.types import NO_TOPIC_ID, Instant, LeaderEpoch, TopicId


def coordinator_key(key: ShareKey, uuid_text: Callable[[TopicId], str]) -> str:
    """The name by which a share partition's coordinator is found."""
    return f"{key.group_id}:{uuid_text(key.topic_id)}:{key.partition}"


@dataclass(frozen=True, slots=True)
class _Owned:
    """A partition of ours, and whether its records are all in."""

    shard: Shard
    is_loaded: bool = False
    deleted: set[TopicId] = field(default_factory=set)
    """Topics that went while it was loading."""


class ShareCoordinator:
    """See the module."""

    def __init__(
        self,
        settings: ShareCoordinatorSettings,
        *,
        partition_count: Callable[[], int],
        uuid_text: Callable[[TopicId], str],
        has_partition: Callable[[TopicId, int], bool],
    ) -> None:
        """`partition_count` tells how many partitions `__share_group_state` has now; `uuid_text`
        writes a topic id as Kafka does; `has_partition` knows the topics."""
        self._settings = settings
        self._partition_count = partition_count
        self._uuid_text = uuid_text
        self._has_partition = has_partition
        self._owned: dict[int, _Owned] = {}
        self._appends = 0
        self._appending: dict[int, Shard] = {}
        self._effects: list[Effect] = []
        self._prune_at_ms: int | None = None

    def partition_for(self, key: ShareKey) -> int:
        """The partition of `__share_group_state` in which a share partition lives."""
        return self.partition_for_name(coordinator_key(key, self._uuid_text))

    def partition_for_name(self, name: str) -> int:
        """As `partition_for`, by the name that FindCoordinator is asked with."""
        return partition_for(name, self._partition_count())

    # -- Requests ----------------------------------------------------------------------------

    def handle(self, request: Any, done: Done, now: Instant) -> list[Effect]:
        """Handle a request of the five; `done` gets its response, when all of it is durable."""
        handle = {
            InitializeShareGroupStateRequest: self._initialize,
            ReadShareGroupStateRequest: self._read,
            WriteShareGroupStateRequest: self._write,
            DeleteShareGroupStateRequest: self._delete,
            ReadShareGroupStateSummaryRequest: self._summarize,
        }[type(request)]
        answer = Answer(request, lambda response: self._effects.append(Reply(done, response)))
        for topic_id, item, part in answer.parts():
            key = ShareKey(request.group_id, topic_id, item.partition)
            try:
                handle(self._shard(key), key, item, part, now)
            except ProtocolError as refusal:
                part(error=refusal)
            except CorruptRecords as error:
                part(error=ProtocolError(ErrorCode.INVALID_REQUEST, str(error)))
        return self._drain()

    def _shard(self, key: ShareKey) -> Shard:
        if not key.group_id or key.topic_id == NO_TOPIC_ID or key.partition < 0:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "A group id, a topic id and a partition are needed."
            )
        owned = self._owned.get(self.partition_for(key))
        if owned is None:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if not owned.is_loaded:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return owned.shard

    def _initialize(self, shard: Shard, key: ShareKey, item: Any, part: Part, now: Instant) -> None:
        known = shard.current(key)
        if known is not None and known.state_epoch > item.state_epoch != UNCHANGED:
            raise ProtocolError(
                ErrorCode.FENCED_STATE_EPOCH,
                f"The state epoch is {known.state_epoch}, not {item.state_epoch}.",
            )
        self._check_topic(key)
        if known is not None and known.state_epoch == item.state_epoch:
            # Asked again, by a group coordinator that did not hear the answer, or by the one before
            # it: members may have acknowledged records meanwhile.
            due_ms = now.monotonic_ms + self._settings.write_timeout_ms
            shard.when_durable(key, due_ms, partial(tell_end, part), now)
            return
        state = ShareState(
            snapshot_epoch=0 if known is None else known.snapshot_epoch + 1,
            state_epoch=item.state_epoch,
            leader_epoch=0 if known is None else known.leader_epoch,
            start=item.start_offset,
            created_ms=now.wall_ms,
            written_ms=now.wall_ms,
        )
        self._change(shard, [(key, state)], now, partial(tell_end, part))

    def _read(self, shard: Shard, key: ShareKey, item: Any, part: Part, now: Instant) -> None:
        known = self._known(shard, key, item.leader_epoch)
        self._check_topic(key)

        def ended(error: ErrorCode | None, _at: Instant) -> None:
            if error is not None:
                tell_end(part, error, _at)
                return
            state = shard.current(key) or known
            part(
                state_epoch=state.state_epoch,
                start_offset=state.start,
                state_batches=[
                    StateBatch(
                        first_offset=batch.first,
                        last_offset=batch.last,
                        delivery_state=batch.state,
                        delivery_count=batch.deliveries,
                    )
                    for batch in state.batches
                ],
            )

        if item.leader_epoch in (UNCHANGED, known.leader_epoch):
            due_ms = now.monotonic_ms + self._settings.write_timeout_ms
            shard.when_durable(key, due_ms, ended, now)
            return
        taken = self._updating(shard, key, known, item.leader_epoch, known.start, now=now)
        self._change(shard, [(key, taken)], now, ended)

    def _write(self, shard: Shard, key: ShareKey, item: Any, part: Part, now: Instant) -> None:
        known = self._known(shard, key, item.leader_epoch)
        if known.state_epoch > item.state_epoch != UNCHANGED:
            raise ProtocolError(
                ErrorCode.FENCED_STATE_EPOCH,
                f"The state epoch is {known.state_epoch}, not {item.state_epoch}.",
            )
        self._check_topic(key)
        change = self._updating(
            shard,
            key,
            known,
            item.leader_epoch,
            item.start_offset,
            now=now,
            batches=stored_batches(item.state_batches),
            done_count=item.delivery_complete_count,
        )
        self._change(shard, [(key, change)], now, partial(tell_end, part))

    def _summarize(self, shard: Shard, key: ShareKey, item: Any, part: Part, now: Instant) -> None:
        del item
        known = shard.current(key)
        if known is None:
            part(start_offset=-1, delivery_complete_count=-1)
            return

        def ended(error: ErrorCode | None, _at: Instant) -> None:
            if error is not None:
                tell_end(part, error, _at)
                return
            part(
                state_epoch=known.state_epoch,
                leader_epoch=known.leader_epoch,
                start_offset=known.start,
                delivery_complete_count=known.done_count,
            )

        due_ms = now.monotonic_ms + self._settings.write_timeout_ms
        shard.when_durable(key, due_ms, ended, now)

    def _delete(self, shard: Shard, key: ShareKey, item: Any, part: Part, now: Instant) -> None:
        del item
        if shard.current(key) is None:
            # Asked again, maybe: what is answered must not be lost with this coordinator.
            due_ms = now.monotonic_ms + self._settings.write_timeout_ms
            shard.when_durable(key, due_ms, partial(tell_end, part), now)
            return
        self._change(shard, [(key, None)], now, partial(tell_end, part))

    def _known(self, shard: Shard, key: ShareKey, leader_epoch: int) -> ShareState:
        known = shard.current(key)
        if known is None:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST, "The share partition has not been initialized."
            )
        if known.leader_epoch > leader_epoch != UNCHANGED:
            raise ProtocolError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"The leader epoch is {known.leader_epoch}, not {leader_epoch}.",
            )
        return known

    def _check_topic(self, key: ShareKey) -> None:
        if not self._has_partition(key.topic_id, key.partition):
            raise ProtocolError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _updating(
        self,
        shard: Shard,
        key: ShareKey,
        known: ShareState,
        leader_epoch: int,
        start: int,
        *,
        now: Instant,
        batches: tuple[Any, ...] = (),
        done_count: int | None = None,
    ) -> Change:
        """An update, or after so many of them a snapshot."""
        done = known.done_count if done_count is None else done_count
        epoch = known.leader_epoch if leader_epoch == UNCHANGED else leader_epoch
        start = known.start if start == UNCHANGED else start
        if shard.updates(key) < self._settings.updates_per_snapshot:
            return Update(
                snapshot_epoch=known.snapshot_epoch,
                leader_epoch=epoch,
                start=start,
                done_count=done,
                batches=combined((), batches, start),
            )
        return replace(
            known,
            snapshot_epoch=known.snapshot_epoch + 1,
            leader_epoch=epoch,
            start=start,
            done_count=done,
            written_ms=now.wall_ms,
            batches=combined(known.batches, batches, start),
        )

    def _change(
        self,
        shard: Shard,
        changes: Iterable[tuple[ShareKey, Change]],
        now: Instant,
        outcome: Callable[[ErrorCode | None, Instant], None] | None = None,
    ) -> None:
        self._appends += 1
        due_ms = now.monotonic_ms + self._settings.write_timeout_ms
        self._appending[self._appends] = shard
        self._effects.append(shard.change(self._appends, changes, due_ms, outcome))

    # -- Events ------------------------------------------------------------------------------

    def placed(self, append_id: int, base_offset: int) -> None:
        """An append was put at that offset of its partition."""
        shard = self._appending.get(append_id)
        if shard is not None:
            shard.placed(append_id, base_offset)

    def appended(self, append_id: int, error: ErrorCode | None, now: Instant) -> list[Effect]:
        """An append has ended; see `GroupCoordinator.appended`."""
        shard = self._appending.get(append_id)
        if shard is not None and shard.appended(append_id, error, now):
            del self._appending[append_id]
        return self._drain()

    def topics_deleted(self, topic_ids: Iterable[TopicId], now: Instant) -> list[Effect]:
        """Topics are gone, and with them their share partitions."""
        gone = frozenset(topic_ids)
        for owned in self._owned.values():
            if owned.is_loaded:
                self._end_states(owned.shard, gone, now)
            else:
                owned.deleted.update(gone)
        return self._drain()

    def _end_states(self, shard: Shard, topic_ids: Set[TopicId], now: Instant) -> None:
        ended = [(key, None) for key in shard.share_partitions() if key.topic_id in topic_ids]
        if ended:
            self._change(shard, ended, now)

    def next_deadline(self) -> int | None:
        """The monotonic time at which to call `tick`; None: nothing waits for time."""
        deadlines = [shard.next_deadline() for shard in self._loaded()]
        return min(
            (each for each in (*deadlines, self._prune_at_ms) if each is not None), default=None
        )

    def tick(self, now: Instant) -> list[Effect]:
        """Time has passed."""
        for shard in list(self._loaded()):
            shard.tick(now)
        if self._prune_at_ms is not None and self._prune_at_ms <= now.monotonic_ms:
            self._prune_at_ms = now.monotonic_ms + self._settings.prune_interval_ms
            for shard in list(self._loaded()):
                self._prune(shard, now)
        return self._drain()

    def _prune(self, shard: Shard, now: Instant) -> None:
        before = shard.prunable()
        if before is not None:
            self._effects.append(Prune(shard.partition, shard.leader_epoch, before))
        stale = [
            (key, replace(state, snapshot_epoch=state.snapshot_epoch + 1, written_ms=now.wall_ms))
            for key, state in shard.stale(self._settings.snapshots_per_append)
        ]
        if stale:
            self._change(shard, stale, now)

    def _loaded(self) -> Iterator[Shard]:
        return (owned.shard for owned in self._owned.values() if owned.is_loaded)

    # -- Partitions --------------------------------------------------------------------------

    def start_loading(self, partition: int, epoch: LeaderEpoch, now: Instant) -> list[Effect]:
        """This broker leads a partition now; it answers "loading" until its records are in."""
        self._give_up(partition, now)
        self._owned[partition] = _Owned(Shard(partition, epoch))
        return self._drain()

    def replay(
        self, partition: int, epoch: LeaderEpoch, records: Iterable[CoordinatorRecord]
    ) -> int:
        """The next records of a partition that is loading; returns how many are of kinds that are
        not known. Raises `CorruptRecords`."""
        owned = self._owned.get(partition)
        if owned is None or owned.is_loaded or owned.shard.leader_epoch != epoch:
            return 0
        return owned.shard.replay(records)

    def finish_loading(self, partition: int, epoch: LeaderEpoch, now: Instant) -> list[Effect]:
        """All records are in, and cannot be lost any more: serve the partition."""
        owned = self._owned.get(partition)
        if owned is not None and owned.shard.leader_epoch == epoch:
            self._owned[partition] = _Owned(owned.shard, is_loaded=True)
            self._end_states(owned.shard, owned.deleted, now)
            if self._prune_at_ms is None:
                self._prune_at_ms = now.monotonic_ms + self._settings.prune_interval_ms
        return self._drain()

    def unload_partition(self, partition: int, now: Instant) -> list[Effect]:
        """Another broker leads this partition: those who wait are told NOT_COORDINATOR."""
        self._give_up(partition, now)
        return self._drain()

    def _give_up(self, partition: int, now: Instant) -> None:
        owned = self._owned.pop(partition, None)
        if owned is None:
            return
        for append_id in [each for each, shard in self._appending.items() if shard is owned.shard]:
            del self._appending[append_id]
        owned.shard.close(now)

    def _drain(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
