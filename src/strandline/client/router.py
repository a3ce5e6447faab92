"""Whom a client asks: leaders, the controller, coordinators, and any broker that may answer.

This file knows how old metadata may get, which brokers are left alone after a failure, and what to
ask to find out more. It has no socket, thread or clock: requests come out, answers and the time go
in. Its drivers are `cluster.ClusterClient`, which waits, and the simulator's clients, which do not.
It must not know what is asked of the brokers that it finds.

Theory: everything that is learned of the cluster may be stale by the time it is used. A broker that
is asked for something that is not its affair says so (NOT_LEADER_OR_FOLLOWER, NOT_CONTROLLER,
NOT_COORDINATOR); then what was believed is to be forgotten, and is asked for anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from random import Random
from typing import Final, NamedTuple

from strandline.client.backoff import ExponentialBackoff
from strandline.client.metadata import (
    BrokerInfo,
    ClusterView,
    LeaderEndpoint,
    LeaderHint,
    Learned,
    Metadata,
    PartitionInfo,
    TopicInfo,
)
from strandline.client.refusal import check
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from strandline.types import BrokerId, TopicId, TopicPartition

_NULL_TOPICS_SINCE: Final = 1
_AUTO_CREATION_SINCE: Final = 4
_TOPICS_BY_ID_SINCE: Final = 12
"""Version 10 has a place for ids, but brokers do not look at it."""
_COORDINATOR_LIST_SINCE: Final = 4
_COORDINATOR_KINDS_SINCE: Final = 1


class Coordinated(IntEnum):
    """What has a coordinator; the numbers are those of FindCoordinator."""

    GROUP = 0
    TRANSACTIONAL_ID = 1


class CoordinatorKey(NamedTuple):
    """Whose coordinator is meant."""

    kind: Coordinated
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower().replace('_', ' ')} '{self.name}'"


class Router:
    """See the module. Times are milliseconds of a clock that never goes back."""

    def __init__(
        self, settings: ClientSettings, random: Random, bootstrap: Sequence[Address]
    ) -> None:
        self._settings = settings
        self._random = random
        self._bootstrap = tuple(bootstrap)
        self._metadata = Metadata()
        self._refreshed_ms: dict[str, int] = {}
        self._reconnecting: dict[Address, ExponentialBackoff] = {}
        self._left_alone_until_ms: dict[Address, int] = {}
        self._coordinators: dict[CoordinatorKey, BrokerId] = {}
        self._features: Mapping[str, int] = {}
        self._features_epoch = -1

    # -- Metadata ----------------------------------------------------------------------------

    @property
    def view(self) -> ClusterView:
        """What is believed at the moment, however old."""
        return self._metadata.view

    def topic(self, name: str) -> TopicInfo | None:
        """A topic as it is believed to be, however old; None if it is not known."""
        return self.view.topics.get(name)

    def suitable_topic(self, name: str, partition: int | None) -> TopicInfo | None:
        """A topic for a record that is to be sent some time, to that partition if one is named:
        what is known of it may be old, since it is asked for again when the record is sent."""
        known = self.topic(name)
        is_suitable = known is not None and (partition is None or partition in known.partitions)
        return known if is_suitable else None

    def is_fresh(self, name: str, now_ms: int) -> bool:
        """Whether what is known of a topic, be it that there is none, may be used as it is."""
        refreshed_ms = self._refreshed_ms.get(name)
        return (
            refreshed_ms is not None and now_ms - refreshed_ms < self._settings.metadata_age_max_ms
        )

    def usable_topic(
        self, name: str, now_ms: int, partition: int | None = None
    ) -> TopicInfo | None:
        """A topic that need not be asked for. If it is known to lack the partition it has to be,
        however new that is: partitions are added, and not taken away."""
        known = self.suitable_topic(name, partition)
        return known if known is not None and self.is_fresh(name, now_ms) else None

    def stale_at_ms(self, topics: Iterable[str]) -> int:
        """When the first of these topics, of which all are known, must be asked for again."""
        known = (self._refreshed_ms[name] for name in topics)
        return min(known) + self._settings.metadata_age_max_ms

    def forget(self, topics: Iterable[str]) -> None:
        """Something that is believed of these topics is not true any more."""
        for name in topics:
            self._refreshed_ms.pop(name, None)

    def leader(self, partition: TopicPartition) -> PartitionInfo | None:
        """A partition that has a leader, as far as is known."""
        topic = self.view.topics.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return None if found is None or found.leader < 0 else found

    def unknown_topics(self, partitions: Iterable[TopicPartition]) -> set[str]:
        """The topics of those partitions that are not known to exist."""
        topics = self.view.topics
        return {
            each.topic
            for each in partitions
            if each.topic not in topics or each.partition not in topics[each.topic].partitions
        }

    def metadata_request(
        self, topics: Sequence[str] | None, *, may_create: bool = False
    ) -> Callable[[int], MetadataRequest]:
        """What to ask of any broker, by version: about some topics, all of them (None), or the
        brokers alone (none)."""

        def request(version: int) -> MetadataRequest:
            wanted = (
                None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
            )
            if version < _NULL_TOPICS_SINCE:
                wanted = wanted or []
            body = MetadataRequest(topics=wanted)
            if version >= _AUTO_CREATION_SINCE:
                body.allow_auto_topic_creation = may_create
            return body

        return request

    def metadata_request_by_id(self, topics: Sequence[TopicId]) -> Callable[[int], MetadataRequest]:
        """What to ask of any broker about topics of which only the ids are known, by version."""

        def request(version: int) -> MetadataRequest:
            if version < _TOPICS_BY_ID_SINCE:
                raise ProtocolError(
                    ErrorCode.UNSUPPORTED_VERSION, "The broker does not know topics by their ids."
                )
            wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topics]
            return MetadataRequest(topics=wanted, allow_auto_topic_creation=False)

        return request

    def learn(self, response: MetadataResponse, now_ms: int, *, is_of_all: bool = False) -> Learned:
        """Take the answer in. Raises `ProtocolError` if it is a refusal as a whole."""
        check(response.error_code, None, "the cluster")
        learned = self._metadata.learn(response, is_of_all=is_of_all)
        if is_of_all:
            self._refreshed_ms.clear()
        for name in learned.topics:
            self._refreshed_ms[name] = now_ms
        return learned

    def hint(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        hint: LeaderHint | None,
        endpoints: Iterable[LeaderEndpoint] = (),
    ) -> bool:
        """An answer that names this topic said who leads (KIP-951); whether that was news. Older
        metadata does not undo it."""
        return self._metadata.hint(partition, topic_id, hint, endpoints)

    # -- Brokers -----------------------------------------------------------------------------

    def candidates(self, now_ms: int) -> list[Address]:
        """Where to ask what every broker knows, the best first.

        Those that are left alone now come last, and before them those whose last connection failed:
        a pause of the client may be as long as theirs, and would end at the same broker each time.
        Of the others, those that metadata named last come first, in a drawn order.
        """
        known = [broker.address for broker in self.view.brokers.values()]
        self._random.shuffle(known)
        every = dict.fromkeys((*known, *self._bootstrap))

        def badness(address: Address) -> tuple[bool, bool]:
            return self.left_alone_until_ms(address) > now_ms, address in self._reconnecting

        return sorted(every, key=badness)

    def left_alone_until_ms(self, address: Address) -> int:
        """Until when there should be no attempt to connect; in the past if one may be made."""
        return self._left_alone_until_ms.get(address, 0)

    def connected(self, address: Address) -> None:
        """A connection was made: the next failure is the first one."""
        self._reconnecting.pop(address, None)

    def failed(self, address: Address, now_ms: int) -> None:
        """A connection could not be made, or has ended."""
        backoff = self._reconnecting.get(address)
        if backoff is None:
            backoff = self._reconnecting[address] = ExponentialBackoff(
                self._random,
                self._settings.reconnect_backoff_ms,
                self._settings.reconnect_backoff_max_ms,
            )
        self._left_alone_until_ms[address] = now_ms + backoff.next_ms()

    # -- Features ----------------------------------------------------------------------------

    def feature(self, name: str) -> int:
        """The level of a feature that the cluster has agreed on; 0 if it has not (KIP-584)."""
        return self._features.get(name, 0)

    def learn_features(self, epoch: int, levels: Mapping[str, int]) -> None:
        """A broker said what the cluster has agreed on; older news does not undo newer."""
        if epoch >= self._features_epoch:
            self._features_epoch, self._features = epoch, dict(levels)

    # -- Coordinators ------------------------------------------------------------------------

    def coordinator(self, name: str, kind: Coordinated = Coordinated.GROUP) -> BrokerId | None:
        """Which broker coordinates a group or a transactional id; None if that is to be asked
        (again)."""
        known = self._coordinators.get(CoordinatorKey(kind, name))
        return known if known in self.view.brokers else None

    def coordinator_request(
        self, name: str, kind: Coordinated = Coordinated.GROUP
    ) -> Callable[[int], FindCoordinatorRequest]:
        """What to ask of any broker, by version."""

        def request(version: int) -> FindCoordinatorRequest:
            if version >= _COORDINATOR_LIST_SINCE:
                return FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            if version < _COORDINATOR_KINDS_SINCE and kind is not Coordinated.GROUP:
                raise ProtocolError(
                    ErrorCode.UNSUPPORTED_VERSION, "The broker knows no coordinators but of groups."
                )
            return FindCoordinatorRequest(key_type=kind, key=name)

        return request

    def learn_coordinator(
        self, name: str, response: FindCoordinatorResponse, kind: Coordinated = Coordinated.GROUP
    ) -> BrokerId:
        """Take the answer in. Raises `ProtocolError` if it names none."""
        key = CoordinatorKey(kind, name)
        found = response.coordinators[0] if response.coordinators else _only_one(response)
        check(found.error_code, found.error_message, str(key))
        broker = BrokerId(found.node_id)
        self._metadata.learn_broker(BrokerInfo(broker, Address(found.host, found.port), None))
        self._coordinators[key] = broker
        return broker

    def forget_coordinator(self, name: str, kind: Coordinated = Coordinated.GROUP) -> None:
        """Another broker coordinates it, or none."""
        self._coordinators.pop(CoordinatorKey(kind, name), None)


def _only_one(response: FindCoordinatorResponse) -> Coordinator:
    """The form of older versions, which name one coordinator in the response itself."""
    return Coordinator(
        node_id=response.node_id,
        host=response.host,
        port=response.port,
        error_code=response.error_code,
        error_message=response.error_message,
    )
