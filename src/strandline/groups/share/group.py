"""One share group as the coordinator decides about it; see `groups.consumer.group`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.counts import add
from strandline.groups.share.image import ShareImage, ShareMember
from strandline.groups.share.records import ShareKind, ShareRecord
from strandline.types import TopicId


class ShareGroup:
    """A share group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.durable = ShareImage()
        """What a new coordinator would find; what readers are shown."""
        self.image = ShareImage()
        """With everything that has been appended; changed by `apply` only."""
        self.last_append: int | None = None
        """The newest append that holds a record of the group."""
        self.is_refreshed = False
        """Whether the topics are as they were when they were looked at last."""
        self.may_lack_states = True
        """Whether there may be a partition that members subscribe to and that has no state."""
        self.asked: Counter[tuple[TopicId, int]] = Counter()
        """How many questions are under way that have a share coordinator begin, or end, its state
        of a partition; no zeros. Heartbeats ask for no state meanwhile."""
        self._by_name: Counter[str] = Counter()
        """How many members subscribe to each topic; no zeros."""

    def apply(self, record: ShareRecord) -> None:
        """A record has been appended, or was read from the log."""
        if record.kind is ShareKind.MEMBER:
            self._count(record.member_id, -1)
        self.image.apply(record)
        if record.kind is ShareKind.MEMBER:
            self._count(record.member_id, 1)
        if record.kind in (ShareKind.MEMBER, ShareKind.PARTITIONS):
            self.may_lack_states = True

    def become_durable(self) -> None:
        """What was read from the log is what a new coordinator would find."""
        self.durable = self.image.copy()

    def start_over(self, pending: Iterable[ShareRecord]) -> None:
        """An append was refused: decide from what is durable, and what is still to be."""
        self.image = self.durable.copy()
        self._by_name.clear()
        for member_id in self.image.members:
            self._count(member_id, 1)
        self.topics_changed()
        for record in pending:
            self.apply(record)

    def topics_changed(self) -> None:
        """Topics that the group reads are to be looked at again."""
        self.is_refreshed = False
        self.may_lack_states = True

    def _count(self, member_id: str | None, sign: int) -> None:
        member = self.image.members.get(member_id or "")
        if member is not None:
            add(self._by_name, member.topic_names, sign)

    def member(self, member_id: str) -> ShareMember:
        """A member. Raises `ProtocolError`."""
        member = self.image.members.get(member_id)
        if member is None:
            raise ProtocolError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def subscribed_topics(self) -> Set[str]:
        """Everything that members subscribe to, whether it is there or not."""
        return self._by_name.keys()

    def reads_any(self, topics: Set[str]) -> bool:
        """Whether a member subscribes to one of these topics, or the group has a state of one."""
        kept = self.image.partitions
        return not self._by_name.keys().isdisjoint(topics) or any(
            each.name in topics
            for each in (*kept.initialized.values(), *kept.initializing.values())
        )
