"""A broker's access to the metadata store in another process of its machine: a `Store`.

    away ──welcome──▶ hearing the tree ──all of it──▶ ready ──connection lost──▶ away

Every connection begins with the whole tree, so what was missed is the difference to what was told
before. Writes are taken only while `ready`. A multi whose answer did not come ends as unknown, when
the listener has heard the tree of the next connection: what that does not show has not happened
(see `store_server`). A connection on which nothing comes for two thirds of the session's time is
given up, so that another can save the session.

This file knows one socket and time; it knows no node's content.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Final

from strandline.broker.silence import Silence
from strandline.broker.store_messages import (
    ANSWER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    Message,
    changes_of,
    frame_of,
    message_of,
    read_message,
    results_of,
)
from strandline.cluster.net_effect import difference
from strandline.cluster.store import (
    NO_SESSION,
    NO_ZXID,
    Changes,
    MultiResult,
    MultiTooLarge,
    NodeCreated,
    NodeDeleted,
    Operation,
    OutcomeUnknown,
    SessionId,
    StoredNode,
    StoreError,
    StoreUnavailable,
    StoreView,
)
from strandline.errors import InvariantViolated, MalformedFrame
from strandline.protocol.messages import metadata_store as wire

SESSION_TIMEOUT_MS: Final = 18_000
_SILENT_SHARE: Final = 2 / 3
_PINGS: Final = 4
"""So many remain unanswered before a connection is given up."""
_RECONNECT_S: Final = 0.05
_RECONNECT_MAX_S: Final = 1.0
_BYE_S: Final = 5.0
_PATIENCE_IN_TIMEOUTS: Final = 2

log = logging.getLogger(__name__)


class RemoteStore:
    """See the module. All methods belong to the event loop that runs when it is loaded."""

    def __init__(
        self, path: str, broker_id: int, *, session_timeout_ms: int = SESSION_TIMEOUT_MS
    ) -> None:
        """`path` is the store's socket."""
        self._path = path
        self._broker_id = broker_id
        self._session_timeout_ms = session_timeout_ms
        self._session = NO_SESSION
        self._listener: Callable[[Changes], None] | None = None
        self._loading: asyncio.Future[StoreView] | None = None
        self._told: dict[str, StoredNode] = {}
        self._numbers = itertools.count(1)
        self._under_way: dict[int, asyncio.Future[MultiResult]] = {}
        self._lost: list[asyncio.Future[MultiResult]] = []
        self._writer: asyncio.StreamWriter | None = None
        """Of the connection that can be written; None while there is none."""
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def session(self) -> SessionId:
        """The present session; `NO_SESSION` before `load`."""
        return self._session

    @property
    def is_ready(self) -> bool:
        """Whether the listener is up to date and writes are taken."""
        return self._writer is not None and not self._is_closed

    async def load(self, listener: Callable[[Changes], None]) -> StoreView:
        """Connect and return the present nodes; see `Store.load`. Raises `StoreUnavailable`."""
        if self._listener is not None:
            raise InvariantViolated("A remote metadata store is loaded twice.")
        self._listener = listener
        self._loading = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._keep_connected())
        try:
            async with asyncio.timeout(self._session_timeout_ms / 1000):
                return await self._loading
        except TimeoutError:
            await self.close()
            raise StoreUnavailable(
                f"The metadata store at {self._path} did not answer within "
                f"{self._session_timeout_ms} ms, the limit of zookeeper.session.timeout.ms."
            ) from None
        except BaseException:
            await self.close()
            raise

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none. Raises a `StoreError`."""
        number = next(self._numbers)
        frame = frame_of(message_of(number, operations))
        if len(frame) > REQUEST_BYTES_MAX:
            raise MultiTooLarge(request_bytes=len(frame), request_bytes_max=REQUEST_BYTES_MAX)
        if not self.is_ready:
            raise StoreUnavailable("The metadata store cannot be reached by this broker.")
        patience_s = self._session_timeout_ms / 1000 * _PATIENCE_IN_TIMEOUTS
        return await self._ask(number, frame, patience_s)

    async def close(self) -> None:
        """End the session, so that its ephemeral nodes go, and let everything go."""
        if self._is_closed:
            return
        if self.is_ready:
            number = next(self._numbers)
            bye = self._ask(number, frame_of(wire.Bye(number=number)), _BYE_S)
            self._is_closed = True
            try:
                await bye
            except StoreError as error:
                log.warning("The metadata session ends by its timeout: %s", error)
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._end_lost("The metadata store was closed during a write.")

    async def _ask(self, number: int, frame: bytes, patience_s: float) -> MultiResult:
        """Send, and wait for the outcome."""
        answer: asyncio.Future[MultiResult] = asyncio.get_running_loop().create_future()
        self._under_way[number] = answer
        if self._writer is not None:
            self._writer.write(frame)
        try:
            async with asyncio.timeout(patience_s):
                return await answer
        except TimeoutError:
            raise OutcomeUnknown("The metadata store did not answer a write in time.") from None
        finally:
            self._under_way.pop(number, None)

    # -- connections -------------------------------------------------------------------------

    async def _keep_connected(self) -> None:
        delay_s = _RECONNECT_S
        while not self._is_closed:
            was_ready = False
            try:
                was_ready = await self._connection()
                reason = "it was closed"
            except MalformedFrame as error:
                reason = str(error)
            except OSError as error:
                reason = error.strerror or str(error)
            if was_ready:
                delay_s = _RECONNECT_S
                log.warning("The connection to the metadata store is lost: %s.", reason)
            await asyncio.sleep(delay_s)
            delay_s = min(2 * delay_s, _RECONNECT_MAX_S)

    async def _connection(self) -> bool:
        """One connection from its beginning to its end; whether it became ready."""
        reader, writer = await asyncio.open_unix_connection(self._path)
        silence = Silence(
            self._session_timeout_ms / 1000 * _SILENT_SHARE,
            _PINGS,
            writer.transport.abort,
            lambda: writer.write(frame_of(wire.Ping())),
        )
        was_ready = False
        try:
            hello = wire.Hello(
                broker_id=self._broker_id,
                session=self._session,
                session_timeout_ms=self._session_timeout_ms,
            )
            writer.write(frame_of(hello))
            await self._hear_tree(reader, silence)
            self._be_ready(writer)
            was_ready = True
            await asyncio.sleep(0)  # the caller of load has the view before it is told changes
            while True:
                message = await read_message(reader, ANSWER_BYTES_MAX)
                silence.heard()
                self._take_in(message)
        except (asyncio.IncompleteReadError, ConnectionError):
            return was_ready
        finally:
            silence.stop()
            self._writer = None
            self._lost += self._under_way.values()
            self._under_way = {}
            writer.transport.abort()

    async def _hear_tree(self, reader: asyncio.StreamReader, silence: Silence) -> None:
        """The welcome, and the tree, of which the listener is told what is new to it."""
        welcome = await read_message(reader, ANSWER_BYTES_MAX)
        if not isinstance(welcome, wire.Welcome):
            raise MalformedFrame(f"{type(welcome).__name__} comes in the place of a welcome")
        found: dict[str, StoredNode | None] = {}
        is_more, zxid = True, NO_ZXID
        while is_more:
            silence.heard()
            part = await read_message(reader, ANSWER_BYTES_MAX)
            if not isinstance(part, wire.Told):
                raise MalformedFrame(f"{type(part).__name__} comes in the place of the tree")
            is_more = part.is_more
            changes = changes_of(part)
            zxid = changes.zxid
            for node in changes.changes:
                if not isinstance(node, NodeCreated):
                    raise MalformedFrame("A tree of metadata has more than nodes")
                found[node.path] = StoredNode(node.path, node.data, node.stat)
        if self._session != NO_SESSION:
            kind = "the same" if welcome.session == self._session else "a new"
            log.info("The metadata store is reached again, with %s session.", kind)
        self._session = SessionId(welcome.session)
        gone = dict.fromkeys(self._told.keys() - found.keys())
        told = difference(self._told, {**gone, **found})
        if self._loading is not None:
            nodes = tuple(node for node in found.values() if node is not None)
            if not self._loading.done():
                self._loading.set_result(StoreView(zxid, nodes))
            self._loading = None
        elif told:
            self._notify(Changes(zxid, told))

    def _be_ready(self, writer: asyncio.StreamWriter) -> None:
        """Take writes. Those of the last connection are over: the listener has heard their end."""
        self._writer = writer
        self._end_lost("The connection to the metadata store was lost during a write.")

    def _end_lost(self, reason: str) -> None:
        lost, self._lost = self._lost, []
        for answer in lost:
            if not answer.done():
                answer.set_exception(OutcomeUnknown(reason))

    def _take_in(self, message: Message) -> None:
        match message:
            case wire.Told():
                changes = changes_of(message)
                for change in changes.changes:
                    if isinstance(change, NodeDeleted):
                        self._told.pop(change.path, None)
                    else:
                        self._told[change.path] = StoredNode(change.path, change.data, change.stat)
                self._notify(changes)
            case wire.Outcome():
                answer = self._under_way.pop(message.number, None)
                if answer is None or answer.done():
                    return
                outcome = results_of(message)
                if isinstance(outcome, StoreError):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)
            case wire.Ping():
                pass
            case _:
                raise MalformedFrame(f"The metadata store sends {type(message).__name__}")

    def _notify(self, changes: Changes) -> None:
        if self._listener is None:
            return
        try:
            self._listener(changes)
        except Exception:
            # A bug in the listener must not stop the store: others wait for their writes.
            log.exception("Transaction %d of the metadata could not be taken in", changes.zxid)
