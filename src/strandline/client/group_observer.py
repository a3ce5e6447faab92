"""Hears what a group member is told, as it happens: for those who check groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.client.consumer_group.assignment import OwnedPartition
from strandline.client.group_requests import Committed, Membership
from strandline.types import TopicPartition


class MemberObserver:
    """This one does nothing with it."""

    def joining(self, who: Membership) -> None:
        """The member is about to ask to be let into its group, for the first time or again."""

    def syncing(self, who: Membership) -> None:
        """The member is about to ask for its part of a generation."""

    def synced(self, who: Membership, leader: str, owned: Sequence[TopicPartition]) -> None:
        """It was given its part. `leader` is the member id of who made the assignment."""

    def reconciled(
        self,
        who: Membership,
        reported: Sequence[OwnedPartition],
        owned: Sequence[TopicPartition],
    ) -> None:
        """A member of the consumer protocol owns these now, in this epoch."""

    def offsets_asked(self, who: Membership, partitions: Iterable[TopicPartition]) -> None:
        """It is about to ask for what is committed. At most one such question is under way."""

    def offsets_told(
        self, who: Membership, offsets: Mapping[TopicPartition, Committed | None]
    ) -> None:
        """It was told what is committed; None where nothing is."""

    def refused(self, code: str) -> None:
        """A coordinator refused something, or there was no answer; the code's name."""
