"""The simulated metadata store: an ensemble with one history, sessions that run out, and faults.

    session: open ── its client is silent for the time-out ── ended, and its ephemeral nodes with it

It does what ZooKeeper does behind `broker.zookeeper_store`, and allows whatever that allows, so
that a node which is right here is right there: writes are carried out one after another on one
tree; each client hears of them late, and perhaps of several at once, but in their order, and before
what came of its own write (F-36..F-39). No client can write while the ensemble is out of service,
and sessions are counted anew when it is back (F-40). How a client sees all this is in
`store_client`.

The truth is here (`tree`, `image`): `watchers` hear each change of it at once. Each broker's delays
come from a stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import (
    NO_SESSION,
    Changes,
    MultiRefused,
    Operation,
    SessionId,
    StoreUnavailable,
    StoreView,
)
from strandline.cluster.tree import NodeTree
from strandline.sim.schedule import Schedule
from strandline.sim.streams import Streams
from strandline.types import BrokerId

Watcher = Callable[[Changes, ClusterImage], None]

# A client is heard of three times per time-out, and a server looks for silent ones by and by.
_PINGS_PER_TIMEOUT: Final = 3
_TICKS_PER_TIMEOUT: Final = 8


class Client(Protocol):
    """A client, as the ensemble sees it; see `store_client`."""

    broker_id: BrokerId

    def hear(self, changes: Changes) -> None:
        """Something has changed."""

    def cut_off(self, *, silent: bool | None) -> None:
        """No message arrives any more, either way."""

    def sever(self) -> None:
        """The server ends the connection."""

    def try_again(self) -> None:
        """Something is better: look for a server."""

    def lag_changed(self) -> None:
        """It is served earlier or later from now on."""


@dataclass(frozen=True, slots=True)
class Lag:
    """How late a client is served."""

    us: int
    torn: bool = False


_NO_LAG: Final = Lag(0)


@dataclass(slots=True, eq=False)
class Session:
    """One session, as the ensemble knows it."""

    id: SessionId
    broker_id: BrokerId
    client: Client | None = None
    is_open: bool = True
    deadline_us: int | None = None
    """When it ends unless its client is heard of. None while that is connected or the ensemble
    down."""


class Store:
    """See the module."""

    def __init__(
        self,
        schedule: Schedule,
        streams: Streams,
        *,
        session_timeout_us: int,
        latency_us: int = 500,
        lag_us: int = 0,
    ) -> None:
        """`latency_us` is the mean time of a message between a broker and the store, `lag_us` the
        longest that news wait until a client reads them."""
        self.schedule = schedule
        self.streams = streams
        self.session_timeout_us = session_timeout_us
        self.latency_us = latency_us
        self.lag_us = lag_us
        self.tree = NodeTree()
        self.image = ClusterImage()
        """The whole metadata as it truly is."""
        self.watchers: list[Watcher] = []
        self.clients: list[Client] = []
        """Of live processes, in the order in which they came."""
        self.is_available = True
        self._sessions: dict[SessionId, Session] = {}
        self._last_session = 0
        self._cut: set[BrokerId] = set()
        self._lags: dict[BrokerId, Lag] = {}
        self._fates: dict[BrokerId, bool] = {}
        self._undecided: list[tuple[Sequence[Operation], Session]] = []

    # -- for brokers and the world -----------------------------------------------------------

    def admit(self, client: Client) -> StoreView:
        """A new client hears everything from now on; the nodes that there are. Raises
        `StoreUnavailable`."""
        if not self.is_available or client.broker_id in self._cut:
            raise StoreUnavailable("No server of the metadata store can be reached.")
        self.clients.append(client)
        return self.tree.view()

    def apply(self, operations: Sequence[Operation], session: SessionId = NO_SESSION) -> None:
        """Do all operations, and notify all clients, or none. Raises `MultiRefused`, and
        `StoreUnavailable` while the ensemble is out of service."""
        if not self.is_available:
            raise StoreUnavailable("The metadata store is out of service.")
        self._tell(self.tree.multi(operations, session).changes)

    # -- faults ------------------------------------------------------------------------------

    def cut(self, broker_id: BrokerId, *, silent: bool | None = None) -> None:
        """Separate a broker from the store until `heal`. Its client notices at once or, if the
        packets only vanish (`silent`), after a while; None: drawn. A new process finds no store."""
        if broker_id in self._cut:
            return
        self._cut.add(broker_id)
        for client in self._clients_of(broker_id):
            client.cut_off(silent=silent)

    def heal(self, broker_id: BrokerId) -> None:
        """End a cut."""
        if broker_id not in self._cut:
            return
        self._cut.remove(broker_id)
        for client in self._clients_of(broker_id):
            client.try_again()

    def is_cut(self, broker_id: BrokerId) -> bool:
        """Whether a broker is separated from the store."""
        return broker_id in self._cut

    def reset(self, broker_id: BrokerId) -> None:
        """Break the connection of a broker, which looks for another server: its session moves."""
        for client in self._clients_of(broker_id):
            client.sever()

    def expire(self, broker_id: BrokerId) -> None:
        """End every session of a broker now, also those of its dead processes (F-35). An ensemble
        that is out of service ends none."""
        for session in tuple(self._sessions.values()):
            if session.broker_id == broker_id and self.is_available:
                self.end(session)

    def expire_all(self) -> None:
        """End all sessions at one moment, as `expire` does."""
        for broker_id in sorted({session.broker_id for session in self._sessions.values()}):
            self.expire(broker_id)

    def lose_next(self, broker_id: BrokerId, applied: bool) -> None:
        """Break the connection of a broker under its next write, after it was `applied` (F-36) or
        before (F-37). The broker cannot tell which."""
        self._fates[broker_id] = applied

    def lag(self, broker_id: BrokerId, us: int, *, torn: bool = False) -> None:
        """Serve a broker so much late from now on, its news gathered meanwhile (F-38, F-39); 0 ends
        it. `torn`: a transaction may then be heard in two parts, as under changes that never stop.
        """
        if us > 0:
            self._lags[broker_id] = Lag(us, torn)
        else:
            self._lags.pop(broker_id, None)
        for client in self._clients_of(broker_id):
            client.lag_changed()

    def set_unavailable(self, is_unavailable: bool) -> None:
        """Take the whole ensemble out of service, or bring it back (F-40)."""
        if is_unavailable != self.is_available:
            return
        self.is_available = not is_unavailable
        if is_unavailable:
            for session in self._sessions.values():
                session.deadline_us = None
            for client in tuple(self.clients):
                client.sever()
        else:
            self._return_to_service()

    def heal_all(self) -> None:
        """End all faults. What they have cost stays lost."""
        self._fates.clear()
        for broker_id in tuple(self._lags):
            self.lag(broker_id, 0)
        for broker_id in sorted(self._cut):
            self.heal(broker_id)
        self.set_unavailable(False)

    # -- for clients -------------------------------------------------------------------------

    def lag_of(self, broker_id: BrokerId) -> Lag:
        """How much late a broker is served at present."""
        return self._lags.get(broker_id, _NO_LAG)

    def take_fate(self, broker_id: BrokerId) -> bool | None:
        """Whether the broker's next write is lost after it was applied, before, or not at all."""
        return self._fates.pop(broker_id, None) if self._fates else None

    def open_session(self, client: Client) -> Session:
        """A new session, whose client is in touch."""
        self._last_session += 1
        session = Session(SessionId(self._last_session), client.broker_id, client)
        self._sessions[session.id] = session
        return session

    def keep(self, session: Session) -> None:
        """The client is in touch."""
        session.deadline_us = None

    def leave(self, session: Session) -> None:
        """Nothing is heard of the client from now on: the session ends unless `keep` comes."""
        if session.is_open and session.deadline_us is None and self.is_available:
            # The last sign of life was a while ago.
            timeout_us = self.session_timeout_us
            unheard_us = self._draw_us(session, timeout_us // _PINGS_PER_TIMEOUT)
            self._end_in(timeout_us - unheard_us, session)

    def end(self, session: Session) -> None:
        """End a session; what it owned goes. Its client learns of it later than all others."""
        if not session.is_open:
            return
        session.is_open = False
        del self._sessions[session.id]
        if session.client is not None:
            session.client.sever()
        self._tell(self.tree.expire_session(session.id).changes)

    def leave_undecided(self, operations: Sequence[Operation], session: Session) -> None:
        """The ensemble failed in the middle of a write, and will remember it when it is back."""
        self._undecided.append((operations, session))

    # -- inside ------------------------------------------------------------------------------

    def _clients_of(self, broker_id: BrokerId) -> list[Client]:
        return [client for client in self.clients if client.broker_id == broker_id]

    def _draw_us(self, session: Session, limit_us: int) -> int:
        return self.streams(f"store session {session.broker_id}").randrange(limit_us + 1)

    def _end_in(self, delay_us: int, session: Session) -> None:
        tick_us = self._draw_us(session, self.session_timeout_us // _TICKS_PER_TIMEOUT)
        deadline_us = session.deadline_us = self.schedule.now_us + delay_us + tick_us

        def run_out() -> None:
            if session.deadline_us == deadline_us:
                self.end(session)

        self.schedule.at(deadline_us, run_out)

    def _return_to_service(self) -> None:
        """A new leader finishes what the former one began, and gives every session its time."""
        undecided, self._undecided = self._undecided, []
        for operations, session in undecided:
            if session.is_open:
                try:
                    self.apply(operations, session.id)
                except MultiRefused:
                    continue  # Its author hears that the outcome is unknown either way.
        for session in self._sessions.values():
            self._end_in(self.session_timeout_us, session)
        for client in tuple(self.clients):
            client.try_again()

    def _tell(self, changes: Changes | None) -> None:
        if changes is None:
            return
        self.image, _ = self.image.apply(changes)
        for client in self.clients:
            client.hear(changes)
        for watcher in self.watchers:
            watcher(changes, self.image)
