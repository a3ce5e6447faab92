"""A store and the image that follows it, for tests of what the controller decides.

Every step checks that the image that was advanced equals the image that is built from scratch, and
that the delta says exactly how the two images differ.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from strandline.authorization.acls import ResourcePattern
from strandline.cluster.controller import (
    Decision,
    Event,
    InSyncProposal,
    PartitionAltered,
    TopicSpec,
    alter_partitions,
    announce_shutdown,
    become_controller,
    bootstrap,
    create_topics,
    reconcile,
    register_broker,
    report_offline,
    touched_by,
)
from strandline.cluster.features import SUPPORTED
from strandline.cluster.image import ClusterImage, ImageDelta, PartitionImage, TopicImage
from strandline.cluster.store import (
    NO_SESSION,
    Changes,
    MultiResult,
    Operation,
    SessionId,
    SetData,
)
from strandline.cluster.tree import NodeTree
from strandline.cluster.znodes import (
    NO_PREVIOUS_EPOCH,
    BrokerNode,
    ConfigResource,
    Endpoint,
    FeatureRange,
    TopicNode,
    state_path,
)
from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.types import BrokerId, Lives, TopicPartition

Result = TypeVar("Result")
Key = TypeVar("Key", BrokerId, ConfigResource, ResourcePattern, str)

NOW_MS = 1_700_000_000_000


def settings(*overrides: str) -> BrokerConfig:
    return load_broker_config(overrides=overrides).config


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings that are alike for all topics."""

    min_isr: int = 1
    is_unclean: bool = False
    is_deletion_enabled: bool = True

    def min_in_sync(self, topic: str) -> int:
        return self.min_isr

    def unclean_allowed(self, topic: str) -> bool:
        return self.is_unclean


class Story:
    """A cluster of so many brokers, of which the first is the controller."""

    def __init__(
        self, broker_count: int = 1, *overrides: str, policy: Policy | None = None
    ) -> None:
        self.policy = policy or Policy()
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

    def join(
        self,
        number: int,
        rack: str | None = None,
        *,
        previous_epoch: int = NO_PREVIOUS_EPOCH,
        lives: Lives | None = None,
        features: Mapping[str, FeatureRange] = SUPPORTED,
    ) -> None:
        """A broker registers."""
        node = BrokerNode(
            BrokerId(number),
            (Endpoint("PLAINTEXT", "h", 9000 + number),),
            rack,
            previous_epoch=previous_epoch,
            lives=lives,
            features=features,
        )
        self.do(register_broker(self.image, node), session_of(number))

    def leave(self, *numbers: int) -> None:
        """Sessions of brokers end."""
        for number in numbers:
            changes = self.tree.expire_session(session_of(number)).changes
            assert changes is not None
            self.hear(changes)

    def restart(self, *numbers: int, is_clean: bool) -> None:
        """Brokers go and come back before the controller looks."""
        for number in numbers:
            epoch = self.epoch(number)
            self.leave(number)
            self.join(number, previous_epoch=epoch if is_clean else NO_PREVIOUS_EPOCH)

    def announce_shutdown(self, number: int) -> None:
        """A broker says that it is about to stop."""
        self.do(announce_shutdown(self.image, BrokerId(number)), session_of(number))

    def disks_failed(self, number: int, *partitions: TopicPartition) -> None:
        """A broker says that the disks under these replicas, and no others, have failed."""
        told = report_offline(self.image, BrokerId(number), frozenset(partitions))
        self.do(told, session_of(number))

    def epoch(self, number: int) -> int:
        """The broker's epoch."""
        return self.image.brokers[BrokerId(number)].epoch

    def reconcile(self) -> list[Event]:
        """The controller looks, and writes until nothing is left."""
        events: list[Event] = []
        for _ in range(100):
            decision = reconcile(self.image, self.policy)
            if not decision.operations:
                assert not decision.results
                return events
            before = self.image
            events += self.follow(decision)
            # What was written is enough to look at: the rest was in order, or still waits.
            assert before != self.image
            if not reconcile(self.image, self.policy).operations:
                assert not reconcile(self.image, self.policy, touched_by(self.delta)).operations
        raise AssertionError("The controller does not come to an end.")

    def place(self, topic: str, *replicas: Sequence[int]) -> None:
        """Create a topic with these replicas."""
        assignments = [
            (number, [BrokerId(broker) for broker in brokers])
            for number, brokers in enumerate(replicas)
        ]
        self.create(TopicSpec(topic, assignments=assignments))

    def partition(self, topic: str = "t", number: int = 0) -> PartitionImage:
        return self.image.topics[topic].partitions[number]

    def proposal(self, *members: int, topic: str = "t", number: int = 0) -> InSyncProposal:
        """What the leader would propose now, to have these members in sync."""
        partition = self.partition(topic, number)
        return InSyncProposal(
            self.image.topics[topic].topic_id,
            number,
            partition.leader_epoch,
            partition.partition_epoch,
            [(BrokerId(member), self.image.brokers[BrokerId(member)].epoch) for member in members],
        )

    def propose(self, proposal: InSyncProposal, *, sender: int | None = None) -> PartitionAltered:
        """The leader (or that broker) proposes, and gets its answer."""
        topic = self.image.topic_by_id(proposal.topic_id)
        assert topic is not None
        leader = topic.partitions[proposal.partition].leader if sender is None else sender
        [answer] = self.follow(
            alter_partitions(
                self.image, BrokerId(leader), self.epoch(leader), [proposal], self.policy
            )
        )
        return answer

    def shrink(self, *members: int) -> None:
        """The leader makes these the in-sync set."""
        assert self.propose(self.proposal(*members)).refusal is None

    def rewrite(self, topic: str = "t", number: int = 0, **changes: Any) -> None:
        """Another writer changes the state of a partition."""
        state = self.image.topics[topic].states[number].value
        path = state_path(TopicPartition(topic, number))
        self.do([SetData(path, replace(state, **changes).encode())])

    def reassign_by_hand(self, node: TopicNode) -> None:
        """Another writer changes an assignment."""
        self.do([SetData(node.path, node.encode())])

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


def three(min_isr: int = 1, *, is_unclean: bool = False) -> Story:
    """Broker 1 leads t-0, all three are in sync."""
    story = Story(3, policy=Policy(min_isr, is_unclean))
    story.place("t", [1, 2, 3])
    assert story.reconcile() == [], "a new topic is as it should be"
    return story


def leads(story: Story) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
    """Of t-0 the leader, the leader epoch, who is in sync, who is eligible."""
    partition = story.partition()
    return (
        partition.leader,
        partition.leader_epoch,
        partition.in_sync_replicas,
        partition.elr,
    )


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
        acls_changed=tuple(_differing(before.acls, after.acls)),
        deletions_changed=tuple(_differing(before.requested_deletions, after.requested_deletions)),
        controller_changed=(before.controller, before.controller_epoch)
        != (after.controller, after.controller_epoch),
        unreadable_changed=tuple(_differing(before.unreadable, after.unreadable)),
    )


def _differing(before: Mapping[Key, object], after: Mapping[Key, object]) -> list[Key]:
    keys = before.keys() | after.keys()
    return sorted(key for key in keys if before.get(key) != after.get(key))
