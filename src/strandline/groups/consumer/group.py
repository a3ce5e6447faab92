"""One consumer group as the coordinator decides about it.

Holds the image of everything appended, the image of what is durable, and what is looked up in the
first: who owns a partition, who subscribes to what, which member an instance id means. These follow
from the image and are kept up to date record by record. Knows no timers and no replies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Final

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.groups.consumer.cluster_view import ClusterView
from strandline.groups.consumer.image import GroupImage
from strandline.groups.consumer.member import ConsumerMember
from strandline.groups.consumer.partitions import OwnedPartitions
from strandline.groups.consumer.records import ConsumerRecord, RegexTopics
from strandline.groups.counts import add
from strandline.groups.requests import every_topic
from strandline.types import TopicId

_NO_OWNERS: Final[Mapping[int, str]] = {}


class ConsumerGroup:
    """A group of the consumer protocol."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.durable = GroupImage()
        """What a new coordinator would find; what readers are shown."""
        self.image = GroupImage()
        """With everything that has been appended; changed by `apply` only."""
        self.static_members: dict[str, str] = {}
        """Instance id -> member id."""
        self.last_append: int | None = None
        """The newest append that holds a record of the group."""
        self.refreshed_epoch: int | None = None
        """The epoch of the last look at the topics; None: they may have changed since."""
        self.patterns_are_stale = True
        """Whether there may be topics against which patterns have not been matched."""
        self.may_see: Callable[[str], bool] = every_topic
        """Which topics the member may see that sent the newest heartbeat."""
        self.reason = ""
        """Why the group got its last epoch, for people."""
        self._owners: dict[TopicId, dict[int, str]] = {}
        self._by_name: Counter[str] = Counter()
        self._by_pattern: Counter[str] = Counter()
        self._matched: Counter[str] = Counter()
        """By topic how many patterns match it."""
        self._assignors: Counter[str] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self.classic_count = 0
        """How many members speak the classic protocol."""

    # Changes.

    def apply(self, record: ConsumerRecord) -> None:
        """A record has been appended, or was read from the log."""
        if isinstance(record, RegexTopics):
            self._count_matched(record.regex, -1)
            self.image.apply(record)
            self._count_matched(record.regex, 1)
            return
        member_id = getattr(record, "member_id", None)
        before = None if member_id is None else self.image.members.get(member_id)
        self.image.apply(record)
        if member_id is not None:
            self._member_changed(before, self.image.members.get(member_id))

    def become_durable(self) -> None:
        """What was read from the log is what a new coordinator would find."""
        self.durable = self.image.copy()

    def start_over(self, pending: Iterable[ConsumerRecord]) -> None:
        """An append was refused: decide from what is durable, and what is still to be."""
        for member in list(self.image.members.values()):
            self._member_changed(member, None)
        self._matched.clear()
        self.image = GroupImage()
        self.refreshed_epoch = None
        self.patterns_are_stale = True
        for member in self.durable.members.values():
            self._member_changed(None, member)
        self.image = self.durable.copy()
        for regex in self.image.regexes:
            self._count_matched(regex, 1)
        for record in pending:
            self.apply(record)

    def _member_changed(self, before: ConsumerMember | None, now: ConsumerMember | None) -> None:
        if before is not None:
            self._count(before, -1)
            self._release(before.member_id, before.assigned)
            self._release(before.member_id, before.revoking)
            if self.static_members.get(before.instance_id or "") == before.member_id:
                del self.static_members[before.instance_id or ""]
        if now is not None:
            self._count(now, 1)
            for owned in (now.assigned, now.revoking):
                for topic_id, partitions in owned.items():
                    self._owners.setdefault(topic_id, {}).update(
                        dict.fromkeys(partitions, now.member_id)
                    )
            if now.instance_id is not None:
                self.static_members[now.instance_id] = now.member_id

    def _count(self, member: ConsumerMember, sign: int) -> None:
        add(self._by_name, member.topic_names, sign)
        if member.topic_regex:
            add(self._by_pattern, (member.topic_regex,), sign)
        if member.assignor is not None:
            add(self._assignors, (member.assignor,), sign)
        if member.classic is not None:
            self.classic_count += sign
            add(self._classic_protocols, (name for name, _ in member.classic.protocols), sign)

    def _count_matched(self, regex: str, sign: int) -> None:
        resolved = self.image.regexes.get(regex)
        if resolved is not None:
            add(self._matched, resolved.topics, sign)

    def _release(self, member_id: str, owned: OwnedPartitions) -> None:
        for topic_id, partitions in owned.items():
            owners = self._owners.get(topic_id)
            if owners is None:
                continue
            for partition in partitions:
                if owners.get(partition) == member_id:
                    del owners[partition]
            if not owners:
                del self._owners[topic_id]

    # Members.

    @property
    def members(self) -> Mapping[str, ConsumerMember]:
        """By member id."""
        return self.image.members

    def member(self, member_id: str) -> ConsumerMember:
        """A member. Raises `ProtocolError`."""
        member = self.image.members.get(member_id)
        if member is None:
            raise ProtocolError(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"Member {member_id} is not a member of group {self.group_id}.",
            )
        return member

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        """The member that an instance id means now."""
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.image.members[member_id]

    def is_free_for(self, member_id: str, topic_id: TopicId, partition: int) -> bool:
        """Whether no other member owns a partition, or may still be reading it."""
        return self._owners.get(topic_id, _NO_OWNERS).get(partition, member_id) == member_id

    def owner(self, topic_id: TopicId, partition: int) -> str | None:
        """Who owns a partition, or may still be reading it."""
        return self._owners.get(topic_id, _NO_OWNERS).get(partition)

    # Subscriptions.

    @property
    def patterns(self) -> Mapping[str, int]:
        """The patterns in use, and by how many members."""
        return self._by_pattern

    def subscribed_topics(self) -> set[str]:
        """Everything that members subscribe to, whether it is there or not."""
        return {*self._by_name, *self._matched}

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads this topic."""
        return topic in self._by_name or topic in self._matched

    def reads_any(self, topics: Set[str]) -> bool:
        """Whether a member reads one of these topics; costs no more than what the group reads."""
        return any(name in topics for name in self._by_name) or any(
            name in topics for name in self._matched
        )

    def topic_ids_of(self, member: ConsumerMember, cluster: ClusterView) -> frozenset[TopicId]:
        """What a member subscribes to, of the topics that are there."""
        names: Iterable[str] = member.topic_names
        resolved = self.image.regexes.get(member.topic_regex)
        if resolved is not None:
            names = member.topic_names | resolved.topics
        return frozenset(_topic_ids(names, cluster))

    def preferred_assignor(self) -> str | None:
        """The assignor that most members ask for; None if none asks for one."""
        return preferred(self._assignors)

    # Members of the classic protocol.

    def supports_classic(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols of the classic kind may join."""
        if protocol_type != "consumer":
            return False
        return any(self._classic_protocols[name] == self.classic_count for name in names)

    def check(self) -> None:
        """Verify what the fields' comments promise."""
        owners: dict[tuple[TopicId, int], str] = {}
        static: dict[str, str] = {}
        for member_id, member in self.image.members.items():
            if member.instance_id is not None:
                static[member.instance_id] = member_id
            for owned in (member.assigned, member.revoking):
                for topic_id, partitions in owned.items():
                    for partition in partitions:
                        other = owners.setdefault((topic_id, partition), member_id)
                        if other != member_id:
                            raise InvariantViolated(
                                f"{other} and {member_id} of group {self.group_id} both own "
                                f"partition {partition} of {topic_id}.",
                                invariant="I-39",
                            )
        matched = Counter(name for each in self.image.regexes.values() for name in each.topics)
        if matched != self._matched:
            raise InvariantViolated(f"Group {self.group_id} has lost track of what it reads.")
        if static != self.static_members:
            raise InvariantViolated(f"Group {self.group_id} has lost track of its instances.")
        for (topic_id, partition), member_id in owners.items():
            if self.owner(topic_id, partition) != member_id:
                raise InvariantViolated(f"Group {self.group_id} has lost track of its owners.")


def preferred(counts: Mapping[str, int]) -> str | None:
    """The name with the most votes; of several the first in order."""
    return min(counts, key=lambda name: (-counts[name], name), default=None)


def _topic_ids(names: Iterable[str], cluster: ClusterView) -> Iterator[TopicId]:
    for name in names:
        topic = cluster.named(name)
        if topic is not None:
            yield topic.topic_id
