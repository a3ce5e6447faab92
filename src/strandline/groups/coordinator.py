"""The group coordinator of one broker: routes requests to shards, loads and gives up partitions.

Groups are spread over the partitions of `__consumer_offsets` by their ids; this broker coordinates
those of the partitions that it leads (`owned_shards`). It collects answers that come from several
of them. A part that decides: events and the time come in,
effects come out (`effects`), in order. After each event ask `next_deadline`, and `tick` then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, Generic, TypeVar

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.groups.consumer.cluster_view import ClusterView, NoCluster
from strandline.groups.consumer.metadata_hash import TopicHashes
from strandline.groups.effects import AppendMarker, AppendRecords, Effect
from strandline.groups.group_descriptions import GroupDescriptions
from strandline.groups.loading_shard import LoadReport
from strandline.groups.offset_service import fetch_refused
from strandline.groups.overview import GroupOverview, group_overviews
from strandline.groups.owned_shards import OwnedShards
from strandline.groups.requests import Call, Request, Token, refused
from strandline.groups.serving import ServedShard
from strandline.groups.settings import GroupSettings
from strandline.groups.shard import Surroundings
from strandline.groups.share.admin import ShareAdmin
from strandline.groups.share.refusing import check_no_share_group
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from strandline.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from strandline.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from strandline.protocol.messages.describe_groups import DescribeGroupsRequest
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.join_group import JoinGroupRequest
from strandline.protocol.messages.leave_group import LeaveGroupRequest
from strandline.protocol.messages.list_groups import ListGroupsRequest
from strandline.protocol.messages.offset_commit import OffsetCommitRequest
from strandline.protocol.messages.offset_delete import OffsetDeleteRequest
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from strandline.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from strandline.protocol.messages.sync_group import SyncGroupRequest
from strandline.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from strandline.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
)
from strandline.types import Instant, LeaderEpoch, TopicId

Part = TypeVar("Part")


class _Parts(Generic[Part]):
    """The parts of one answer, which come when the records that each depends on are durable."""

    def __init__(self, count: int, finish: Callable[[list[Part]], None]) -> None:
        """`finish` gets all `count` parts, in their order."""
        self._parts: dict[int, Part] = {}
        self._count = count
        self._finish = finish
        if count == 0:
            finish([])

    def deliver(self, index: int, part: Part) -> None:
        """Part number `index` is there."""
        if index in self._parts:
            raise InvariantViolated(f"Part {index} of an answer is there twice.")
        self._parts[index] = part
        if len(self._parts) == self._count:
            self._finish([self._parts[index] for index in range(self._count)])


class GroupCoordinator:
    """All groups that one broker coordinates."""

    def __init__(
        self,
        settings: GroupSettings,
        random: Random,
        *,
        partition_count: Callable[[], int],
        cluster: ClusterView | None = None,
    ) -> None:
        """`partition_count` tells how many partitions `__consumer_offsets` has now."""
        self._surroundings = Surroundings(settings, random, cluster or NoCluster())
        self._hashes = TopicHashes(self._surroundings.cluster)
        self._shards = OwnedShards(self._surroundings, self._hashes, partition_count)
        self._descriptions = GroupDescriptions(self._shards)
        self._appends: dict[int, ServedShard] = {}
        """Who waits for each append; an append of a partition that was given up is not here."""

    def partition_for(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` in which a group lives."""
        return self._shards.partition_for(group_id)

    # Requests.

    def handle(self, call: Call[Request], now: Instant) -> list[Effect]:
        """Handle a request; its one answer is among these or some later effects."""
        outbox = self._surroundings.outbox
        outbox.expect(call.token)
        match call.body:
            case OffsetFetchRequest() as request:
                self._fetch_offsets(call.token, request, now)
            case ListGroupsRequest() as request:
                outbox.reply(call.token, self._descriptions.listed(request))
            case DescribeGroupsRequest() as request:
                outbox.reply(call.token, self._descriptions.described(request, call.version))
            case ConsumerGroupDescribeRequest() as request:
                outbox.reply(call.token, self._descriptions.described_consumers(request))
            case ShareGroupDescribeRequest() as request:
                outbox.reply(call.token, self._descriptions.described_share_groups(request))
            case DeleteGroupsRequest() as request:
                self._delete_groups(call.token, request, now)
            case request:
                try:
                    self._handle_for_group(call, now)
                except ProtocolError as refusal:
                    outbox.reply(call.token, refused(request, refusal.code, refusal.message))
        return self._drain()

    def _handle_for_group(self, call: Call[Any], now: Instant) -> None:
        group_id: str = call.body.group_id
        checks_itself = isinstance(
            call.body, ConsumerGroupHeartbeatRequest | ShareGroupHeartbeatRequest
        )
        if not group_id and not checks_itself and not isinstance(call.body, OffsetCommitRequest):
            # Offsets, for old clients' sake, may be committed for the empty group id.
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        served = self._shards.served(group_id)
        consumers, group = served.consumers, served.shard.consumer_group(group_id)
        if isinstance(call.body, ShareGroupHeartbeatRequest):
            served.share_heartbeats.heartbeat(call, now)
            return
        check_no_share_group(served.shard, call.body)
        match call.body:
            case ConsumerGroupHeartbeatRequest():
                consumers.heartbeats.heartbeat(call, now)
            case JoinGroupRequest() if group is not None:
                served.joining.check_limits(call)
                if group.members:
                    consumers.classic_members.join(call, group, now)
                else:
                    served.joining.join(call, now, instead_of=group)
            case SyncGroupRequest() if group is not None:
                consumers.classic_members.sync(call, group, now)
            case HeartbeatRequest() if group is not None:
                consumers.classic_members.heartbeat(call, group, now)
            case LeaveGroupRequest() if group is not None:
                consumers.classic_members.leave(call, group, now)
            case JoinGroupRequest():
                served.joining.join(call, now)
            case SyncGroupRequest():
                served.membership.sync(call, now)
            case HeartbeatRequest():
                served.membership.heartbeat(call, now)
            case LeaveGroupRequest():
                served.membership.leave(call, now)
            case OffsetCommitRequest():
                served.offsets.commit(call, now)
            case OffsetDeleteRequest():
                served.offsets.delete(call, now)
            case TxnOffsetCommitRequest():
                served.transactional_offsets.commit(call, now)
            case _:
                raise InvariantViolated(f"{call.body!r} is no request about a group.")

    def _fetch_offsets(self, token: Token, request: OffsetFetchRequest, now: Instant) -> None:
        def finish(groups: list[OffsetFetchResponseGroup]) -> None:
            self._surroundings.outbox.reply(token, OffsetFetchResponse(groups=groups))

        parts = _Parts(len(request.groups), finish)
        for index, wanted in enumerate(request.groups):
            deliver = partial(parts.deliver, index)
            try:
                self._shards.served(wanted.group_id).offsets.fetch(
                    wanted, require_stable=request.require_stable, now=now, deliver=deliver
                )
            except ProtocolError as refusal:
                deliver(fetch_refused(wanted, refusal.code))

    def _delete_groups(self, token: Token, request: DeleteGroupsRequest, now: Instant) -> None:
        group_ids = tuple(dict.fromkeys(request.groups_names))

        def finish(errors: list[ErrorCode]) -> None:
            results = [
                DeletableGroupResult(group_id=group_id, error_code=error)
                for group_id, error in zip(group_ids, errors, strict=True)
            ]
            self._surroundings.outbox.reply(token, DeleteGroupsResponse(results=results))

        parts = _Parts(len(group_ids), finish)
        for index, group_id in enumerate(group_ids):
            deliver = partial(parts.deliver, index)
            try:
                served = self._shards.served(group_id)
                if group_id in served.shard.share_groups:
                    served.share_admin.delete(group_id, now, deliver)
                else:
                    served.cleanup.delete(group_id, now, deliver)
            except ProtocolError as refusal:
                deliver(refusal.code)

    def administer(
        self, group_id: str, do: Callable[[ShareAdmin], None], now: Instant
    ) -> list[Effect]:
        """Have something done with a share group. Raises what `do` raises, and `ProtocolError` if
        this is not its coordinator."""
        del now
        do(self._shards.served(group_id).share_admin)
        return self._drain()

    def states_answered(
        self,
        question_id: int,
        outcomes: Mapping[tuple[TopicId, int], ErrorCode],
        now: Instant,
    ) -> list[Effect]:
        """Share coordinators have answered an `AskStates`."""
        asked = self._surroundings.asking.pop(question_id, None)
        if asked is not None:
            asked[1](outcomes, now)
        return self._drain()

    def write_marker(
        self, token: Token, partition: int, marker: WritableTxnMarker, now: Instant
    ) -> list[Effect]:
        """A transaction that committed offsets here has ended; answered when that is durable."""
        outbox = self._surroundings.outbox
        outbox.expect(token)

        def ended(error: ErrorCode | None, _at: Instant) -> None:
            code = ErrorCode.NONE if error is None else error
            outbox.reply(
                token, WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
            )

        served = self._shards.at(partition)
        if served is None:
            # The transaction coordinator asks again: this one is not ready, or another one is.
            ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
        else:
            served.shard.append_marker(marker, now, ended)
        return self._drain()

    # Events.

    def appended(self, append_id: int, error: ErrorCode | None, now: Instant) -> list[Effect]:
        """An append has ended.

        None: its records are below the high watermark. REQUEST_TIMED_OUT and
        NOT_ENOUGH_REPLICAS_AFTER_APPEND: they are in the log, and the end will be told again. Any
        other error: they are not in the log and never will be. Records that get lost with the
        leadership are no case for this, but for `unload_partition`. Successes of one partition
        come in the order of the appends. An append of a partition given up is ignored.
        """
        served = self._appends.get(append_id)
        if served is not None and served.shard.appended(append_id, error, now):
            del self._appends[append_id]
        return self._drain()

    def next_deadline(self) -> int | None:
        """The monotonic time at which to call `tick`, or None: nothing is waiting for time."""
        return self._surroundings.timers.next_deadline()

    def tick(self, now: Instant) -> list[Effect]:
        """Time has passed: do what was due first. To be called again while the next deadline has
        come: what is due next may rest on whether these effects' appends are refused."""
        self._surroundings.timers.fire_first(now)
        return self._drain()

    def forget(self, token: Token) -> None:
        """The connection of a request is gone: do not answer it. Members stay members."""
        self._surroundings.outbox.forget(token)

    def topics_deleted(self, topics: Iterable[tuple[str, TopicId]], now: Instant) -> list[Effect]:
        """Topics (name, id) are gone: forget their offsets in all groups."""
        gone = tuple(topics)
        self._shards.remember_deleted(gone)
        for served in self._shards:
            served.cleanup.topics_deleted(gone, now)
        return self._drain()

    def topics_changed(self, names: Collection[str], *, are_new: bool = False) -> None:
        """These topics are new, have other partitions or replicas, or are gone: groups that read
        them are looked at when a member sends its next heartbeat."""
        self._hashes.forget(names)
        changed = frozenset(names)
        for served in self._shards:
            served.topics_changed(changed, are_new=are_new)

    # Partitions.

    def start_loading(self, partition: int, epoch: LeaderEpoch, now: Instant) -> list[Effect]:
        """This broker leads a partition now; it answers "loading" until its records are in."""
        if self._shards.is_news(partition, epoch) and not self._shards.owns(partition, epoch):
            self._give_up(partition, epoch, now)
            self._shards.begin(partition, epoch)
        return self._drain()

    def replay(
        self,
        partition: int,
        epoch: LeaderEpoch,
        records: Iterable[CoordinatorRecord | OpenRecord],
    ) -> None:
        """The next records of a partition that is loading. Ignored for any other epoch.

        All records up to the log end that this leader found when it became one, without those of
        aborted transactions; those of open ones come last.
        """
        if (loading := self._shards.loading(partition, epoch)) is not None:
            loading.replay(records)

    def finish_loading(
        self, partition: int, epoch: LeaderEpoch, now: Instant, *, is_committed: bool = True
    ) -> tuple[list[Effect], LoadReport | None]:
        """All records are in: serve the partition. No report: it is not (or no longer) loading.

        `is_committed`: whether all that was replayed is below the high watermark. If not, the
        report names an append, whose end (`appended`) is to be told when it is.
        """
        loading = self._shards.loading(partition, epoch)
        if loading is None:
            return [], None
        self._shards.serve(partition, epoch, loading.served)
        report = loading.finish(now, is_committed=is_committed)
        if report.append_id is not None:
            self._appends[report.append_id] = loading.served
        return self._drain(), report

    def load_partition(
        self,
        partition: int,
        epoch: LeaderEpoch,
        records: Iterable[CoordinatorRecord | OpenRecord],
        now: Instant,
    ) -> tuple[list[Effect], LoadReport | None]:
        """Load a partition in one go."""
        effects = self.start_loading(partition, epoch, now)
        self.replay(partition, epoch, records)
        more, report = self.finish_loading(partition, epoch, now)
        return effects + more, report

    def unload_partition(
        self, partition: int, epoch: LeaderEpoch | None, now: Instant
    ) -> list[Effect]:
        """Another broker leads this partition, since `epoch`; None: its topic was deleted. Late
        news of older epochs is ignored.

        Everyone who waits is answered NOT_COORDINATOR; the state is dropped.
        """
        if epoch is None or self._shards.is_news(partition, epoch):
            self._give_up(partition, epoch, now)
        return self._drain()

    def _give_up(self, partition: int, epoch: LeaderEpoch | None, now: Instant) -> None:
        given_up = self._shards.give_up(partition, epoch)
        if given_up is not None:
            given_up.stop(now)
            for append_id in [key for key, each in self._appends.items() if each is given_up]:
                del self._appends[append_id]

    # Facts.

    def overviews(self) -> list[GroupOverview]:
        """All groups of the partitions that are served here."""
        return [overview for served in self._shards for overview in group_overviews(served.shard)]

    def check(self) -> None:
        """Verify every invariant; for tests and simulators, after each event."""
        waiting: set[Token] = set()
        for served in self._shards:
            waiting |= served.check()
        unanswered = self._surroundings.outbox.unanswered
        if not waiting <= unanswered:
            raise InvariantViolated("A request that has been answered still waits.")
        if not (self._appends or self._surroundings.asking) and waiting != unanswered:
            raise InvariantViolated("A request waits for nothing.")

    def _drain(self) -> list[Effect]:
        effects = self._surroundings.outbox.drain()
        for effect in effects:
            if isinstance(effect, AppendRecords | AppendMarker):
                served = self._shards.at(effect.partition)
                if served is not None:
                    self._appends[effect.append_id] = served
        return effects
