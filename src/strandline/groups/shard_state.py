"""The groups and offsets of one partition of `__consumer_offsets`, and what the end of an append
does to them: what becomes durable counts, and what was refused is as if it had never been written.

This file knows what of a group is stored. It must not know how records are appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.records import ConsumerRecord
from strandline.groups.group import Group, GroupState
from strandline.groups.offset_records import GroupRecord, OffsetRecord, StateRecord
from strandline.groups.offset_store import OffsetStore
from strandline.groups.share.group import ShareGroup
from strandline.groups.share.records import ShareRecord
from strandline.protocol.messages.write_txn_markers import WritableTxnMarker
from strandline.types import NO_TIMESTAMP, ProducerId


class ShardState:
    """See the module."""

    def __init__(
        self,
        undecided: Callable[[], Iterator[StateRecord]],
        is_writing: Callable[[str], bool],
        cancel: Callable[..., None],
    ) -> None:
        """`undecided` gives the records of appends that are neither durable nor refused,
        `is_writing` says whether a group has any, and `cancel` ends a timer."""
        self.groups: dict[str, Group] = {}
        """The classic ones."""
        self.consumer_groups: dict[str, ConsumerGroup] = {}
        """With those whose tombstone is under way; see `Shard.consumer_group`."""
        self.share_groups: dict[str, ShareGroup] = {}
        """With those that were never stored, or whose tombstone is under way."""
        self.offsets = OffsetStore()
        self._undecided = undecided
        self._is_writing = is_writing
        self._cancel = cancel

    def settle(
        self,
        append_id: int,
        records: Sequence[StateRecord],
        producer_id: ProducerId | None,
        *,
        durable: bool,
    ) -> None:
        """An append has ended. `producer_id`: of the transaction that it is part of, if any."""
        for record in records:
            if isinstance(record, OffsetRecord):
                if producer_id is None:
                    self.offsets.settle(append_id, record, durable=durable)
                else:
                    self.offsets.settle_pending(append_id, producer_id, record, durable=durable)
                self._settle_owner(record.group_id, durable=durable)
            elif isinstance(record, GroupRecord):
                self._settle_group(record, durable=durable)
        self._settle_consumer_groups(records, durable=durable)
        self._settle_share_groups(records, durable=durable)
        self._drop_ended(records)

    def end_transaction(self, marker: WritableTxnMarker) -> None:
        """A marker is durable: offsets of its transaction are committed, or vanish."""
        producer_id = ProducerId(marker.producer_id)
        for group_id in self.offsets.end_transaction(
            producer_id, commits=marker.transaction_result
        ):
            group = self.groups.get(group_id)
            if group is not None:
                self._drop_if_unfounded(group)

    def _settle_group(self, record: GroupRecord, *, durable: bool) -> None:
        group = self.groups.get(record.group_id)
        if group is None:
            return
        if record.value is not None:
            group.is_stored |= durable
            self._drop_if_unfounded(group)
        elif not durable:
            if group.state is GroupState.DEAD:
                group.transition_to(GroupState.EMPTY, group.state_timestamp_ms)
        elif group.state is GroupState.DEAD:
            self._remove(group)

    def _settle_consumer_groups(self, records: Sequence[StateRecord], *, durable: bool) -> None:
        touched: dict[str, ConsumerGroup] = {}
        for record in records:
            if isinstance(record, OffsetRecord | GroupRecord | ShareRecord):
                continue
            group = self.consumer_groups.get(record.group_id)
            if group is not None:
                touched[record.group_id] = group
                if durable:
                    group.durable.apply(record)
        if not durable:
            for group_id, group in touched.items():
                group.start_over(self._undecided_records(group_id))

    def _settle_share_groups(self, records: Sequence[StateRecord], *, durable: bool) -> None:
        touched: dict[str, ShareGroup] = {}
        for record in records:
            group = self.share_groups.get(record.group_id)
            if isinstance(record, ShareRecord) and group is not None:
                touched[record.group_id] = group
                if durable:
                    group.durable.apply(record)
        if not durable:
            for group_id, group in touched.items():
                group.start_over(
                    record
                    for record in self._undecided()
                    if isinstance(record, ShareRecord) and record.group_id == group_id
                )

    def _drop_ended(self, records: Sequence[StateRecord]) -> None:
        """Forget the groups of these records that are no more, when nothing of the name is under
        way: the last to settle may be a record of another kind, behind the tombstone."""
        for group_id in dict.fromkeys(record.group_id for record in records):
            if self._is_writing(group_id):
                continue
            group = self.consumer_groups.get(group_id)
            if group is not None and not (group.durable.exists or group.image.exists):
                del self.consumer_groups[group_id]
                self._keep_simple_group(group_id)
            share_group = self.share_groups.get(group_id)
            if share_group is not None and not (
                share_group.durable.exists or share_group.image.exists
            ):
                del self.share_groups[group_id]

    def _undecided_records(self, group_id: str) -> list[ConsumerRecord]:
        return [
            record
            for record in self._undecided()
            if not isinstance(record, OffsetRecord | GroupRecord | ShareRecord)
            and record.group_id == group_id
        ]

    def _keep_simple_group(self, group_id: str) -> None:
        """Offsets that outlived a consumer group make a simple one."""
        if group_id not in self.groups and self.offsets.committed(group_id):
            remainder = Group(group_id, created_ms=NO_TIMESTAMP)
            remainder.is_stored = True
            self.groups[group_id] = remainder

    def _remove(self, group: Group) -> None:
        """A group's tombstone is durable. Offsets that outlived it make a simple group."""
        del self.groups[group.group_id]
        for member_id in group.pending_joins:
            self._cancel("session", group.group_id, member_id)
        if self.offsets.committed(group.group_id):
            remainder = Group(group.group_id, created_ms=group.state_timestamp_ms)
            remainder.is_stored = True
            self.groups[group.group_id] = remainder

    def _settle_owner(self, group_id: str, *, durable: bool) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            group.is_stored |= durable
            self._drop_if_unfounded(group)

    def _drop_if_unfounded(self, group: Group) -> None:
        """Forget a group of which no record was ever written, and that has no members."""
        if not (
            group.is_stored
            or group.members
            or group.pending_joins
            or self._is_writing(group.group_id)
            or self.offsets.committed(group.group_id)
            or self.offsets.pending(group.group_id)
        ):
            self.groups.pop(group.group_id, None)
