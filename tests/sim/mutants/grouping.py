"""Rules of consumer groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.groups import offset_service
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.effects import AppendRecords
from strandline.groups.group import Group
from strandline.groups.membership import Membership
from strandline.groups.offset_records import GroupRecord
from strandline.groups.offset_store import OffsetStore
from strandline.groups.requests import Call
from strandline.node import coordinator_loading, coordinator_topic
from strandline.node.group_host import GroupHost
from strandline.node.replica import Replica
from strandline.protocol.coordinator_log import CoordinatorRecord, OpenRecord
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.offset_commit import OffsetCommitRequest
from strandline.protocol.messages.sync_group import SyncGroupRequest
from strandline.records.record import Record
from strandline.storage.log import Log
from strandline.types import NO_OFFSET, Instant, Offset, ProducerId
from tests.sim.mutants.mutant import Mutant, nothing, patch, together, yes

_true_append = GroupHost._append
_true_check_commit = offset_service._check_commit
_true_check_sync = Membership._check_sync
_true_committed_records = coordinator_topic.committed_records
_true_not_overtaken = coordinator_topic._not_overtaken
_true_end_transaction = OffsetStore.end_transaction
_true_heartbeat = Membership.heartbeat


def _of_any_generation(request: OffsetCommitRequest, group: Group) -> None:
    if request.generation_id_or_member_epoch >= 0:
        request.generation_id_or_member_epoch = group.generation
    _true_check_commit(request, group)


def _beat(self: Membership, call: Call[HeartbeatRequest], now: Instant) -> None:
    group = self._shard.groups.get(call.body.group_id)
    if group is not None:
        call.body.generation_id = group.generation
    _true_heartbeat(self, call, now)


def _synced(self: Membership, request: SyncGroupRequest, group: Group) -> None:
    request.generation_id = group.generation
    _true_check_sync(self, request, group)


def _no_records(
    source: Log, end_offset: Offset, read_bytes: int
) -> Iterator[CoordinatorRecord | OpenRecord]:
    del source, end_offset, read_bytes
    return iter(())


def _to_the_mark(
    source: Log, end_offset: Offset, read_bytes: int
) -> Iterator[CoordinatorRecord | OpenRecord]:
    del end_offset
    return _true_committed_records(source, source.high_watermark, read_bytes)


class _StartsWhereItDid:
    """A log whose start does not move."""

    def __init__(self, source: Log) -> None:
        self._source = source
        self.log_start_offset = source.log_start_offset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def _from_the_first_start(
    source: Any, end_offset: Offset, read_bytes: int
) -> Iterator[CoordinatorRecord | OpenRecord]:
    return _true_committed_records(_StartsWhereItDid(source), end_offset, read_bytes)  # type: ignore[arg-type]


def _by_the_marker(self: OffsetStore, producer_id: ProducerId, *, commits: bool) -> frozenset[str]:
    with patch(OffsetStore, _overtake=nothing)():
        return _true_end_transaction(self, producer_id, commits=commits)


def _overtaking_none(records: list[Record], overtakers: dict[bytes, Offset]) -> Iterator[Record]:
    found = _true_not_overtaken(records, overtakers)
    return (record._replace(offset=NO_OFFSET) for record in found)


def _committed_already(
    self: GroupHost, effect: AppendRecords, now: Instant
) -> Sequence[ErrorCode | None]:
    def outcome(_: Replica, __: Offset) -> ErrorCode:
        return ErrorCode.NONE

    with patch(Replica, commit_outcome=outcome)():
        return _true_append(self, effect, now)


def _assigned_already(
    self: Membership, request: SyncGroupRequest, group: Group, now: Instant
) -> None:
    assignments = {
        part.member_id: part.assignment
        for part in request.assignments
        if part.member_id in group.members
    }
    record = GroupRecord(group.group_id, group.to_value(assignments))
    self._shard.append([record], now)
    self._rebalance.assign(group, assignments, now)


def _latest(self: OffsetStore, group_id: str) -> Any:
    latest = dict(self._committed.get(group_id, {}))
    for partition, writes in self._in_flight.get(group_id, {}).items():
        value = writes[-1].value
        if value is not None:
            latest[partition] = value
    return latest


_ANY_COMMIT = patch(offset_service, _check_commit=_of_any_generation)
_ANY_HEARTBEAT = patch(Membership, heartbeat=_beat)
_ANY_SYNC = patch(Membership, _check_sync=_synced)

GROUPING: Final = (
    Mutant(
        "commits-of-this-generation",
        "Offsets are committed by members of the present generation only (3.6).",
        ("I-39",),
        _ANY_COMMIT,
    ),
    Mutant(
        "members-of-this-generation",
        "A member that missed a rebalance is told so, and keeps no partitions (3.6).",
        ("I-39",),
        together(_ANY_COMMIT, _ANY_HEARTBEAT, _ANY_SYNC),
    ),
    Mutant(
        "load-committed-offsets",
        "A new coordinator knows the offsets that were committed at the one before (3.6).",
        ("I-39",),
        patch(coordinator_loading, committed_records=_no_records),
    ),
    Mutant(
        "load-to-the-end",
        "A new coordinator reads its log to the end, not to the high watermark that it happens to "
        "know (3.6).",
        ("I-39",),
        patch(coordinator_loading, committed_records=_to_the_mark),
    ),
    Mutant(
        "load-from-where-it-starts-now",
        "A coordinator that loads goes on where its log starts now, if that rose meanwhile (3.6).",
        ("I-50", "I-39"),
        patch(coordinator_loading, committed_records=_from_the_first_start),
    ),
    Mutant(
        "later-in-the-log-counts",
        "Of the offsets of two transactions that counts which is later in the log (KIP-98).",
        ("I-39",),
        together(
            patch(OffsetStore, end_transaction=_by_the_marker),
            patch(coordinator_topic, _not_overtaken=_overtaking_none),
        ),
    ),
    Mutant(
        "give-groups-up",
        "A coordinator that is deposed answers for its groups no more (3.6).",
        ("I-39",),
        patch(GroupHost, lost_leadership=nothing),
    ),
    Mutant(
        "commit-before-answering",
        "A group is answered when what it wrote is committed (3.6).",
        ("I-39",),
        patch(GroupHost, _append=_committed_already),
    ),
    Mutant(
        "store-before-assigning",
        "Members get their assignment when it is stored (3.6).",
        ("I-39",),
        patch(Membership, _store_assignment=_assigned_already),
    ),
    Mutant(
        "read-committed-offsets",
        "Offsets are told when they are durable, not while they are written (3.6).",
        ("I-39",),
        patch(OffsetStore, committed=_latest),
    ),
    Mutant(
        "commits-of-members",
        "Offsets of a consumer group are committed by its members only, in their epochs (KIP-848).",
        ("I-39",),
        patch(offset_service, check_commit=nothing),
    ),
    Mutant(
        "assign-free-partitions",
        "A member gets a partition when no other member owns it, or may still read it (KIP-848).",
        ("I-39",),
        patch(ConsumerGroup, is_free_for=yes),
    ),
)
