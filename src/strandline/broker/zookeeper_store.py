"""Cluster metadata in a ZooKeeper ensemble: the `Store` of a broker that is a process of its own.

    cut off ──connected──▶ surveying ──everything told──▶ ready ──connection lost──▶ cut off

A survey begins with the recursive watch, catches up with the leader (`sync`) and reads the tree; it
follows every connection, since a connection's watches die with it and what happened without them
must be found. While `ready`, change events say what to read again (`zookeeper_mirror`). Writes are
taken only while `ready`, so that the caller that decides a write knows everything before the gap.

Theory of the promise that a multi returns after its changes were told: a server sends the change
events of a transaction before it answers it, and refuses a multi only in the order of transactions,
so everything that must be told is known to be dirty when the answer arrives; the answer then waits
for the cut that covers it. After a lost answer the survey of the next connection is that cut: it is
behind the multi if that happened, because the same leader serves the `sync` after it, and a request
that was still on its way through another server is refused when its session has moved.

This file knows sessions and time; it knows no node's content.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

from kazoo.hosts import collect_hosts

from strandline.broker.zookeeper_absence import Absence
from strandline.broker.zookeeper_access import ANONYMOUS, ZooKeeperAccess
from strandline.broker.zookeeper_leftovers import Leftovers
from strandline.broker.zookeeper_mirror import Mirror
from strandline.broker.zookeeper_requests import (
    REQUEST_BYTES_MAX,
    Multi,
    Read,
    ReadMany,
    Sync,
    WatchRecursively,
    with_parents,
)
from strandline.broker.zookeeper_session import ZooKeeperSession, is_definite, sentence
from strandline.broker.zookeeper_writes import Write, Writes
from strandline.cluster.controller.lifecycle import SKELETON
from strandline.cluster.store import (
    NO_SESSION,
    NO_ZXID,
    Changes,
    Create,
    MultiResult,
    Operation,
    OutcomeUnknown,
    SessionId,
    StoreUnavailable,
    StoreView,
    Zxid,
)
from strandline.cluster.znodes import ControllerEpochNode, ControllerNode
from strandline.errors import InvalidSetting, InvariantViolated

log = logging.getLogger(__name__)

SESSION_TIMEOUT_MS: Final = 18_000
CONNECTION_TIMEOUT_MS_MIN: Final = 18_000
READS_PER_REQUEST: Final = 200
RETRY_S: Final = 1.0
TOLD_AFTER_S: Final = 3.0
_STILL_WAITING: Final = "Still waiting for a ZooKeeper server of %s: none serves this broker yet."
METADATA_ROOTS: Final = tuple(
    sorted(
        {f"/{path.split('/')[1]}" for path in SKELETON}
        | {ControllerNode.path, ControllerEpochNode.path}
    )
)
"""The only nodes that are read and watched: the ensemble may serve others too."""

_NODE_EXISTS: Final = -110
_PATIENCE_IN_TIMEOUTS: Final = 2


class _State(Enum):
    NEW = "not connected yet"
    CUT_OFF = "cut off"
    SURVEYING = "catching up"
    READY = "ready"
    CLOSED = "closed"


class ZooKeeperStore:
    """A `Store`. All methods belong to the event loop that runs when it is loaded."""

    def __init__(
        self,
        hosts: str,
        *,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
        connection_timeout_ms: int | None = None,
        roots: Sequence[str] = METADATA_ROOTS,
        request_bytes_max: int = REQUEST_BYTES_MAX,
        access: ZooKeeperAccess = ANONYMOUS,
    ) -> None:
        """`hosts` is `host:port,host:port/chroot`. Raises `InvalidSetting` if it is not.

        `load` waits `connection_timeout_ms` for a server. Without one it waits as long as a session
        lasts in silence, but a short session does not shorten that.
        `request_bytes_max` is the servers' `jute.maxbuffer`. `access` says who this broker is to
        them, and whose the nodes are that it makes.
        """
        try:
            collect_hosts(hosts)
        except ValueError as error:
            raise InvalidSetting(
                "zookeeper.connect", f"zookeeper.connect: {hosts!r} names no servers: {error}."
            ) from error
        self._hosts = hosts
        self._session_timeout_ms = session_timeout_ms
        self._connection_timeout_ms = connection_timeout_ms or max(
            session_timeout_ms, CONNECTION_TIMEOUT_MS_MIN
        )
        self._roots = tuple(roots)
        self._request_bytes_max = request_bytes_max
        self._access = access
        self._state = _State.NEW
        self._link: ZooKeeperSession | None = None
        self._listener: Callable[[Changes], None] = _nobody
        self._loading: asyncio.Future[StoreView] | None = None
        self._session = NO_SESSION
        self._leftovers = Leftovers()
        # Counts what the answers to reads belong to: others come too late.
        self._connection = 0
        self._mirror = Mirror(self._roots)
        self._published_round = 0
        self._server_zxid = NO_ZXID
        self._writes = Writes()
        self._absence = Absence()
        self._retry: asyncio.TimerHandle | None = None

    @property
    def session(self) -> SessionId:
        """The present session; `NO_SESSION` before `load`."""
        return self._session

    @property
    def is_ready(self) -> bool:
        """Whether the listener is up to date and writes are taken."""
        return self._state is _State.READY

    async def load(self, listener: Callable[[Changes], None]) -> StoreView:
        """Connect and return the present nodes; see `Store.load`.

        Raises `StoreUnavailable` if no server can be reached in time or none can serve us.
        """
        if self._link is not None:
            raise InvariantViolated("A ZooKeeper store is loaded twice.")
        loop = asyncio.get_running_loop()
        self._listener = listener
        self._loading = loop.create_future()
        self._link = ZooKeeperSession(
            self._hosts,
            self,
            session_timeout_ms=self._session_timeout_ms,
            auth_data=self._access.auth_data(),
            tls=self._access.tls,
        )
        self._link.start()
        still_waiting = loop.call_later(TOLD_AFTER_S, log.warning, _STILL_WAITING, self._hosts)
        try:
            async with asyncio.timeout(self._connection_timeout_ms / 1000):
                view = await self._loading
        except TimeoutError:
            state = self._state.value
            await self.close()
            raise StoreUnavailable(
                f"No ZooKeeper server of {self._hosts} served within "
                f"{self._connection_timeout_ms} ms, the limit of zookeeper.connection.timeout.ms "
                f"(this broker is {state})."
            ) from None
        except BaseException:
            await self.close()
            raise
        finally:
            still_waiting.cancel()
        self._loading = None
        # What came meanwhile is told when the caller has the view.
        loop.call_soon(self.caught_up)
        return view

    async def multi(self, operations: Sequence[Operation]) -> MultiResult:
        """Do all operations or none. Raises a `StoreError`."""
        link = self._link
        request = Multi(
            operations,
            chroot=link.chroot if link is not None else "",
            request_bytes_max=self._request_bytes_max,
            acls=self._access.acls,
        )
        if link is None or self._state is not _State.READY:
            raise StoreUnavailable(
                f"ZooKeeper cannot be written: this broker is {self._state.value}."
            )
        if not operations:
            return ()
        write = self._writes.begin(request)
        link.ask(request, partial(self._written, write))
        try:
            async with asyncio.timeout(self._session_timeout_ms / 1000 * _PATIENCE_IN_TIMEOUTS):
                return await write.outcome
        except TimeoutError:
            raise OutcomeUnknown("ZooKeeper did not answer a write in time.") from None
        finally:
            self._writes.forget(write)

    async def close(self) -> None:
        """End the session, so that its ephemeral nodes go, and let everything go."""
        if self._state is _State.CLOSED:
            return
        self._state = _State.CLOSED
        if self._retry is not None:
            self._retry.cancel()
        self._absence.forget()
        self._writes.give_up("The metadata store was closed during a write.")
        if self._link is not None:
            await self._link.close()

    # -- what the session tells --------------------------------------------------------------

    def connected(self, session: SessionId) -> None:
        """A server serves us: find out what was missed."""
        if self._state is _State.CLOSED:
            return
        if session != self._session:
            log.info("ZooKeeper gave this broker the session %#x.", session)
            self._leftovers.session_ended(self._session)
            self._session = session
        self._survey()

    def disconnected(self) -> None:
        """Nothing can be asked; writes are refused from now on."""
        if self._state in (_State.SURVEYING, _State.READY):
            self._absence.begin("The connection to ZooKeeper is lost.")
            self._state = _State.CUT_OFF
            self._connection += 1
            self._mirror.abort()

    def failed(self, reason: str) -> None:
        """The session cannot be had: fail what waits for it, or try again later."""
        self._give_up(reason, again=self._the_link.restart)

    def changed(self, path: str) -> None:
        """A node is not what it was."""
        self._mirror.changed(path)

    def caught_up(self) -> None:
        """Tell what can be told, then read what must be read."""
        is_loading = self._loading is not None and self._loading.done()
        if is_loading or self._state not in (_State.SURVEYING, _State.READY):
            return
        if self._mirror.may_publish and self._mirror.round > self._published_round:
            self._end_cut()
        self._read_on()
        self._writes.published(self._published_round)

    # -- reading -----------------------------------------------------------------------------

    def _survey(self) -> None:
        """Watch, catch up with the leader, and read everything."""
        link = self._the_link
        self._state = _State.SURVEYING
        self._connection += 1
        prepared = partial(self._prepared, self._connection)
        if self._loading is not None:
            for path in with_parents(link.chroot):
                link.ask(Multi([Create(path)], acls=self._access.acls), prepared)
        for root in self._roots:
            link.ask(WatchRecursively(root, chroot=link.chroot), prepared)
        link.ask(Sync(chroot=link.chroot), prepared)
        self._mirror.survey()
        self._read_on()

    def _prepared(self, connection: int, value: Any, error: Exception | None, _: Zxid) -> None:
        """One of the first requests of a survey was answered."""
        if connection != self._connection:
            return
        if error is not None and is_definite(error):
            self._give_up(f"{sentence(error)} (is it older than 3.6?).", again=self._survey)
        elif isinstance(value, list) and value[0] != _NODE_EXISTS and isinstance(value[0], int):
            self._give_up(
                f"ZooKeeper refused to make the root of {self._hosts} with its error {value[0]}.",
                again=self._survey,
            )

    def _read_on(self) -> None:
        """Ask for what the mirror wants to know next."""
        reads = self._mirror.next_round()
        for start in range(0, len(reads), READS_PER_REQUEST):
            chunk = reads[start : start + READS_PER_REQUEST]
            request = ReadMany(chunk, chroot=self._the_link.chroot)
            self._the_link.ask(request, partial(self._read, self._connection, chunk))

    def _read(
        self,
        connection: int,
        reads: Sequence[Read],
        answers: Any,
        error: Exception | None,
        zxid: Zxid,
    ) -> None:
        if connection != self._connection:
            return
        if error is None:
            self._mirror.answered(reads, answers)
            self._server_zxid = zxid
        elif is_definite(error):
            self._give_up(f"{sentence(error)} to a read.", again=self._survey)
        # Otherwise the connection is lost, which we hear next.

    def _end_cut(self) -> None:
        """The mirror has a state to tell, unless it is one that must not be told."""
        mirror, zxid = self._mirror, self._server_zxid
        if mirror.unreadable:
            path, refusal = next(iter(mirror.unreadable.items()))
            self._give_up(
                f"ZooKeeper does not let this broker read {path} (its error {refusal.code}): is "
                "strandline.zookeeper.digest that of the other brokers?",
                again=self._survey,
            )
            return
        if mirror.is_older_than_published(zxid):
            self._give_up("The ZooKeeper server is behind its ensemble.", again=self._survey)
            return
        if self._state is _State.SURVEYING and self._leftovers.clear(mirror, self._the_link):
            return
        if self._state is _State.SURVEYING:
            self._state = _State.READY
            self._absence.end()
            self._writes.up_to_date()
        self._published_round = mirror.round
        if self._loading is not None:
            self._loading.set_result(mirror.view(zxid))
            return
        changes = mirror.publish(zxid)
        if changes is not None:
            self._notify(changes)

    def _notify(self, changes: Changes) -> None:
        try:
            self._listener(changes)
        except Exception:
            # A bug in the listener must not stop the store: others wait for their writes.
            log.exception("Transaction %d of the metadata could not be taken in", changes.zxid)

    # -- writing -----------------------------------------------------------------------------

    def _written(self, write: Write, results: Any, error: Exception | None, _: Zxid) -> None:
        """A multi was answered, or its answer was lost."""
        if error is None:
            self._writes.answered(write, results, published_with=self._mirror.settled_with)
        elif is_definite(error):
            self._writes.failed(write, StoreUnavailable(f"{sentence(error)} to a write."))
        else:
            self._writes.lost(write)

    # -- trouble -----------------------------------------------------------------------------

    def _give_up(self, reason: str, *, again: Callable[[], None]) -> None:
        """What must work does not: `load` fails, a loaded store is cut off and tries again."""
        if self._state is _State.CLOSED:
            return
        self._connection += 1
        self._mirror.abort()
        if self._loading is not None:
            if not self._loading.done():
                self._loading.set_exception(StoreUnavailable(reason))
            return
        self._absence.begin(reason)
        self._state = _State.CUT_OFF
        connection = self._connection

        def try_again() -> None:
            if connection == self._connection and self._state is not _State.CLOSED:
                again()

        if self._retry is not None:
            self._retry.cancel()
        self._retry = asyncio.get_running_loop().call_later(RETRY_S, try_again)

    @property
    def _the_link(self) -> ZooKeeperSession:
        if self._link is None:
            raise InvariantViolated("A ZooKeeper store is used before it is loaded.")
        return self._link


def _nobody(_: Changes) -> None:
    """The listener before there is one."""
