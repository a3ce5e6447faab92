"""All kinds of store behind one face, with the faults that the contract speaks of.

A `World` gives stores that share one tree, each with a network of its own: `cut` separates a store
at once, `heal` ends that, `expire` ends its session, and `lose_reply` has its next write done but
not answered. `Follower` is the listener of a store: it checks what every listener may rely on.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.remote_store import RemoteStore
from strandline.broker.store_server import StoreServer
from strandline.broker.zookeeper_store import ZooKeeperStore
from strandline.cluster.store import (
    NO_ZXID,
    Changes,
    MultiResult,
    NodeCreated,
    NodeDataSet,
    NodeDeleted,
    Operation,
    OutcomeUnknown,
    Store,
    StoredNode,
    StoreError,
    StoreUnavailable,
    StoreView,
)
from strandline.storage.real_files import RealFiles
from tests.zookeeper.ensemble import ZooKeeperEnsemble
from tests.zookeeper.proxy import TcpProxy, UnixProxy

PATIENCE_S: Final = 120.0
LONG_MS: Final = 20_000
SHORT_MS: Final = 3000
_chroots = itertools.count()

Outcome: TypeAlias = asyncio.Task[MultiResult | StoreError]


class Follower:
    """A listener that follows the tree, and fails if a change does not fit it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.nodes: dict[str, StoredNode] = {}
        self.heard: list[Changes] = []
        self.problems: list[str] = []
        self.zxid = NO_ZXID

    async def load(self) -> StoreView:
        view = await self.store.load(self.hear)
        self.nodes = {node.path: node for node in view.nodes}
        self.zxid = view.zxid
        return view

    def hear(self, changes: Changes) -> None:
        self.heard.append(changes)
        self._expect(changes.zxid > self.zxid, f"{changes.zxid} after {self.zxid}")
        self._expect(bool(changes.changes), "nothing is told")
        self.zxid = changes.zxid
        for change in changes.changes:
            before = self.nodes.get(change.path)
            match change:
                case NodeCreated(path, data, stat):
                    self._expect(before is None, f"{path} is made twice")
                    self.nodes[path] = StoredNode(path, data, stat)
                case NodeDataSet(path, data, stat):
                    fits = before is not None and (
                        before.stat.created_zxid == stat.created_zxid
                        and before.stat.version < stat.version
                    )
                    self._expect(fits, f"{path} is set from {before} to {stat}")
                    self.nodes[path] = StoredNode(path, data, stat)
                case NodeDeleted(path):
                    self._expect(before is not None, f"{path} is deleted twice")
                    children = [other for other in self.nodes if other.startswith(f"{path}/")]
                    self._expect(not children, f"{path} is deleted before {children}")
                    self.nodes.pop(path, None)

    def data(self, path: str) -> bytes | None:
        """What the listener knows to be in the node; None if it knows of none."""
        node = self.nodes.get(path)
        return None if node is None else node.data

    def paths(self) -> list[str]:
        """All nodes that the listener knows."""
        return sorted(self.nodes)

    def _expect(self, fits: bool, what: str) -> None:
        if not fits:
            self.problems.append(what)


class World(Protocol):
    """Stores with one tree, and what can be done to them."""

    async def join(self, session_timeout_ms: int = LONG_MS) -> Follower:
        """A loaded store with its follower."""

    async def cut(self, follower: Follower) -> None:
        """Separate the store; when this returns it knows that."""

    def heal(self, follower: Follower) -> None:
        """End the separation. The store catches up by itself."""

    def expire(self, follower: Follower) -> None:
        """End the session of the store behind its back."""

    async def lose_reply(
        self, follower: Follower, operations: Sequence[Operation], witness: Follower
    ) -> Outcome:
        """Have a multi done whose answer never comes, and the store cut off."""

    async def close(self) -> None:
        """End everything."""


class EmbeddedWorld:
    """Clients of one embedded store."""

    def __init__(self, directory: Path) -> None:
        self._store = EmbeddedStore(RealFiles(), str(directory))

    async def join(self, session_timeout_ms: int = LONG_MS) -> Follower:
        follower = Follower(EmbeddedClient(self._store, session_timeout_ms=session_timeout_ms))
        await follower.load()
        return follower

    async def cut(self, follower: Follower) -> None:
        client_of(follower).cut()

    def heal(self, follower: Follower) -> None:
        client_of(follower).heal()

    def expire(self, follower: Follower) -> None:
        client_of(follower).expire()

    async def lose_reply(
        self, follower: Follower, operations: Sequence[Operation], witness: Follower
    ) -> Outcome:
        writing = asyncio.create_task(outcome_of(follower.store.multi(operations)))
        await asyncio.sleep(0)
        client_of(follower).cut()
        heard = len(witness.heard)
        await until(lambda: len(witness.heard) > heard)
        return writing

    async def close(self) -> None:
        await self._store.close()


class _ProxiedWorld:
    """Stores that each reach theirs through a proxy of their own."""

    def __init__(self) -> None:
        self._proxies: dict[Follower, TcpProxy] = {}

    async def _joined(self, store: ZooKeeperStore | RemoteStore, proxy: TcpProxy) -> Follower:
        follower = Follower(store)
        self._proxies[follower] = proxy
        await follower.load()
        return follower

    async def cut(self, follower: Follower) -> None:
        proxy = self._proxies[follower]
        proxy.cut()
        proxy.drop()
        store = follower.store
        assert isinstance(store, ZooKeeperStore | RemoteStore)
        await until(lambda: not store.is_ready)

    def heal(self, follower: Follower) -> None:
        self._proxies[follower].heal()

    async def lose_reply(
        self, follower: Follower, operations: Sequence[Operation], witness: Follower
    ) -> Outcome:
        proxy = self._proxies[follower]
        heard = len(witness.heard)
        proxy.swallow_replies()
        writing = asyncio.create_task(outcome_of(follower.store.multi(operations)))
        await until(lambda: len(witness.heard) > heard and proxy.lost_bytes > 0)
        await self.cut(follower)
        return writing

    async def close(self) -> None:
        for follower, proxy in self._proxies.items():
            proxy.heal()
            await follower.store.close()
            proxy.close()


class ZooKeeperWorld(_ProxiedWorld):
    """Stores on one ZooKeeper server, below a new chroot."""

    def __init__(self, ensemble: ZooKeeperEnsemble) -> None:
        super().__init__()
        self._ensemble = ensemble
        self._chroot = f"/world-{os.getpid()}-{next(_chroots)}"

    async def join(self, session_timeout_ms: int = LONG_MS) -> Follower:
        ports = self._ensemble.servers[0].ports
        proxy = TcpProxy(ports.host, ports.client)
        store = ZooKeeperStore(
            proxy.address + self._chroot,
            session_timeout_ms=session_timeout_ms,
            connection_timeout_ms=LONG_MS,
            roots=("/",),
        )
        return await self._joined(store, proxy)

    def expire(self, follower: Follower) -> None:
        self._ensemble.expire_session(follower.store.session)


class RemoteWorld(_ProxiedWorld):
    """Stores of other processes, as it were: on one store's socket."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._store = EmbeddedStore(RealFiles(), str(directory))
        # The paths of Unix sockets are short, those of tests are long.
        self._short = tempfile.TemporaryDirectory(prefix="store")
        self._server: StoreServer | None = None

    async def join(self, session_timeout_ms: int = LONG_MS) -> Follower:
        if self._server is None:
            self._server = await StoreServer.start(self._store, f"{self._short.name}/server")
        number = len(self._proxies)
        path = f"{self._short.name}/{number}"
        proxy = UnixProxy(self._server.path, path)
        store = RemoteStore(path, number, session_timeout_ms=session_timeout_ms)
        return await self._joined(store, proxy)

    def expire(self, follower: Follower) -> None:
        assert self._server is not None
        number = list(self._proxies).index(follower)
        self._ends = asyncio.create_task(self._server.broker_died(number))

    async def close(self) -> None:
        await super().close()
        if self._server is not None:
            await self._server.close()
        await self._store.close()
        self._short.cleanup()


def client_of(follower: Follower) -> EmbeddedClient:
    """The follower's store, which is an embedded one."""
    assert isinstance(follower.store, EmbeddedClient)
    return follower.store


def store_of(follower: Follower) -> ZooKeeperStore:
    """The follower's store, which is on ZooKeeper."""
    assert isinstance(follower.store, ZooKeeperStore)
    return follower.store


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.002)


async def written(store: Store, *operations: Operation) -> MultiResult:
    """Write as soon as the store can be written. Only for multis that may be repeated."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await store.multi(operations)
        except (StoreUnavailable, OutcomeUnknown):
            assert time.monotonic() < deadline, "the store did not come back"
            await asyncio.sleep(0.002)


async def outcome_of(writing: Coroutine[Any, Any, MultiResult]) -> MultiResult | StoreError:
    """The results of a multi or what it raised."""
    try:
        return await writing
    except StoreError as error:
        return error
