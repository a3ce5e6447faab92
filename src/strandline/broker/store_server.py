"""The embedded metadata store for brokers in other processes of this machine, over a Unix socket.

    StoreServer    listens; knows the sessions
    _Session       what a broker's ephemeral nodes belong to: outlives its connections
    _Connection    one broker's connection: tells it changes, does its multis

A session ends when nothing has come from its broker for its timeout, or when the broker says
good-bye, or when `broker_died` is called, because the process is known to be gone. That a
connection is lost ends nothing. Every connection is told the whole tree first, so that nothing
must be remembered for a broker that is away.

Theory: what is told and what is answered share one stream. Changes are told before the multi that
made them is answered, so a broker that reads the stream in order has what `Store` promises. Before
a broker is told the tree on a new connection, everything that it asked for on the old one has
happened or is withdrawn: what the tree does not show will not come later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from contextlib import suppress
from typing import Final

from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.silence import Silence
from strandline.broker.store_messages import (
    REQUEST_BYTES_MAX,
    Message,
    failure,
    frame_of,
    operations_of,
    outcome,
    read_message,
    told,
    view_frames,
)
from strandline.cluster.store import Changes, SessionId, StoreError, StoreView
from strandline.errors import MalformedFrame
from strandline.protocol.messages import metadata_store as wire

SILENT_TICKS: Final = 20
REQUESTS_MAX: Final = 1000
"""Multis under way on one connection; beyond them it is not read."""
UNREAD_BYTES_MAX: Final = 64 << 20
"""A broker that reads so little is cut off. It is told everything anew when it comes back."""
_HELLO_S: Final = 10.0
_OWNER_ONLY: Final = stat.S_IRUSR | stat.S_IWUSR

log = logging.getLogger(__name__)


class StoreServer:
    """See the module. All methods belong to the store's event loop. Made by `start`."""

    def __init__(self, store: EmbeddedStore, path: str) -> None:
        self.path = path
        self._store = store
        self._sessions: dict[SessionId, _Session] = {}
        self._handlers: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @classmethod
    async def start(cls, store: EmbeddedStore, path: str) -> StoreServer:
        """Listen at `path`, which only this user's processes may connect to. Raises `OSError`.

        What a killed process has left there is replaced: that it is dead the store's lock says.
        """
        server = cls(store, path)
        with suppress(FileNotFoundError):
            os.unlink(path)
        server._server = await asyncio.start_unix_server(server._accept, path, start_serving=False)
        os.chmod(path, _OWNER_ONLY)
        await server._server.start_serving()
        return server

    async def broker_died(self, broker_id: int) -> None:
        """A broker's process is gone for certain: end its sessions now."""
        for session in tuple(self._sessions.values()):
            if session.broker_id == broker_id:
                await self._end(session)

    async def close(self) -> None:
        """Tell and hear nothing any more. Sessions that are open are left as they are."""
        if self._server is not None:
            self._server.close()
        for handler in tuple(self._handlers):
            handler.cancel()
        if self._handlers:
            await asyncio.wait(self._handlers)
        for session in self._sessions.values():
            await session.forget()
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    # -- sessions ----------------------------------------------------------------------------

    async def _session_for(self, hello: wire.Hello) -> _Session:
        """The session that a broker has, or a new one."""
        known = self._sessions.get(SessionId(hello.session))
        if known is not None and known.broker_id == hello.broker_id:
            if known.ending is None:
                return known
            await asyncio.shield(known.ending)
        session = _Session(self, self._store.open_session(), hello)
        self._sessions[session.id] = session
        return session

    def expire(self, session: _Session) -> None:
        """The broker has been silent for too long."""
        log.warning(
            "Nothing was heard of broker %d for %.1f s: its metadata session has ended.",
            session.broker_id,
            session.timeout_s,
        )
        self._begin_end(session)

    async def _end(self, session: _Session) -> None:
        await asyncio.shield(self._begin_end(session))

    def _begin_end(self, session: _Session) -> asyncio.Task[None]:
        if session.ending is None:
            session.silence.stop()
            session.ending = asyncio.create_task(self._delete_owned(session))
        return session.ending

    async def _delete_owned(self, session: _Session) -> None:
        if session.connection is not None:
            session.connection.hang_up()
        await self._store.end_session(session.id)
        self._sessions.pop(session.id, None)

    # -- connections -------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._handlers.add(task)
            task.add_done_callback(self._handlers.discard)
        try:
            await self._serve(reader, writer)
        except MalformedFrame as error:
            log.warning("A connection to the metadata store is closed: %s", error)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            pass  # The broker is gone, or comes back on another connection.
        except asyncio.CancelledError:
            pass  # The store closes. Python 3.11 complains of a stream whose task is cancelled.
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HELLO_S):
            hello = await read_message(reader, REQUEST_BYTES_MAX)
        if not isinstance(hello, wire.Hello) or hello.session_timeout_ms < 1:
            raise MalformedFrame("A broker does not say who it is.")
        # Looked at again after each wait: the session may have ended meanwhile.
        while (session := await self._session_for(hello)).connection is not None:
            await session.connection.end()
        connection = session.connection = _Connection(self._store, session, writer)
        is_over = False
        try:
            view = await connection.load()
            connection.send(wire.Welcome(session=session.id))
            for frame in view_frames(view):
                writer.write(frame)
            while not is_over:
                request = await read_message(reader, REQUEST_BYTES_MAX)
                is_over = await self._carry_out(connection, request)
                await writer.drain()  # a broker that asks faster than it reads waits
        finally:
            await connection.end(politely=is_over)

    async def _carry_out(self, connection: _Connection, message: Message) -> bool:
        """Do what a broker asks for; whether it was the last."""
        session = connection.session
        session.silence.heard()
        match message:
            case wire.Multi():
                await connection.begin(message)
            case wire.Ping():
                connection.send(message)
            case wire.Bye():
                await connection.until_done()
                session.silence.stop()
                await self._store.end_session(session.id)
                self._sessions.pop(session.id, None)
                connection.send(outcome(message.number, ()))
                return True
            case _:
                raise MalformedFrame(f"A broker sends {type(message).__name__}.")
        return False


class _Session:
    """See the module."""

    def __init__(self, server: StoreServer, session: SessionId, hello: wire.Hello) -> None:
        self.id = session
        self.broker_id = hello.broker_id
        self.timeout_s = hello.session_timeout_ms / 1000
        self.connection: _Connection | None = None
        self.ending: asyncio.Task[None] | None = None
        self.silence = Silence(self.timeout_s, SILENT_TICKS, lambda: server.expire(self))

    async def forget(self) -> None:
        """Let timers and tasks go."""
        self.silence.stop()
        if self.ending is not None:
            self.ending.cancel()
            await asyncio.wait([self.ending])


class _Connection:
    """See the module."""

    def __init__(
        self, store: EmbeddedStore, session: _Session, writer: asyncio.StreamWriter
    ) -> None:
        self.session = session
        self._store = store
        self._writer = writer
        self._multis: set[asyncio.Task[None]] = set()
        self._is_told = False
        self._ended = asyncio.Event()
        self._is_ending = False

    async def load(self) -> StoreView:
        """The tree; `tell` is called for every change after it."""
        view = await self._store.load(self.tell)
        if self._is_ending:
            self._store.unload(self.tell)
            raise ConnectionAbortedError("The broker is back on another connection.")
        self._is_told = True
        return view

    def send(self, message: Message) -> None:
        """Send, unless the connection is lost: then its reader learns of it."""
        if not self._writer.is_closing():
            self._writer.write(frame_of(message))

    def tell(self, changes: Changes) -> None:
        """The store's listener."""
        self.send(told(changes))
        if self._writer.transport.get_write_buffer_size() > UNREAD_BYTES_MAX:
            log.warning("Broker %d does not read the metadata.", self.session.broker_id)
            self.hang_up()

    def hang_up(self) -> None:
        """Break the connection at once; its reader learns of that."""
        self._writer.transport.abort()

    async def begin(self, multi: wire.Multi) -> None:
        """Have a multi done; returns when the next may be read."""
        task = asyncio.create_task(self._do(multi))
        self._multis.add(task)
        task.add_done_callback(self._multis.discard)
        if len(self._multis) >= REQUESTS_MAX:
            await asyncio.wait(self._multis, return_when=asyncio.FIRST_COMPLETED)

    async def until_done(self) -> None:
        """Wait for the multis under way."""
        while self._multis:
            await asyncio.wait(self._multis)

    async def end(self, *, politely: bool = False) -> None:
        """Tell nothing any more, and let what is under way happen or be withdrawn."""
        if not self._is_ending:
            self._is_ending = True
            if politely:
                self._writer.close()
            else:
                self.hang_up()
            if self._is_told:
                self._store.unload(self.tell)
            for task in self._multis:
                task.cancel()
            await self.until_done()
            if self.session.connection is self:
                self.session.connection = None
            self._ended.set()
        await self._ended.wait()

    async def _do(self, multi: wire.Multi) -> None:
        try:
            results = await self._store.multi(operations_of(multi), self.session.id)
        except StoreError as error:
            self.send(failure(multi.number, error))
        except MalformedFrame as error:
            log.warning("A connection to the metadata store is closed: %s", error)
            self.hang_up()
        else:
            self.send(outcome(multi.number, results))
