"""What the leader of a generation does: know the topics of all members, and divide them.

This file knows subscriptions and metadata. It must not know how one becomes the leader.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from strandline.client.assignors import Assignor
from strandline.client.backoff import ExponentialBackoff
from strandline.client.consumer_protocol import assignment_bytes, read_subscription
from strandline.client.coordinator_client import CoordinatorClient
from strandline.client.group_subscriber import Subscriber
from strandline.client.metadata_questions import MetadataQuestions
from strandline.protocol.messages.join_group import JoinGroupResponseMember


class GroupLeader:
    """See the module. It keeps the metadata of the group's topics fresh for as long as it leads."""

    def __init__(self, coordinator: CoordinatorClient, backoff: ExponentialBackoff) -> None:
        self._coordinator = coordinator
        self._router = coordinator.router
        self._questions = MetadataQuestions(coordinator, backoff)
        self._members: list[Subscriber] = []
        self._topics: tuple[str, ...] = ()
        self._skips = False
        self._seen: dict[str, tuple[int, ...]] | None = None
        """The partitions that were divided; None: it does not lead, or has not divided them yet."""
        self._then: Callable[[], None] | None = None

    def elected(self, members: Iterable[JoinGroupResponseMember], *, skips: bool) -> None:
        """The member leads a generation. With `skips` the assignment stands, and it only watches
        the topics (KIP-814). Raises `MalformedFrame` for a subscription that is none."""
        self._members = [
            Subscriber(each.member_id, each.group_instance_id, read_subscription(each.metadata))
            for each in members
        ]
        self._topics = tuple(
            sorted({topic for each in self._members for topic in each.subscription.topics})
        )
        self._skips = skips
        self._seen = None
        self._questions.ask_at_ms = 0

    def resign(self) -> None:
        """Another member leads."""
        self._members, self._topics, self._seen, self._then = [], (), None, None

    def when_known(self, then: Callable[[], None]) -> None:
        """Call this when the topics' partitions are known, at once if they are."""
        self._then = then
        self._go_on()

    def assignments(self, assignor: Assignor) -> dict[str, bytes]:
        """The part of each member, and what it was computed from is remembered."""
        self._seen = self._partitions()
        if self._skips:
            return {}
        parts = assignor.assign(self._members, self._seen)
        return {member: assignment_bytes(part) for member, part in parts.items()}

    def sees_other_topics(self) -> bool:
        """Whether topics have other partitions now than when they were divided."""
        return self._seen is not None and self._seen != self._partitions()

    @property
    def wake_ms(self) -> int | None:
        """When `refresh` should be called; None if not by time."""
        if not self._topics or self._questions.is_asking:
            return None
        if self._is_fresh():
            return self._router.stale_at_ms(self._topics)
        return self._questions.ask_at_ms

    def refresh(self) -> None:
        """Ask for metadata if it is old, or lacks a topic."""
        if self._topics and self._questions.is_due and not self._is_fresh():
            self._questions.ask(self._router.metadata_request(self._topics), self._learnt)

    def _learnt(self) -> None:
        if all(self._router.topic(name) is not None for name in self._topics):
            self._questions.begin_anew()
        self._go_on()

    def _go_on(self) -> None:
        now_ms = self._coordinator.now_ms
        if self._then is not None and all(
            self._router.is_fresh(name, now_ms) for name in self._topics
        ):
            then, self._then = self._then, None
            then()

    def _is_fresh(self) -> bool:
        now_ms = self._coordinator.now_ms
        return all(
            self._router.is_fresh(name, now_ms) and self._router.topic(name) is not None
            for name in self._topics
        )

    def _partitions(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...]] = {}
        for name in self._topics:
            topic = self._router.topic(name)
            if topic is not None:
                found[name] = tuple(sorted(topic.partitions))
        return found
