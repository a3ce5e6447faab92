"""A client's way into a cluster: connections, and operations that are tried again.

This file drives a `router` with connections that wait for their answers. The router knows which
broker to ask and what is stale; this file knows which connections there are and how often to try.
It must not know records or what the requests mean: producer, consumer and admin bring those. One
object belongs to one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random, SystemRandom
from typing import TypeVar

from strandline.client.clock import Clock, SystemClock
from strandline.client.connection import Connection
from strandline.client.lookups import broker_of, led_partition, topic_refusal
from strandline.client.metadata import (
    ClusterView,
    LeaderEndpoint,
    LeaderHint,
    PartitionInfo,
    TopicInfo,
)
from strandline.client.refusal import refusal
from strandline.client.retry import BlockingBackoff, is_worth_retrying, retrying
from strandline.client.router import Router
from strandline.client.settings import (
    Address,
    ClientSettings,
    join_addresses,
    parse_addresses,
)
from strandline.errors import AuthenticationFailed, ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.find_coordinator import FindCoordinatorResponse
from strandline.protocol.messages.metadata import MetadataResponse
from strandline.types import BrokerId, TopicId, TopicPartition

T = TypeVar("T")


class ClusterClient:
    """See the module. A context manager: leaving it closes all connections."""

    def __init__(
        self,
        bootstrap: str | Sequence[Address],
        settings: ClientSettings | None = None,
        *,
        clock: Clock | None = None,
        random: Random | None = None,
        router: Router | None = None,
    ) -> None:
        """`bootstrap` is text like `host:port,host:port`, or addresses. With the `router` of
        another client, for the same thread, it shares what that knows. Connects to nothing yet."""
        self.settings = settings or ClientSettings()
        self.clock: Clock = clock or SystemClock()
        self.random: Random = random or SystemRandom()
        self.bootstrap = (
            parse_addresses(bootstrap) if isinstance(bootstrap, str) else tuple(bootstrap)
        )
        self.on_delay: Callable[[ProtocolError], None] = _nothing_told
        """Told each error after which something is tried again, and about once a second which
        answer is waited for: for a person who waits."""
        self.router = router or Router(self.settings, self.random, self.bootstrap)
        """What is known; for those parts of the client that use it themselves."""
        self._connections: dict[Address, Connection] = {}
        self._opening: dict[Address, Connection] = {}
        """Connections to brokers that had not said anything yet when the time was up (`within`)."""
        self._until_ms: int | None = None

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. The client may be used again and then connects anew."""
        for connection in (*self._connections.values(), *self._opening.values()):
            connection.close()
        self._connections.clear()
        self._opening.clear()

    @contextmanager
    def within(self, wait_ms: int) -> Iterator[None]:
        """What is done here raises `ProtocolError` (REQUEST_TIMED_OUT, retriable) rather than wait
        longer for a broker that says nothing. What was asked stays asked: the next attempt to ask
        the same goes on waiting for the answer."""
        self._until_ms = self.clock.monotonic_ms() + wait_ms
        try:
            yield
        finally:
            self._until_ms = None

    def _left_ms(self) -> int | None:
        """How long may be waited; None: as long as the settings say."""
        if self._until_ms is None:
            return None
        return max(0, self._until_ms - self.clock.monotonic_ms())

    # -- Metadata ----------------------------------------------------------------------------

    @property
    def view(self) -> ClusterView:
        """What is known at the moment, without asking."""
        return self.router.view

    def refresh(
        self, topics: Iterable[str] | None = (), *, may_create: bool = False
    ) -> ClusterView:
        """Ask for metadata: of some topics, of all (None), or of the brokers alone (none).

        `may_create` lets the broker create missing topics if it is configured to. Topics that the
        broker refuses are in the view's `refused`; nothing is raised for them.
        """
        names = None if topics is None else sorted(set(topics))
        request = self.router.metadata_request(names, may_create=may_create)
        response = self.retry(
            lambda: self.any_connection().call(ApiKey.METADATA, MetadataResponse, request)
        )
        self.router.learn(response, self.clock.monotonic_ms(), is_of_all=names is None)
        return self.view

    def topic(
        self, name: str, *, may_create: bool = False, partition: int | None = None
    ) -> TopicInfo:
        """A topic, from the cache while that is fresh and has the partition, if one is named. With
        `may_create` it is waited for, for `topic_wait_ms`, as is the partition: both may be on
        their way. Raises `ProtocolError` if there is no such topic."""
        known = self.router.usable_topic(name, self.clock.monotonic_ms(), partition)
        if known is not None:
            return known
        backoff = self.backoff(self.settings.topic_wait_ms if may_create else 0)
        while True:
            view = self.refresh([name], may_create=may_create)
            found = view.topics.get(name)
            if found is not None:
                is_there = partition is None or partition in found.partitions
                if is_there or not backoff.maybe_wait():
                    return found
                continue
            error, is_appearing = topic_refusal(view, name)
            if not is_appearing or not backoff.maybe_wait():
                raise error

    def partition(self, partition: TopicPartition) -> PartitionInfo:
        """A partition that has a leader; raises `ProtocolError` (LEADER_NOT_AVAILABLE) if not."""
        # This may be what brings the view.
        topic = self.topic(partition.topic, partition=partition.partition)
        return led_partition(self.view, topic, partition)

    def expect(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask until these partitions are known, for `topic_wait_ms`: they exist, as another member
        or another broker has said, and what is known here may be older than they are."""
        backoff = self.backoff(self.settings.topic_wait_ms)
        while unknown := self.router.unknown_topics(partitions):
            self.refresh(unknown)
            if self.router.unknown_topics(partitions) and not backoff.maybe_wait():
                return

    def hint(
        self,
        partition: TopicPartition,
        topic_id: TopicId,
        hint: LeaderHint | None,
        endpoints: Iterable[LeaderEndpoint],
    ) -> None:
        """An answer that names this topic said who leads (KIP-951). Metadata that is older will not
        be believed."""
        self.router.hint(partition, topic_id, hint, endpoints)

    def forget(self, topics: Iterable[str]) -> None:
        """Ask again for these topics before they are used next."""
        self.router.forget(topics)

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[BrokerId, list[TopicPartition]]:
        """The partitions under the brokers that lead them."""
        grouped: dict[BrokerId, list[TopicPartition]] = {}
        for each in partitions:
            grouped.setdefault(self.partition(each).leader, []).append(each)
        return grouped

    # -- Connections -------------------------------------------------------------------------

    def connection_to(self, broker: BrokerId) -> Connection:
        """The connection to a broker, opened when first needed."""
        if broker not in self.view.brokers:
            self.refresh()
        return self._connect(broker_of(self.view, broker).address)

    def has_connection_to(self, broker: BrokerId) -> bool:
        """Whether there is a connection to a broker, so that none need be opened."""
        info = self.view.brokers.get(broker)
        connection = None if info is None else self._connections.get(info.address)
        return connection is not None and not connection.closed

    def any_connection(self) -> Connection:
        """A connection to whichever broker can be reached, an open one if there is one."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        candidates = self.router.candidates(self.clock.monotonic_ms())
        failures: list[str] = []
        for address in candidates:
            try:
                return self._connect(address)
            except AuthenticationFailed:
                raise  # the other brokers would say the same
            except ProtocolError as error:
                failures.append(error.message)
        if len(failures) == 1:
            raise ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, failures[0])
        raise ProtocolError(
            ErrorCode.BROKER_NOT_AVAILABLE,
            f"None of the brokers {join_addresses(candidates)} can be reached: {failures[-1]}",
        )

    def controller(self) -> Connection:
        """The connection to the controller, as far as metadata knows it."""
        if self.view.controller is None:
            self.refresh()
        if self.view.controller is None:
            raise refusal(ErrorCode.NOT_CONTROLLER, "The cluster has no controller.", "")
        return self.connection_to(self.view.controller)

    def coordinator(self, group: str) -> Connection:
        """The connection to a group's coordinator."""
        known = self.router.coordinator(group)
        if known is None:
            request = self.router.coordinator_request(group)
            response = self.any_connection().call(
                ApiKey.FIND_COORDINATOR, FindCoordinatorResponse, request
            )
            known = self.router.learn_coordinator(group, response)
        return self.connection_to(known)

    def forget_coordinator(self, group: str) -> None:
        """Look the group's coordinator up again before it is asked next."""
        self.router.forget_coordinator(group)

    def _connect(self, address: Address) -> Connection:
        connection = self._connections.get(address)
        if connection is not None:
            connection.notice_end()
        if connection is None or connection.closed:
            try:
                connection = self._open(address)
            except ProtocolError:
                self.router.failed(address, self.clock.monotonic_ms())
                raise
            self.router.connected(address)
            served = connection.served
            self.router.learn_features(served.features_epoch, served.features)
            self._connections[address] = connection
        return connection

    def _open(self, address: Address) -> Connection:
        connection = self._opening.pop(address, None)
        if connection is None:
            connection = Connection.begin(address, self.settings, self.clock)
            connection.on_silence = self._told
            connection.left_ms = self._left_ms
        if not connection.is_open_within(self._left_ms()):
            self._opening[address] = connection
            raise ProtocolError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"The broker at {address} was connected to, but has not said anything yet.",
            )
        return connection

    def _told(self, error: ProtocolError) -> None:
        self.on_delay(error)

    # -- Retries -----------------------------------------------------------------------------

    def backoff(self, timeout_ms: int | None = None) -> BlockingBackoff:
        """Growing waits; without a timeout, for as long as an operation may take."""
        if timeout_ms is None:
            timeout_ms = self.settings.operation_timeout_ms
        left_ms = self._left_ms()
        if left_ms is not None:
            timeout_ms = min(timeout_ms, left_ms)
        return BlockingBackoff(self.settings, self.clock, self.random, timeout_ms=timeout_ms)

    def retry(self, attempt: Callable[[], T], prepare: Callable[[], None] | None = None) -> T:
        """Do something until it succeeds, fails for good, or the operation's time is up."""

        def told() -> T:
            try:
                return attempt()
            except ProtocolError as error:
                self.on_delay(error)
                raise

        return retrying(told, self.backoff(), prepare or _nothing)

    def retry_parts(
        self, attempt: Callable[[], Iterable[ProtocolError]], prepare: Callable[[], None]
    ) -> None:
        """As `retry`, for something of several parts: `attempt` returns the errors of those that
        failed, and is called again for these. When none of them is worth another try, or time is
        up, the parts that failed keep their errors, and nothing is raised."""
        backoff = self.backoff()
        while True:
            failed = [each for each in attempt() if is_worth_retrying(each)]
            for error in failed[:1]:
                self.on_delay(error)
            if not failed or not backoff.maybe_wait():
                return
            prepare()

    def ask_all_brokers(self, ask: Callable[[Connection], T]) -> dict[BrokerId, T]:
        """Every broker's answer, in the order of their ids. Each is asked as in `retry`; one that
        does not answer and leaves the cluster meanwhile is left out."""
        answers: dict[BrokerId, T] = {}
        for broker in sorted(self.refresh().brokers):
            answers |= self.ask_broker(broker, ask)
        return answers

    def ask_broker(self, broker: BrokerId, ask: Callable[[Connection], T]) -> dict[BrokerId, T]:
        """The same of one broker."""
        return self.retry(partial(self._answer_of, broker, ask), lambda: void(self.refresh()))

    def _answer_of(self, broker: BrokerId, ask: Callable[[Connection], T]) -> dict[BrokerId, T]:
        if broker not in self.view.brokers:
            return {}
        return {broker: ask(self.connection_to(broker))}

    def retry_on_topics(self, attempt: Callable[[], T], topics: Iterable[str]) -> T:
        """As `retry`, with fresh metadata of these topics before each further try."""
        names = tuple(topics)
        return self.retry(attempt, lambda: self.forget(names))

    def retry_on_controller(self, attempt: Callable[[Connection], T]) -> T:
        """As `retry`, for something that the controller is asked."""
        return self.retry(lambda: attempt(self.controller()), lambda: void(self.refresh()))

    def retry_on_coordinator(self, group: str, attempt: Callable[[Connection], T]) -> T:
        """As `retry`, for something that a group's coordinator is asked."""
        return self.retry(
            lambda: attempt(self.coordinator(group)), lambda: self.forget_coordinator(group)
        )


def void(result: object) -> None:
    """For calls whose result does not matter, where a function without one is wanted."""
    del result


def _nothing_told(error: ProtocolError) -> None:
    """For who does not want to hear of it."""


def _nothing() -> None:
    """There is nothing to prepare."""
