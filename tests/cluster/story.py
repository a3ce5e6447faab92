"""A store and the image that follows it, for tests of what the controller decides.

Every step checks that the image that was advanced equals the image that is built from scratch, and
that the delta says exactly how the two images differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import TypeVar

from strandline.cluster.controller import (
    Decision,
    TopicSpec,
    become_controller,
    bootstrap,
    create_topics,
    register_broker,
)
from strandline.cluster.image import ClusterImage, ImageDelta, TopicImage
from strandline.cluster.store import NO_SESSION, Changes, MultiResult, Operation, SessionId
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import BrokerNode, ConfigResource, Endpoint
from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.types import BrokerId, TopicPartition

Result = TypeVar("Result")
Key = TypeVar("Key", BrokerId, ConfigResource)

NOW_MS = 1_700_000_000_000


def settings(*overrides: str) -> BrokerConfig:
    return load_broker_config(overrides=overrides).config


class Story:
    """A cluster of so many brokers, of which the first is the controller."""

    def __init__(self, broker_count: int = 1, *overrides: str) -> None:
        self.config = settings("node.id=1", *overrides)
        self.random = Random(7)
        self.tree = NodeTree()
        self.image = ClusterImage()
        self.delta = ImageDelta()
        self.history: list[Changes] = []
        self.do(bootstrap((), random=self.random))
        for number in range(1, broker_count + 1):
            self.join(number)
        self.do(become_controller(self.image, BrokerId(1), now_ms=NOW_MS), session_of(1))

    def do(self, operations: Sequence[Operation], session: SessionId = NO_SESSION) -> MultiResult:
        """Carry a multi out and let the image follow."""
        applied = self.tree.multi(operations, session)
        if applied.changes is not None:
            self.hear(applied.changes)
        return applied.results

    def join(self, number: int, rack: str | None = None) -> None:
        """A broker registers."""
        node = BrokerNode(BrokerId(number), (Endpoint("PLAINTEXT", "h", 9000 + number),), rack)
        self.do(register_broker(self.image, node), session_of(number))

    def leave(self, number: int) -> None:
        """A broker's session ends."""
        changes = self.tree.expire_session(session_of(number)).changes
        assert changes is not None
        self.hear(changes)

    def hear(self, changes: Changes) -> None:
        """The image follows one transaction."""
        before = self.image
        self.history.append(changes)
        self.image, self.delta = before.apply(changes)
        self.check(before)

    def follow(self, decision: Decision[Result]) -> tuple[Result, ...]:
        """Make a decision true and return its results."""
        if decision.operations:
            self.do(decision.operations)
        return decision.results

    def create(self, *specs: TopicSpec) -> None:
        """Create topics, none of which may be refused."""
        decision = create_topics(self.image, specs, self.config, random=self.random)
        assert not [result for result in self.follow(decision) if result.refusal]

    def check(self, before: ClusterImage) -> None:
        """The image is the one of its store; the delta is the difference."""
        assert self.image == ClusterImage.from_view(self.tree.view())
        assert self.delta == difference(before, self.image, self.delta)


def session_of(number: int) -> SessionId:
    return SessionId(100 + number)


def difference(before: ClusterImage, after: ClusterImage, told: ImageDelta) -> ImageDelta:
    """The delta, computed by comparing everything.

    Only `told` knows whether a topic that kept its id was deleted in between.
    """
    again = {topic.name for topic in told.topics_created} & {t.name for t in told.topics_deleted}
    gone: list[TopicImage] = []
    new: list[TopicImage] = []
    partitions: list[TopicPartition] = []
    for name in sorted(before.topics.keys() | after.topics.keys()):
        old, now = before.topics.get(name), after.topics.get(name)
        is_same = old and now and old.topic_id == now.topic_id and name not in again
        if old and not is_same:
            gone.append(old)
        if now and not is_same:
            new.append(now)
        former = old.partitions if old and is_same else {}
        partitions += (
            TopicPartition(name, number)
            for number, partition in sorted(now.partitions.items() if now else ())
            if former.get(number) != partition
        )
    return ImageDelta(
        topics_created=tuple(new),
        topics_deleted=tuple(gone),
        partitions_changed=tuple(partitions),
        brokers_changed=tuple(_differing(before.brokers, after.brokers)),
        configs_changed=tuple(_differing(before.configs, after.configs)),
        deletions_changed=tuple(sorted(before.requested_deletions ^ after.requested_deletions)),
        controller_changed=(before.controller, before.controller_epoch)
        != (after.controller, after.controller_epoch),
    )


def _differing(before: Mapping[Key, object], after: Mapping[Key, object]) -> list[Key]:
    keys = before.keys() | after.keys()
    return sorted(key for key in keys if before.get(key) != after.get(key))
