"""What the blocking client's functions ask, asked without blocking.

    attempt(function) ── it asks something that is not known ──> Needed ── fulfil ──┐
        ^                                                                          │
        └──────────────── from its beginning, with all answers so far <────────────┘

Most operations ask one thing or two, and what they do depends on the answers alone. So such a
function needs not be written a second time for an event loop: it runs until it asks something, the
answer is fetched, and it runs again from its beginning and gets that answer at once. A request is
sent once in an attempt. This file knows no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from strandline.client.aio.connection import Connection as AsyncConnection
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.metadata import ClusterView
from strandline.client.retry import is_worth_retrying
from strandline.client.router import Router
from strandline.client.settings import Address, ClientSettings
from strandline.client.versions import ServedVersions
from strandline.errors import ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.types import BrokerId

T = TypeVar("T")


class AsyncAsker(Protocol):
    """What is asked of a cluster on an event loop; each may raise `ProtocolError`."""

    async def refresh(
        self, topics: Iterable[str] | None = (), *, may_create: bool = False
    ) -> ClusterView: ...

    async def coordinator(self, group: str) -> AsyncConnection: ...

    async def any_connection(self) -> AsyncConnection: ...

    async def connection_to(self, broker: BrokerId) -> AsyncConnection: ...


class Needed(Exception):
    """Something must be asked before the function can go on. `fulfil` asks it."""

    async def fulfil(self, cluster: AsyncAsker) -> None:
        """Ask, and keep the answer, or the error that it is."""
        raise NotImplementedError


class Again(Exception):
    """The attempt failed in a way that another may mend; `is_of_part` if only in a part."""

    def __init__(
        self, error: ProtocolError, *, is_of_controller: bool = False, is_of_part: bool = False
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_of_controller = is_of_controller
        self.is_of_part = is_of_part


@dataclass(eq=False)
class _Told:
    """The answer to a request, or its error."""

    broker: BrokerId | None
    key: ApiKey
    message: object
    answer: Any
    error: ProtocolError | None
    is_used: bool = False
    """Whether this run of the function has had it."""


@dataclass(eq=False)
class _Answers:
    """All that was told in an attempt."""

    refreshed: dict[tuple[tuple[str, ...] | None, bool], ProtocolError | None] = field(
        default_factory=dict
    )
    coordinators: dict[str, ProtocolError] = field(default_factory=dict)
    opened: dict[BrokerId | None, _Opened] = field(default_factory=dict)
    told: list[_Told] = field(default_factory=list)


@dataclass(eq=False)
class _Opened:
    """A connection, as far as a function asks about it."""

    address: Address
    served: ServedVersions
    error: ProtocolError | None = None


class Operations:
    """One operation of a client on an event loop."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ClientSettings, router: Router
    ) -> None:
        self._cluster = _RecordedCluster(bootstrap, settings, router)

    def begin(self) -> None:
        """A new attempt: what was told before counts no more."""
        self._cluster.answers = _Answers()

    def settle(self) -> None:
        """There is no time for another attempt: what was told counts, with its errors."""
        self._cluster.is_settled = True

    def attempt(self, operation: Callable[[ClusterClient], T]) -> T:
        """Run it from its beginning. Raises `Needed`, `Again`, and what it raises."""
        for told in self._cluster.answers.told:
            told.is_used = False
        return operation(self._cluster)


class _RecordedCluster(ClusterClient):
    """Answers from what is known, or raises `Needed`. It has no connection."""

    def __init__(
        self, bootstrap: Sequence[Address], settings: ClientSettings, router: Router
    ) -> None:
        super().__init__(bootstrap, settings)
        self.router = router
        self.answers = _Answers()
        self.is_settled = False

    def refresh(self, topics: Any = (), *, may_create: bool = False) -> ClusterView:
        names = None if topics is None else tuple(sorted(set(topics)))
        if (names, may_create) not in self.answers.refreshed:
            raise _Refresh(self.answers, names, may_create=may_create)
        error = self.answers.refreshed[names, may_create]
        if error is not None:
            raise error
        return self.view

    def any_connection(self) -> Connection:
        return cast("Connection", _RecordedConnection(self.answers, None))

    def connection_to(self, broker: BrokerId) -> Connection:
        return cast("Connection", _RecordedConnection(self.answers, broker))

    def coordinator(self, group: str) -> Connection:
        if group in self.answers.coordinators:
            raise self.answers.coordinators[group]
        known = self.router.coordinator(group)
        if known is None:
            raise _FindCoordinator(self.answers, group)
        return self.connection_to(known)

    def retry(self, attempt: Callable[[], T], prepare: Callable[[], None] | None = None) -> T:
        try:
            return attempt()
        except ProtocolError as error:
            if not is_worth_retrying(error):
                raise
            if prepare is not None:
                prepare()
            raise Again(error) from error

    def retry_parts(
        self, attempt: Callable[[], Iterable[ProtocolError]], prepare: Callable[[], None]
    ) -> None:
        failed = [each for each in attempt() if is_worth_retrying(each)]
        if failed and not self.is_settled:
            prepare()
            raise Again(failed[0], is_of_part=True)

    def retry_on_controller(self, attempt: Callable[[Connection], T]) -> T:
        try:
            return attempt(self.controller())
        except ProtocolError as error:
            if not is_worth_retrying(error):
                raise
            raise Again(error, is_of_controller=True) from error


class _RecordedConnection:
    """As much of a `Connection` as operations use."""

    def __init__(self, answers: _Answers, broker: BrokerId | None) -> None:
        self._answers = answers
        self._broker = broker

    @property
    def address(self) -> Address:
        return self._opened.address

    def serves(self, key: ApiKey) -> bool:
        return self._opened.served.serves(key)

    def version_for(self, key: ApiKey, highest: int | None = None) -> int:
        return self._opened.served.newest(key, highest)

    def call(
        self,
        key: ApiKey,
        expected: type[T],
        request: object | Callable[[int], object],
        *,
        highest: int | None = None,
        timeout_ms: int | None = None,
    ) -> T:
        version = self.version_for(key, highest)
        message = request(version) if callable(request) else request
        asked = (self._broker, key, message)
        for told in self._answers.told:
            if not told.is_used and (told.broker, told.key, told.message) == asked:
                told.is_used = True
                if told.error is not None:
                    raise told.error
                return cast("T", told.answer)
        raise _Call(self._answers, self._broker, key, expected, message, highest, timeout_ms)

    @property
    def _opened(self) -> _Opened:
        opened = self._answers.opened.get(self._broker)
        if opened is None:
            raise _Open(self._answers, self._broker)
        if opened.error is not None:
            raise opened.error
        return opened


class _Refresh(Needed):
    def __init__(
        self, answers: _Answers, names: tuple[str, ...] | None, *, may_create: bool
    ) -> None:
        self._answers, self._names, self._may_create = answers, names, may_create

    async def fulfil(self, cluster: AsyncAsker) -> None:
        error = None
        try:
            await cluster.refresh(self._names, may_create=self._may_create)
        except ProtocolError as failure:
            error = failure
        self._answers.refreshed[self._names, self._may_create] = error


class _FindCoordinator(Needed):
    def __init__(self, answers: _Answers, group: str) -> None:
        self._answers, self._group = answers, group

    async def fulfil(self, cluster: AsyncAsker) -> None:
        try:
            await cluster.coordinator(self._group)
        except ProtocolError as error:
            self._answers.coordinators[self._group] = error


class _Open(Needed):
    def __init__(self, answers: _Answers, broker: BrokerId | None) -> None:
        self._answers, self._broker = answers, broker

    async def fulfil(self, cluster: AsyncAsker) -> None:
        try:
            connection = await _connection(cluster, self._broker)
            opened = _Opened(connection.address, connection.served)
        except ProtocolError as error:
            opened = _Opened(Address("", 0), ServedVersions("broker", {}), error)
        self._answers.opened[self._broker] = opened


class _Call(Needed):
    def __init__(
        self,
        answers: _Answers,
        broker: BrokerId | None,
        key: ApiKey,
        expected: type[Any],
        message: object,
        highest: int | None,
        timeout_ms: int | None,
    ) -> None:
        self._told = _Told(broker, key, message, None, None)
        self._answers = answers
        self._expected = expected
        self._highest, self._timeout_ms = highest, timeout_ms

    async def fulfil(self, cluster: AsyncAsker) -> None:
        told = self._told
        try:
            connection = await _connection(cluster, told.broker)
            told.answer = await connection.call(
                told.key,
                self._expected,
                told.message,
                highest=self._highest,
                timeout_ms=self._timeout_ms,
            )
        except ProtocolError as error:
            told.error = error
        self._answers.told.append(told)


async def _connection(cluster: AsyncAsker, broker: BrokerId | None) -> AsyncConnection:
    if broker is None:
        return await cluster.any_connection()
    return await cluster.connection_to(broker)
