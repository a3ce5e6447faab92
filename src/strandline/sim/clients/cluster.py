"""A simulated client's way into the cluster: the client's own router, on the simulated network.

This file knows when metadata is asked for and which connections there are. What is believed of an
answer, and whom to ask, is the affair of `client.router`. It must not know what its clients ask for
beyond metadata.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, NamedTuple

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.client.metadata import LeaderEndpoint, LeaderHint, PartitionInfo, TopicInfo
from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings
from strandline.errors import ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.metadata import MetadataResponse
from strandline.sim.clients.connection import Connection, Outcome, Then
from strandline.sim.clients.versions import Versions
from strandline.sim.clients.world import ClientWorld
from strandline.types import NO_TOPIC_ID, BrokerId, LeaderEpoch, TopicId, TopicPartition

REQUEST_TIMEOUT_US: Final = 5_000_000
_SETTINGS: Final = ClientSettings(metadata_age_max_ms=10_000)
_GRACE_US: Final = 5_000
"""Complaints of one moment make one refresh."""


class Leader(NamedTuple):
    """The leader of a partition, as far as is known."""

    broker_id: BrokerId
    epoch: LeaderEpoch


class Cluster:
    """See the module. One per client."""

    def __init__(
        self, world: ClientWorld, name: str, random: Random, versions: Versions, topics: list[str]
    ) -> None:
        self.versions = versions
        self.topics = topics
        """The topics whose metadata is requested; more may be added before a `refresh`."""
        self.counters: Counter[str] = Counter()
        self.malformed: list[str] = []
        """Answers that were none, although the network did no harm."""
        self.last_overdue_us = 0
        """When a request was not answered in time for the last time."""
        self.changed: Callable[[], None] = lambda: None
        """Called after each metadata answer."""
        self.is_closed = False
        self._world = world
        self._name = name
        self._random = random
        self._brokers = {
            Address(f"broker-{number}", 9092): BrokerId(number)
            for number in range(1, world.options.brokers + 1)
        }
        self.router = Router(_SETTINGS, random, tuple(self._brokers))
        """What is known; for those parts of the client that use it themselves."""
        self._connections: dict[tuple[BrokerId, str], Connection] = {}
        self._refreshing = ExponentialBackoff(random)
        self._is_refreshing = False
        self._refresh_at_us: int | None = None
        self._is_wanted = False

    # -- What is known -----------------------------------------------------------------------

    def view(self, topic: str) -> TopicInfo | None:
        """A topic, or None if it is not known (yet, or any more)."""
        return self.router.topic(topic)

    @property
    def has_metadata(self) -> bool:
        """Whether any broker has answered yet."""
        return bool(self.router.view.brokers)

    def topic_id(self, topic: str) -> TopicId:
        """The id of a topic; the nil one if it is not known."""
        view = self.view(topic)
        return NO_TOPIC_ID if view is None else view.topic_id

    def partition(self, at: TopicPartition) -> PartitionInfo | None:
        """A partition that has a leader. Without an answer, a refresh is on its way."""
        found = self.router.leader(at)
        if found is None:
            self.stale()
        return found

    def leader(self, at: TopicPartition) -> Leader | None:
        """The leader; None while it is unknown, and then a refresh is on its way."""
        found = self.partition(at)
        return None if found is None else Leader(found.leader, found.leader_epoch)

    def hint(
        self,
        at: TopicPartition,
        topic_id: TopicId,
        hint: LeaderHint | None,
        endpoints: Iterable[LeaderEndpoint] = (),
    ) -> None:
        """An answer that names this topic said who leads (KIP-951)."""
        if self.router.hint(at, topic_id, hint, endpoints):
            self.counters["leader hint used"] += 1

    def controller(self) -> BrokerId | None:
        """The controller; None while it is unknown, and then a refresh is on its way."""
        controller = self.router.view.controller
        if controller is None:
            self.stale()
        return controller

    # -- Metadata ----------------------------------------------------------------------------

    def stale(self) -> None:
        """Something that is believed here is not true any more: ask anew, soon."""
        self._is_wanted = True
        self._plan_refresh(_GRACE_US)

    def keep_fresh(self) -> None:
        """Ask anew if the last answer is old."""
        if not all(self.router.is_fresh(topic, self._now_ms) for topic in self.topics):
            self.stale()

    def _plan_refresh(self, wait_us: int) -> None:
        now_us = self._world.schedule.now_us
        if self.is_closed or self._is_refreshing:
            return
        if self._refresh_at_us is not None and self._refresh_at_us > now_us:
            return
        self._refresh_at_us = now_us + wait_us
        self._world.schedule.at(self._refresh_at_us, self._refresh)

    def _refresh(self) -> None:
        if self.is_closed or self._is_refreshing or not self._is_wanted:
            return
        if self._refresh_at_us is None or self._world.schedule.now_us < self._refresh_at_us:
            return
        self._refresh_at_us = None
        connection = self.any_connection()
        if connection is None:
            self._plan_refresh(1000 * self._refreshing.next_ms())
            return
        self._is_refreshing = True
        self._is_wanted = False
        request = self.router.metadata_request(self.topics)
        self.ask_for(connection, ApiKey.METADATA, request, self._refreshed)

    def _refreshed(self, outcome: Outcome) -> None:
        self._is_refreshing = False
        if isinstance(outcome, RequestFailed):
            self._is_wanted = True
            self._plan_refresh(1000 * self._refreshing.next_ms())
            return
        is_complete = self._take(outcome)
        if is_complete:
            self._refreshing.reset()
        else:
            self._is_wanted = True
        if self._is_wanted:
            self._plan_refresh(1000 * self._refreshing.next_ms())
        self.changed()

    def _take(self, response: MetadataResponse) -> bool:
        """Believe an answer; whether every topic has all its leaders."""
        try:
            learned = self.router.learn(response, self._now_ms)
        except ProtocolError as error:
            self.counters[f"metadata {error.code.name}"] += 1
            return False
        if learned.replaced:
            self.counters["topic id changed"] += len(learned.replaced)
        if learned.outdated:
            self.counters["stale metadata ignored"] += learned.outdated
        topics = [self.view(name) for name in learned.topics]
        return all(
            topic is not None and all(each.leader >= 0 for each in topic.partitions.values())
            for topic in topics
        )

    # -- Connections -------------------------------------------------------------------------

    @property
    def _now_ms(self) -> int:
        return self._world.schedule.now_us // 1000

    def _address(self, broker_id: BrokerId) -> Address:
        known = self.router.view.brokers.get(broker_id)
        if known is not None:
            return known.address
        return next(address for address, each in self._brokers.items() if each == broker_id)

    @property
    def outstanding(self) -> int:
        """Requests without an outcome, on all connections."""
        return sum(connection.outstanding for connection in self._connections.values())

    def connection(self, broker_id: BrokerId, purpose: str = "") -> Connection | None:
        """The connection to a broker; None while it is too early to try again. Connections for
        different purposes are different: a request that waits must not hold up another one."""
        connection = self._connections.get((broker_id, purpose))
        if connection is not None:
            return connection
        if self.is_closed or self.closed_until_us(broker_id) > self._world.schedule.now_us:
            return None
        connection = Connection(broker_id, self._world.schedule, self, self._name)
        self._connections[broker_id, purpose] = connection
        connection.attach(self._world.network.dial(self._name, broker_id, connection))
        return connection

    def closed_until_us(self, broker_id: BrokerId) -> int:
        """Until when this broker is left alone after a failure."""
        return 1000 * self.router.left_alone_until_ms(self._address(broker_id))

    def any_connection(self) -> Connection | None:
        """A connection to a drawn broker, of those that are not left alone now."""
        address = self.router.candidates(self._now_ms)[0]
        known = self.router.view.brokers.values()
        named = [each.broker_id for each in known if each.address == address]
        return self.connection(named[0] if named else self._brokers[address])

    def ask(
        self,
        connection: Connection,
        key: ApiKey,
        message: object,
        then: Then,
        *,
        version: int | None = None,
        timeout_us: int = REQUEST_TIMEOUT_US,
    ) -> None:
        """Send a request in this client's version of it."""
        spoken = self.versions.of(key) if version is None else version
        connection.ask(key, spoken, message, timeout_us, then)

    def ask_for(
        self, connection: Connection, key: ApiKey, request: Callable[[int], object], then: Then
    ) -> None:
        """Send a request that depends on the version in which it is made."""
        self.ask(connection, key, request(self.versions.of(key)), then)

    def close(self) -> None:
        """End all connections. The client is gone."""
        self.is_closed = True
        for connection in list(self._connections.values()):
            connection.close()

    def ask_topic_id(
        self, connection: Connection, topic: str, then: Callable[[TopicId | None], None]
    ) -> None:
        """Which id this broker has for a topic now. Requests that name topics may be answered from
        another incarnation than the asker has in mind: behind such an answer this settles it."""

        def told(outcome: Outcome) -> None:
            found = [] if isinstance(outcome, RequestFailed) else outcome.topics
            then(found[0].topic_id if found and not found[0].error_code else None)

        self.ask_for(connection, ApiKey.METADATA, self.router.metadata_request([topic]), told)

    # -- What connections tell ---------------------------------------------------------------

    def connection_ended(self, connection: Connection, *, was_open: bool) -> None:
        """See `Watcher`."""
        for key, each in self._connections.items():
            if each is connection:
                del self._connections[key]
                break
        if self.is_closed:
            return
        address = self._address(connection.broker_id)
        if was_open:
            self.router.connected(address)
        self.router.failed(address, self._now_ms)
        self.stale()

    def request_overdue(self, broker_id: BrokerId, api: ApiKey) -> None:
        """See `Watcher`."""
        self.last_overdue_us = self._world.schedule.now_us
        self.counters["request timed out"] += 1
        self._world.note(f"{self._name}: broker {broker_id} did not answer {api.name} in time")

    def answer_malformed(self, broker_id: BrokerId, what: str, *, is_damaged: bool) -> None:
        """See `Watcher`."""
        if is_damaged:
            self.counters["damaged answer"] += 1
        else:
            self.malformed.append(f"broker {broker_id}: {what}")
