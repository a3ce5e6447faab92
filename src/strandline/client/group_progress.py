"""How far a member has come in what its group gave it: where it begins, what is to be committed.

This file knows offsets and when they are committed. It must not know how a commit is sent, or what
the program does when partitions come and go: `group_consumer` and `aio.group_consumer` do.

Theory: what the program has got counts as read when it comes back for more. So the positions are
committed in a call of `poll`, before it hands out anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from strandline.client.coordinator_client import sentence
from strandline.client.group_events import GenerationJoined
from strandline.client.group_offsets import CommitResult
from strandline.client.group_requests import Committed, Membership
from strandline.client.group_settings import GroupSettings
from strandline.client.start import STARTS, Start, first_starts
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import Offset, TopicPartition

_MEMBERSHIP_OVER: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


class GroupProgress:
    """See the module. Times are milliseconds of a clock that never goes back."""

    def __init__(self, settings: GroupSettings, now_ms: int) -> None:
        self.generation: GenerationJoined | None = None
        """In which the member is; None before the first one, and while partitions are given up."""
        self.membership = Membership(settings.group, settings.instance_id)
        """As whom the partitions are read that are read now, or were last."""
        self._settings = settings
        self._committed: dict[TopicPartition, Offset] = {}
        self._commit_at_ms = now_ms + settings.auto_commit_interval_ms

    def joined(self, event: GenerationJoined) -> None:
        """The member has got its part of a generation."""
        self.generation = event
        self.membership = replace(
            self.membership, member_id=event.member_id, generation=event.generation
        )

    def begin(
        self, stored: Mapping[TopicPartition, Committed | None]
    ) -> dict[TopicPartition, Start | None]:
        """Where to begin in partitions that were assigned; None where nothing says that."""
        known = {at: each.offset for at, each in stored.items() if each is not None}
        starts = first_starts(stored, known, STARTS[self._settings.auto_offset_reset])
        self._committed.update(known)
        return starts

    def gave_up(self, partitions: Iterable[TopicPartition]) -> None:
        """The member does not own these any more."""
        for each in partitions:
            self._committed.pop(each, None)

    # -- Commits -----------------------------------------------------------------------------

    def due(
        self, positions: Mapping[TopicPartition, Offset], now_ms: int
    ) -> dict[TopicPartition, Committed]:
        """What the member is to commit by itself now."""
        if now_ms < self._commit_at_ms:
            return {}
        self._commit_at_ms = now_ms + self._settings.auto_commit_interval_ms
        return self.last(positions)

    def last(self, positions: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Committed]:
        """What the member is to commit by itself before it gives partitions up."""
        if not self._settings.enable_auto_commit:
            return {}
        found = {
            at: Committed(offset)
            for at, offset in positions.items()
            if self._committed.get(at) != offset
        }
        for at in found:  # the group has something else then: a seek may go back to what it had
            self._committed.pop(at, None)
        return found

    def committed(self, result: CommitResult) -> None:
        """The program's own commit has an outcome. Raises `ProtocolError`: UNKNOWN_MEMBER_ID,
        ILLEGAL_GENERATION or STALE_MEMBER_EPOCH if the group has gone on without this member;
        REBALANCE_IN_PROGRESS while that is not known."""
        if result.code is ErrorCode.REBALANCE_IN_PROGRESS:
            raise ProtocolError(
                result.code,
                f"Group '{self._settings.group}' divides its partitions anew: poll, then commit "
                "what is still assigned to this member.",
            )
        if result.code in _MEMBERSHIP_OVER:
            raise ProtocolError(
                result.code,
                f"Group '{self._settings.group}' has given partitions to other members before "
                "they were committed here.",
            )
        if result.code is not ErrorCode.NONE:
            raise sentence(result.code, self._settings.group)
        self._committed.update({at: each.offset for at, each in result.offsets.items()})


def not_subscribed() -> ProtocolError:
    """What a member is refused that is none."""
    return ProtocolError(
        ErrorCode.UNKNOWN_MEMBER_ID, "The consumer is not subscribed, or is closed."
    )
