"""One change of a consumer group: its records, applied as they are decided, appended as one batch.

An answer that depends on a group waits until all that was appended of it is durable, also if the
request changed nothing: what it tells must not be lost with this coordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.errors import ErrorCode
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.consumer.records import ConsumerRecord
from strandline.groups.offset_records import GroupRecord
from strandline.groups.shard import Shard, coordinator_error
from strandline.types import Instant

Done = Callable[[ErrorCode | None, Instant], None]
"""Told once: None when the change is durable, or why it is not, as a group's client is told."""

Undo = Callable[[Instant], None]


class Change:
    """See the module."""

    def __init__(self, shard: Shard, group: ConsumerGroup) -> None:
        self._shard = shard
        self.group = group
        self.records: list[ConsumerRecord | GroupRecord] = []
        self._undos: list[Undo] = []

    def write(self, *records: ConsumerRecord) -> None:
        """Records are decided."""
        self.write_all(records)

    def write_all(self, records: Iterable[ConsumerRecord]) -> None:
        """Records are decided."""
        for record in records:
            self.group.apply(record)
            self.records.append(record)

    def write_classic(self, record: GroupRecord) -> None:
        """The classic group of the same name begins or ends with this change."""
        self.records.append(record)

    def if_refused(self, undo: Undo) -> None:
        """Do this if the records cannot be appended; the group is then as it was before.
        What was said last is done first."""
        self._undos.append(undo)

    def commit(self, now: Instant, done: Done | None = None) -> None:
        """Append what was decided. `done` is told when it, and what it rests on, is durable."""

        shard, group = self._shard, self.group
        own_append: int | None = None

        def ended(error: ErrorCode | None, at: Instant) -> None:
            # It may only be overdue: then it is still in the log, and nothing is undone.
            if self.records and error is not None and not shard.is_pending(own_append):
                for undo in reversed(self._undos):
                    undo(at)
            if done is not None:
                done(None if error is None else coordinator_error(error), at)

        if self.records:
            own_append = group.last_append = shard.append(self.records, now, ended)
            return
        append_id = group.last_append if shard.is_pending(group.last_append) else None
        if append_id is None:
            append_id = shard.unsettled_load
        if append_id is None:
            ended(None, now)
        else:
            shard.when_settled(append_id, now, ended)
