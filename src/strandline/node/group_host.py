"""The node's side of the group coordinator: loads it, carries out its effects, keeps its time.

The coordinator is a state machine that knows neither logs nor connections. This file turns its
appends into batches in `__consumer_offsets` and tells it when they are committed, feeds the log's
records back to it when this node becomes the leader of a partition (in steps, between which the
node does other things), and sends its answers.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.config.broker import BrokerConfig
from strandline.errors import (
    ErrorCode,
    InvariantViolated,
)
from strandline.groups.coordinator import GroupCoordinator
from strandline.groups.effects import AppendMarker, AppendRecords, AskStates, Effect
from strandline.groups.overview import GroupOverview
from strandline.groups.requests import Call, every_topic
from strandline.groups.settings import ConsumerGroupSettings, GroupSettings
from strandline.groups.share.admin import ShareAdmin
from strandline.node.coordinator_loading import Load, Loading, ReadRecords
from strandline.node.coordinator_topic import (
    CoordinatorTopic,
    MarkerWritten,
    marker_batch,
    state_batch,
)
from strandline.node.deadline_timer import DeadlineTimer
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.timers import Timers
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.write_txn_markers import WritableTxnMarker
from strandline.records.codec import Codec
from strandline.sharing.records import ShareKey
from strandline.storage.transaction_verification import NO_GUARD, Guard
from strandline.types import NO_OFFSET, Instant, TopicId

if TYPE_CHECKING:
    from strandline.node.sharing.persister import SharePersister

log = logging.getLogger(__name__)

_DUE_PER_TURN: Final = 50
"""How many timers are served in one turn; each takes some tenths of a millisecond."""

Complete = Callable[[Any], object]
"""Makes of the coordinator's response the one that is sent."""


@dataclass(slots=True, eq=False)
class _Asked:
    """The coordinator's token for a request: how its answer is sent."""

    request: Request[Any]
    complete: Complete | None


@dataclass(slots=True, eq=False)
class _Told:
    """The coordinator's token for what this node itself asked."""

    done: Callable[[Any, Instant], None]


class GroupHost:
    """Everything around one `GroupCoordinator`."""

    def __init__(
        self,
        coordinator: GroupCoordinator,
        replicas: Replicas,
        timers: Timers,
        codec: Codec,
        read_bytes: int,
        persister: Callable[[], SharePersister],
    ) -> None:
        """`codec` is that of offset records; of a log so many bytes are read at once. `persister`
        gives what asks share coordinators, which most nodes never need."""
        self._persister = persister
        self._coordinator = coordinator
        self._codec = codec
        self._timer = DeadlineTimer("groups", timers, coordinator.next_deadline, self._tick)
        self._loading = Loading(
            "groups",
            timers,
            read_bytes,
            replay=self._replay,
            finish=self._loaded,
            drop=self.lost_leadership,
            lead=self.became_leader,
        )
        self._is_unchecked = False
        """Whether anything has happened since the coordinator was checked."""
        self._topic = CoordinatorTopic(CONSUMER_OFFSETS, replicas, self._ended)

    def write_marker(
        self, partition: int, marker: WritableTxnMarker, done: MarkerWritten, now: Instant
    ) -> None:
        """End a transaction in a partition of `__consumer_offsets`; see `marker_writing`."""
        token = _Told(lambda response, at: done(ErrorCode(response.error_code), at))
        self._carry_out(self._coordinator.write_marker(token, partition, marker, now), now)

    def ask(
        self,
        request: Request[Any],
        now: Instant,
        *,
        body: Any = None,
        complete: Complete | None = None,
        guard: Guard = NO_GUARD,
        may_see: Callable[[str], bool] = every_topic,
    ) -> None:
        """Hand a request to the coordinator, whose response is its answer.

        `body` stands in for the request's own; `complete` has the last word on the response.
        `guard` is that of a TxnOffsetCommit; `may_see` tells which topics the client may see.
        """
        call: Call[Any] = Call(
            _Asked(request, complete),
            request.version,
            request.body if body is None else body,
            client_id=request.client_id or "",
            client_host=f"/{request.connection.client_host}",
            guard=guard,
            may_see=may_see,
        )
        self._carry_out(self._coordinator.handle(call, now), now)

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` in which a group lives."""
        return self._coordinator.partition_for(group_id)

    @property
    def loading(self) -> list[int]:
        """Partitions of `__consumer_offsets` whose groups are being read."""
        return self._loading.partitions

    def overviews(self) -> list[GroupOverview]:
        """All groups that are coordinated here."""
        return self._coordinator.overviews()

    def became_leader(self, replica: Replica, now: Instant) -> None:
        """Load the groups of a partition of `__consumer_offsets` that is led here now."""
        partition, epoch = replica.topic_partition.partition, replica.leader_epoch
        effects = self._coordinator.start_loading(partition, epoch, now)
        load = self._loading.begin(replica)
        self._carry_out(effects, now)
        self._loading.go_on(load, now)

    def lost_leadership(self, replica: Replica, now: Instant) -> None:
        """Another broker coordinates the groups of this partition, or none does."""
        partition = replica.topic_partition.partition
        self._loading.done(partition)
        effects = self._coordinator.unload_partition(partition, replica.leader_epoch, now)
        self._carry_out(effects, now)

    def deleted(self, partition: int, now: Instant) -> None:
        """The topic is gone. To be told of every partition, also of those that others led."""
        self._loading.done(partition)
        self._carry_out(self._coordinator.unload_partition(partition, None, now), now)

    def _replay(self, load: Load, records: ReadRecords) -> None:
        self._coordinator.replay(load.partition, load.leader_epoch, records)

    def _loaded(self, load: Load, now: Instant) -> None:
        at = load.replica.topic_partition
        self._loading.done(at.partition)
        effects, report = self._coordinator.finish_loading(
            at.partition,
            load.leader_epoch,
            now,
            is_committed=load.replica.commit_outcome(load.end_offset) is not None,
        )
        if report is not None and report.append_id is not None:
            self._topic.await_end(load.replica, report.append_id, load.end_offset, now)
        if report is not None and (report.unknown_kinds or report.damaged_records):
            log.warning(
                "%s holds records that were skipped: %d damaged, %s of kinds that are not served",
                at,
                report.damaged_records,
                dict(report.unknown_kinds),
            )
        self._carry_out(effects, now)

    def topics_deleted(self, topics: Iterable[tuple[str, TopicId]], now: Instant) -> None:
        """Forget the offsets of topics that are gone."""
        self._carry_out(self._coordinator.topics_deleted(topics, now), now)

    def topics_changed(self, names: Collection[str], *, are_new: bool = False) -> None:
        """Topics came, changed or went: groups of the consumer protocol look at them."""
        self._coordinator.topics_changed(names, are_new=are_new)

    def check(self) -> None:
        """See `GroupCoordinator.check`; costs nothing while nothing happens. To be asked between
        two turns."""
        if self._is_unchecked:
            self._is_unchecked = False
            self._coordinator.check()

    def _carry_out(self, effects: Iterable[Effect], now: Instant) -> None:
        self._is_unchecked = True
        queue = deque(effects)
        while queue:
            effect = queue.popleft()
            if isinstance(effect, AppendRecords | AppendMarker):
                for outcome in self._append(effect, now):
                    queue += self._coordinator.appended(effect.append_id, outcome, now)
            elif isinstance(effect, AskStates):
                self._ask_states(effect, now)
            elif isinstance(told := effect.token, _Told):
                told.done(effect.response, now)
            elif isinstance(asked := effect.token, _Asked):
                complete, response = asked.complete, effect.response
                asked.request.reply(response if complete is None else complete(response))
            else:
                raise InvariantViolated(f"{effect.token!r} was not asked here.")
        self._timer.set()

    def administer(self, group_id: str, do: Callable[[ShareAdmin], None], now: Instant) -> None:
        """See `GroupCoordinator.administer`."""
        self._carry_out(self._coordinator.administer(group_id, do, now), now)

    def _ask_states(self, effect: AskStates, now: Instant) -> None:
        """Ask the share coordinator of each partition; told when all have answered."""
        outcomes: dict[tuple[TopicId, int], ErrorCode] = {}

        def answered(place: tuple[TopicId, int], result: Any, at: Instant) -> None:
            outcomes[place] = ErrorCode(result.error_code)
            if len(outcomes) == len(effect.partitions):
                told = self._coordinator.states_answered(effect.question_id, outcomes, at)
                self._carry_out(told, at)

        persister = self._persister()
        for place in effect.partitions:
            api = ApiKey.DELETE_SHARE_GROUP_STATE
            fields: dict[str, Any] = {}
            if effect.kind == "initialize":
                api = ApiKey.INITIALIZE_SHARE_GROUP_STATE
                fields["state_epoch"] = effect.state_epoch
                fields["start_offset"] = effect.starts.get(place, NO_OFFSET)
            key = ShareKey(effect.group_id, *place)
            persister.ask(api, key, fields, partial(answered, place), now)

    def _ended(self, append_id: int, error: ErrorCode | None, now: Instant) -> None:
        self._carry_out(self._coordinator.appended(append_id, error, now), now)

    def _append(
        self, effect: AppendRecords | AppendMarker, now: Instant
    ) -> Sequence[ErrorCode | None]:
        """Append a batch; returns what the coordinator is to be told of it now, if anything."""
        append = partial(
            self._topic.append, effect.partition, effect.leader_epoch, effect.append_id
        )
        if isinstance(effect, AppendMarker):
            version = effect.marker.transaction_version
            return append(marker_batch(effect.marker, now), now, transaction_version=version)
        producer = effect.producer
        if producer is None:
            return append(state_batch(effect.records, now, codec=self._codec), now)
        identity = producer.producer_id, producer.producer_epoch
        batch = state_batch(effect.records, now, codec=self._codec, producer=identity)
        return append(batch, now, guard=Guard(producer.guard))

    def _tick(self, now: Instant) -> None:
        """Do of what is due as much as may be done in one turn: after a failover the sessions of
        all members that are gone are over at once. The rest is due in the next turn."""
        self._catch_up(now, range(_DUE_PER_TURN))

    def catch_up(self, now: Instant) -> None:
        """Do everything that is due."""
        self._catch_up(now, repeat(None))

    def _catch_up(self, now: Instant, rounds: Iterable[object]) -> None:
        coordinator = self._coordinator
        for _ in rounds:
            due_ms = coordinator.next_deadline()
            if due_ms is None or due_ms > now.monotonic_ms:
                return
            self._carry_out(coordinator.tick(now), now)


def group_settings(broker: BrokerConfig) -> GroupSettings:
    """The coordinator's settings as the broker's configuration has them."""
    policy = broker.group_consumer_migration_policy.lower()
    return GroupSettings(
        session_timeout_min_ms=broker.group_min_session_timeout_ms,
        session_timeout_max_ms=broker.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=broker.group_initial_rebalance_delay_ms,
        members_max=broker.group_max_size,
        consumer=ConsumerGroupSettings(
            members_max=broker.group_consumer_max_size,
            assignors=broker.group_consumer_assignors,
            may_upgrade=policy in ("upgrade", "bidirectional"),
            may_downgrade=policy in ("downgrade", "bidirectional"),
            regex_refresh_interval_ms=broker.group_consumer_regex_refresh_interval_ms,
        ),
        share_members_max=broker.group_share_max_size,
        offset_metadata_max=broker.offset_metadata_max_bytes,
        offset_commit_timeout_ms=broker.offsets_commit_timeout_ms,
        offsets_retention_ms=broker.offsets_retention_ms,
        offsets_retention_check_interval_ms=broker.offsets_retention_check_interval_ms,
    )
