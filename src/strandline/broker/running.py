"""A running broker, as its caller sees it: what the start found, and the ways to stop it.

    stop      give leadership away, close everything, mark the shutdown clean
    abandon   end as a killed process does: nothing is said, written or marked
    pause     go on existing without doing anything, as a stopped process; then resume
    cut       lose the connections to other brokers or to the metadata store; then heal

All but the first are for tests of what depends on a broker. They need a store that lives in this
process (`EmbeddedClient`): the sessions of a real ZooKeeper end when real processes do.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.log_closing import close_logs
from strandline.broker.readiness import offline_notice
from strandline.broker.server import Server
from strandline.broker.start_report import StartReport
from strandline.broker.watch import Watch
from strandline.cluster.store import Store
from strandline.errors import InvariantViolated
from strandline.node.log_directories import LogDirectories
from strandline.node.node import Node
from strandline.types import BrokerId

log = logging.getLogger(__name__)

_SHUTDOWN_PATIENCE_S: Final = 60.0
"""The node has a bound of its own, from settings; this one is for a node that has lost its way."""


class Gate(Protocol):
    """Where brokers that start or stop together wait for each other, as at an `asyncio.Barrier`."""

    async def wait(self) -> object:
        """Go on when all are there, or raise `asyncio.BrokenBarrierError`."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a broker is made of."""

    node: Node
    server: Server
    store: Store
    directories: LogDirectories
    watch: Watch
    own_store: EmbeddedStore | None
    """Where the metadata is if no other broker shares it."""


class Broker:
    """A running broker. Made by `start_broker`."""

    def __init__(self, parts: Parts, report: StartReport) -> None:
        self.report = report
        self.node = parts.node
        self._server = parts.server
        self._store = parts.store
        self._directories = parts.directories
        self._watch = parts.watch
        self._own_store = parts.own_store
        self.is_paused = False
        self.has_ended = False

    @property
    def broker_id(self) -> BrokerId:
        return self.node.broker_id

    @property
    def handle_warning(self) -> str | None:
        """What this process lacks."""
        return self._server.handles.warning

    @property
    def notice(self) -> str | None:
        """What the cluster, or this process, lacks at the moment."""
        found = (offline_notice(self.node.metadata.image), self.handle_warning)
        return " ".join(filter(None, found)) or None

    async def until_unfit(self) -> str:
        """Wait until this broker must not go on, and say why.

        That is when another process has its id, which took it over when this one seemed dead: both
        would be taken for the same broker. Or when every log directory has failed.
        """
        await self._watch.for_ever_until(
            lambda: self.node.membership.is_fenced or self._server.halted is not None
        )
        if self._server.halted is not None:
            return self._server.halted
        other = self.node.metadata.image.brokers[self.broker_id]
        return (
            f"Another process, at {other.endpoints[0]}, runs as broker {self.broker_id} now: "
            "every broker needs an id of its own."
        )

    async def stop(self, gate: Gate | None = None) -> bool:
        """Shut down cleanly; returns whether the next start needs no recovery.

        Leadership moves to other brokers first, so that clients lose no time; what cannot move
        within the bound of the settings ends with this broker. Brokers that stop together leave
        together behind a `gate`: so none of them elects leaders for the last moment.
        """
        self._end()
        if self.is_paused:
            self.resume()
        self._server.begin_shutdown()
        await self._watch.until(
            lambda: self.node.is_shutdown_complete, timeout_s=_SHUTDOWN_PATIENCE_S
        )
        await self._server.stop()
        if gate is not None:
            with suppress(asyncio.BrokenBarrierError):  # another one failed: go on alone
                await gate.wait()
        clean = await close_logs(self.node)
        await self._store.close()
        if self._own_store is not None:
            await self._own_store.close()
        return clean

    def abandon(self) -> None:
        """End as by SIGKILL: the operating system closes sockets and files, and that is all.

        What was appended stays, as it does in the page cache. The metadata session ends when its
        timeout has passed.
        """
        self._end()
        self._server.abandon()
        self._embedded.abandon()
        self._directories.abandon()
        for removed in self.node.replicas.logs.removed:
            if removed.log is not None:
                removed.log.close()

    async def ended(self) -> None:
        """Wait until no thread of an abandoned broker touches its files any more."""
        await self._server.ended()

    def pause(self) -> None:
        """Do nothing any more, as by SIGSTOP: sockets stay open, the metadata session runs out."""
        self.is_paused = True
        self._server.pause()
        self._embedded.pause()

    def resume(self) -> None:
        """Go on where it stopped, as by SIGCONT: time has passed, and others may have taken over.

        It acts on what it last knew before it hears what changed meanwhile, as a real one may.
        """
        self.is_paused = False
        self._server.resume()
        self._embedded.resume()
        self._watch.changed()

    def hold(self) -> None:
        """Do nothing until `let_go`, as while a write to a slow disk takes its time: the process
        lives, and so does its session."""
        self._server.pause()

    def let_go(self) -> None:
        """Go on after `hold`."""
        self._server.resume()

    def after_turns(self, look: Callable[[], None] | None) -> None:
        """Have `look` called after each turn from now on; None ends that."""
        self._server.turns.after = look

    def expire_session(self) -> None:
        """Have the metadata store take this broker for dead now. It registers anew."""
        self._embedded.expire()

    def cut_from(self, others: Collection[BrokerId], *, and_metadata: bool) -> None:
        """Lose exactly these connections: of this broker to others, and to the metadata store."""
        self._server.links.block_exactly(others)
        if and_metadata:
            self._embedded.cut()
        else:
            self._embedded.heal()

    @property
    def _embedded(self) -> EmbeddedClient:
        if not isinstance(self._store, EmbeddedClient):
            raise InvariantViolated("Only a broker with embedded metadata can do this.")
        return self._store

    def _end(self) -> None:
        if self.has_ended:
            raise InvariantViolated(f"Broker {self.broker_id} has ended already.")
        self.has_ended = True
