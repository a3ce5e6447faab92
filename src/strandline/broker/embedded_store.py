"""The metadata store of a cluster that lives in one process, shared by its brokers.

`EmbeddedStore` owns a `DurableTree` on one event loop: it writes what waits in a thread, tells
every listener what has become durable, and gives out sessions. Each broker uses it through a client
of its own (`embedded_client`), which is the `Store` that the broker sees.

This file knows no node's content and takes no decision about the cluster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from weakref import WeakSet

from strandline.broker.durable_tree import DurableTree, Pending, Recovery
from strandline.broker.worker import Worker
from strandline.cluster.store import (
    NO_SESSION,
    Changes,
    MultiResult,
    Operation,
    SessionId,
    StoreError,
    StoreView,
)
from strandline.storage.files import Files, Lock, join

LOCK: Final = "metadata.lock"
JOURNAL_BYTES_MAX: Final = 4 << 20
_RETRY_S: Final = 1.0

log = logging.getLogger(__name__)


class AttachedClient(Protocol):
    """Whose timers and tasks end with the store."""

    async def drop(self) -> None:
        """Let go of them."""


class EmbeddedStore:
    """The shared tree of a process. All methods belong to one event loop.

    `files` must belong to this store alone: writes run in a thread of its own.
    """

    def __init__(
        self, files: Files, directory: str, *, journal_bytes_max: int = JOURNAL_BYTES_MAX
    ) -> None:
        """Open or make the store in a directory. Raises `StorageError`: `LockHeld` if another
        process uses it, `DamagedJournal` if its files cannot be trusted."""
        files.make_directory(directory)
        self._lock: Lock = files.lock(join(directory, LOCK))
        try:
            self._durable = DurableTree(files, directory, journal_bytes_max=journal_bytes_max)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._thread = Worker("strandline-metadata")
        except BaseException:
            self._durable.close()
            self._lock.release()
            raise
        self._writing = asyncio.Lock()
        self._listeners: list[Callable[[Changes], None]] = []
        self._clients: WeakSet[AttachedClient] = WeakSet()
        # Larger than every id that owns a node: each owner's creates have used a zxid.
        self._last_session = int(self._durable.tree.zxid)

    @property
    def recovery(self) -> Recovery:
        """What opening found."""
        return self._durable.recovery

    def attach(self, client: AttachedClient) -> None:
        """Have a client dropped when the store closes, unless it is gone by then."""
        self._clients.add(client)

    async def close(self) -> None:
        """Drop the clients that are left, wait for the write under way and let the files go.

        Sessions that are open end with the next opening, as if the process had died.
        """
        for client in tuple(self._clients):
            await client.drop()
        async with self._writing:
            self._durable.close()
            self._lock.release()
            self._thread.shutdown()

    # -- for clients -------------------------------------------------------------------------

    def open_session(self) -> SessionId:
        """Start owning ephemeral nodes; they go with `close_session` or with the process."""
        self._last_session += 1
        return SessionId(self._last_session)

    async def close_session(self, session: SessionId) -> None:
        """Delete the session's ephemeral nodes. What it still wants to write is refused."""
        await self._done(self._durable.submit_end_of(session))

    async def end_session(self, session: SessionId) -> None:
        """Delete the ephemeral nodes of a session that has expired, however often it must be tried:
        its owner counts as gone only after that."""
        while True:
            try:
                return await self.close_session(session)
            except StoreError as error:
                log.warning("An expired session of the metadata store cannot be ended: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def load(self, listener: Callable[[Changes], None]) -> StoreView:
        """The durable nodes; from then on the listener hears every change after them."""
        async with self._writing:
            self._listeners.append(listener)
            return self._durable.tree.view()

    def unload(self, listener: Callable[[Changes], None]) -> None:
        """Tell this listener nothing any more."""
        self._listeners.remove(listener)

    async def multi(
        self, operations: Sequence[Operation], session: SessionId = NO_SESSION
    ) -> MultiResult:
        """Do all operations durably, or none. Raises a `StoreError`.

        A caller that is cancelled while its multi waits withdraws it; later it waits for the end of
        the write, and the multi may have happened.
        """
        return await self._done(self._durable.submit(operations, session))

    async def _done(self, pending: Pending) -> MultiResult:
        """Wait for the outcome. The task that gets the lock first writes for all others, too."""
        try:
            async with self._writing:
                while pending.outcome is None:
                    await self._write()
        except asyncio.CancelledError:
            self._durable.withdraw(pending)
            raise
        return pending.result()

    async def _write(self) -> None:
        """Write what waits, uninterrupted: a thread that writes cannot be called back."""
        write = self._durable.begin()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._thread, self._durable.carry_out, write)
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait([work])
            except asyncio.CancelledError as error:
                cancelled = error
        changes = self._durable.finish(write)
        work.result()
        for change in changes:
            self._tell(change)
        if cancelled is not None:
            raise cancelled

    def _tell(self, change: Changes) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(change)
            except Exception:
                # A bug in one broker must not keep the others from hearing what happened.
                log.exception("Transaction %d of the metadata could not be taken in", change.zxid)
