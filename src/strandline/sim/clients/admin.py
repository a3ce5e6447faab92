"""Operations on the cluster as small clients: each does one thing and is done.

`at 1200ms reassign t-0 2,3,1 within=30s`

An operation is a script of requests, each of which is repeated until its outcome is definite or the
time is up, at the controller or at the leader of a partition, wherever that is by then. What a
request means lies in `admin_topics` and `admin_partitions`; this file knows how to send it to
the broker that must do it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from strandline.client.backoff import ExponentialBackoff
from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.sim.clients.client import SimClient
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import Action, ClientSpec
from strandline.sim.scenarios.script import BadScript
from strandline.types import BrokerId, TopicId, TopicPartition

TIMEOUT_MS: Final = 3_000
"""How long a broker may wait until the cluster has done what was asked."""

_AGAIN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.STALE_CONTROLLER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""Errors after which the request is sent again, perhaps to another broker."""


@dataclass(frozen=True, slots=True)
class Request:
    """One step of a script."""

    key: ApiKey
    message: object
    code: Callable[[Any], int]
    """Finds the error code in the answer."""
    leader_of: TopicPartition | None = None
    """The broker that the request goes to; None: `at`, or the controller."""
    also_again: frozenset[ErrorCode] = frozenset()
    """Errors that will pass, in this case."""
    at: BrokerId | None = None


Script: TypeAlias = Generator[Request, Any, str]
"""Yields requests, is sent their answers, and returns the outcome in words."""


class AdminOperation(SimClient):
    """See the module."""

    kind: ClassVar[str] = "admin"

    def __init__(self, world: ClientWorld, name: str, action: Action) -> None:
        spec = ClientSpec(self.kind, name, dict(action.options))
        super().__init__(world, spec, ClientOptions(ClientSpec(self.kind, name)))
        self.action = action
        self.within_us = action.time_us("within", 30_000_000)
        self.outcome = ""
        """In words, once it is done: `done`, `refused CODE`, or `expired`."""
        self.deleted: list[tuple[TopicPartition, int]] = []
        """The answer to DeleteRecords: the partition, and the offset before which nothing is
        left."""
        self.on_deleted: Callable[[TopicPartition, TopicId, int], None] | None = None
        self.connection: Connection | None = None
        """The one that the last answer came over."""
        self._backoff = ExponentialBackoff(self.random)
        self._script = self.script()
        self._request: Request | None = None
        self._is_asking = False
        self.cluster.topics = self.topics()
        self.cluster.changed = self._go_on

    # -- what it is about --------------------------------------------------------------------

    def script(self) -> Script:
        """What to do."""
        raise NotImplementedError

    def topics(self) -> list[str]:
        """The topics whose metadata it needs."""
        return []

    def settings(self, *others: str) -> dict[str, str]:
        """The options that are settings of a topic: all but those for the operation itself."""
        known = {"within", *others}
        return {name: value for name, value in self.action.options.items() if name not in known}

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """See `SimClient`."""
        self.after(self.within_us, self._expire)
        self.cluster.stale()
        self._advance(None)

    def _expire(self) -> None:
        self._end("expired")

    def _end(self, outcome: str) -> None:
        self.outcome = outcome
        self.counters[f"{self.action.verb} {outcome}"] += 1
        self.world.note(f"{self.name}: {self.action} is {outcome}")
        self._script.close()
        self.done()

    def _advance(self, answer: Any) -> None:
        try:
            self._request = self._script.send(answer)
        except StopIteration as end:
            self._end(end.value)
            return
        self._go_on()

    def _go_on(self) -> None:
        """Send the present request to the broker it is for, as soon as that is known."""
        request = self._request
        if self.is_done or self._is_asking or request is None:
            return
        if not self.cluster.has_metadata:
            return  # the first answer comes here again
        broker_id = self._target(request)
        connection = None if broker_id is None else self.cluster.connection(broker_id)
        if connection is None:
            self._again_later()
            return
        self._is_asking = True
        self.connection = connection
        self.cluster.ask(connection, request.key, request.message, self._answered)

    def _target(self, request: Request) -> BrokerId | None:
        if request.at is not None:
            return request.at
        if request.leader_of is None:
            return self.cluster.controller()
        leader = self.cluster.leader(request.leader_of)
        return None if leader is None else leader.broker_id

    def _again_later(self) -> None:
        self._is_asking = True

        def again() -> None:
            self._is_asking = False
            self._go_on()

        self.after(1000 * self._backoff.next_ms(), again)

    def _answered(self, outcome: Outcome) -> None:
        self._is_asking = False
        request = self._request
        if self.is_done or request is None:
            return
        if isinstance(outcome, RequestFailed):
            self.cluster.stale()
            self._again_later()
            return
        code = ErrorCode(request.code(outcome))
        if code in _AGAIN or code in request.also_again:
            self.counters[f"{self.action.verb} {code.name}"] += 1
            self.cluster.stale()
            self._again_later()
            return
        self._backoff.reset()
        self._request = None
        self._advance(outcome)


def verdict(code: int) -> str:
    """An error code as the end of a script."""
    return "done" if code == ErrorCode.NONE else f"refused {ErrorCode(code).name}"


def partition_named(word: str) -> TopicPartition:
    """`t-0` as a partition."""
    topic, dash, number = word.rpartition("-")
    if not dash or not number.isdecimal():
        raise BadScript(f"{word!r} is no partition such as t-0.")
    return TopicPartition(topic, int(number))


def brokers_named(word: str, separator: str = ",") -> list[int]:
    """`2,3,1` as broker ids."""
    numbers = word.split(separator)
    if not all(number.isdecimal() for number in numbers):
        raise BadScript(f"{word!r} is no list of brokers such as 2,3,1.")
    return [int(number) for number in numbers]
