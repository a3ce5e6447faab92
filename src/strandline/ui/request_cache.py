"""A cache of requests that open pages repeat: the brokers get each of them once for all pages.

A request that is under way, or was answered less than `FRESH_S` ago, is not sent again: every page
gets the same answer. Different requests begin `SPACING_S` apart at least. So what the brokers have
to answer is bounded, however many pages are open and whatever they show.

Connections are kept for the next question: to open them and to agree on versions costs a broker
more than most answers do.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from starlette.concurrency import run_in_threadpool

from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, ProtocolError

FRESH_S: Final = 1.0
SPACING_S: Final = 0.1
ASKED_MAX: Final = 100
"""So many different questions wait, or have been answered just now."""
CLIENTS_MAX: Final = 4
"""So many unused clients are kept."""

Values = Mapping[str, str]
Function = Callable[[ClusterClient, Values], Any]
_Key = tuple[Function, frozenset[tuple[str, str]]]


@dataclass(slots=True)
class _Entry:
    answer: asyncio.Task[Any]
    since_s: float
    """When it was answered, or asked if it is not answered yet; in the loop's time."""


class RequestCache:
    """See the module; on one event loop. `close` ends the connections that are kept."""

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        self._clients = _Clients(bootstrap, settings)
        self._entries: dict[_Key, _Entry] = {}
        self._next_s = 0.0
        """Before this, in the loop's time, no question begins."""

    async def ask(self, function: Function, values: Values) -> Any:
        """What the question gives; it runs in a thread. Raises what it raises, and
        `ProtocolError` (THROTTLING_QUOTA_EXCEEDED) if there are too many."""
        loop = asyncio.get_running_loop()
        self._forget(loop.time())
        key = (function, frozenset(values.items()))
        entry = self._entries.get(key)
        if entry is None:
            if len(self._entries) == ASKED_MAX:
                raise ProtocolError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                    f"Pages ask {ASKED_MAX} different questions already: try again.",
                )
            entry = _Entry(asyncio.create_task(self._answer(key, values)), loop.time())
            self._entries[key] = entry
        # A page that goes away leaves the question to those that still wait for it.
        return await asyncio.shield(entry.answer)

    def close(self) -> None:
        """End the connections that are not in use."""
        self._clients.close()

    async def _answer(self, key: _Key, values: Values) -> Any:
        loop = asyncio.get_running_loop()
        begin_s = max(loop.time(), self._next_s)
        self._next_s = begin_s + SPACING_S
        await asyncio.sleep(begin_s - loop.time())
        try:
            return await run_in_threadpool(self._clients.ask, key[0], values)
        finally:
            self._entries[key].since_s = loop.time()

    def _forget(self, now_s: float) -> None:
        old = [
            key
            for key, entry in self._entries.items()
            if entry.answer.done() and now_s - entry.since_s > FRESH_S
        ]
        for key in old:
            del self._entries[key]


class _Clients:
    """Clients of one cluster, each lent to one thread at a time."""

    def __init__(self, bootstrap: str, settings: ClientSettings) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self._lock = threading.Lock()
        self._idle: list[ClusterClient] = []

    def ask(self, function: Function, values: Values) -> Any:
        with self._lent() as cluster:
            return function(cluster, values)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    @contextmanager
    def _lent(self) -> Iterator[ClusterClient]:
        with self._lock:
            found = self._idle.pop() if self._idle else None
        cluster = found or ClusterClient(self._bootstrap, self._settings)
        try:
            yield cluster
        except BaseException:
            cluster.close()  # an answer may still be on its way
            raise
        with self._lock:
            if len(self._idle) < CLIENTS_MAX:
                self._idle.append(cluster)
                return
        cluster.close()
