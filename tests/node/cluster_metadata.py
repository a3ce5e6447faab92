"""The metadata store of a simulated cluster: one tree, sessions that time out, delayed news.

A client that is cut off hears nothing and can write nothing; if that lasts longer than its session
timeout its ephemeral nodes go. When it is back it hears the net effect of what it missed, and has a
new session if it needs one (the contract of `cluster.store.Store`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from strandline.cluster.image import ClusterImage
from strandline.cluster.net_effect import NetEffect
from strandline.cluster.store import (
    NO_SESSION,
    Changes,
    MultiRefused,
    Operation,
    OutcomeUnknown,
    SessionId,
    StoreError,
    StoreUnavailable,
    StoreView,
)
from strandline.cluster.tree import NodeTree
from tests.node.cluster_schedule import Pipe, Schedule

Told = Callable[[StoreError | None], None]


class Listener(Protocol):
    """The broker behind a client."""

    def metadata_changed(self, changes: Changes) -> None: ...


class MetadataClient:
    """One broker's access to the store."""

    def __init__(self, service: MetadataService, listener: Listener, session: SessionId) -> None:
        self.session = session
        self.is_cut = False
        self.is_gone = False
        self._service = service
        self._listener = listener
        self._cuts = 0
        self._is_expired = False
        self._missed = NetEffect()
        self._unknown: list[Told] = []
        self._news: Pipe[Callable[[], None]] = Pipe(
            service.schedule, service.delay_ms, lambda action: action()
        )

    def write(self, operations: Sequence[Operation], told: Told) -> None:
        """Have operations applied; what they change is heard before the outcome is told."""
        if self.is_cut:
            self._tell(told, StoreUnavailable("This broker is cut off."))
            return
        session = self.session
        self._service.schedule.after(
            self._service.delay_ms(), lambda: self._apply(operations, session, told)
        )

    def _apply(self, operations: Sequence[Operation], session: SessionId, told: Told) -> None:
        if self.is_cut and self._service.random.random() < 0.5:
            self._unknown.append(told)  # the request never arrived
            return
        outcome: StoreError | None = None
        if session not in self._service.sessions:
            outcome = StoreUnavailable("The session has expired.")
        else:
            try:
                self._service.apply(operations, session)
            except MultiRefused as refused:
                outcome = refused
        if self.is_cut:
            self._unknown.append(told)  # the answer does not arrive
        else:
            self._tell(told, outcome)

    def _tell(self, told: Told, outcome: StoreError | None) -> None:
        self._news.send(lambda: told(outcome))

    def hear(self, changes: Changes) -> None:
        """Something was changed."""
        if self.is_cut:
            self._missed.add(changes)
        else:
            self._news.send(lambda: self._listener.metadata_changed(changes))

    # -- faults ------------------------------------------------------------------------------

    def cut(self) -> None:
        """Lose the connection to the store."""
        if self.is_cut or self.is_gone:
            return
        self.is_cut = True
        self._cuts += 1
        cuts = self._cuts

        def time_out() -> None:
            if self.is_cut and self._cuts == cuts:
                self.expire()

        self._service.schedule.after(self._service.session_timeout_ms, time_out)

    def heal(self) -> None:
        """Be connected again."""
        if not self.is_cut or self.is_gone:
            return
        self.is_cut = False
        if self._is_expired:
            self._is_expired = False
            self.session = self._service.open_session()
        missed = self._missed.take()
        if missed is not None:
            self.hear(missed)
        unknown, self._unknown = self._unknown, []
        for told in unknown:
            self._tell(told, OutcomeUnknown("The connection was lost during the write."))

    def expire(self) -> None:
        """The session ends. A client that is connected gets a new one at once."""
        was_cut, self.is_cut = self.is_cut, True
        self._is_expired = True
        self._service.end(self.session)
        self.is_cut = was_cut
        if not was_cut:
            self.is_cut = True
            self.heal()

    def die(self, *, at_once: bool) -> None:
        """The process ends; its session does so now, or when it times out."""
        self.is_gone = True
        self._news.take()
        self._service.clients.remove(self)
        if at_once:
            self._service.end(self.session)
        else:
            session = self.session
            self._service.schedule.after(
                self._service.session_timeout_ms, lambda: self._service.end(session)
            )


class MetadataService:
    """The store itself."""

    def __init__(
        self, schedule: Schedule, random: Random, delay_ms: Callable[[], int], timeout_ms: int
    ) -> None:
        self.schedule = schedule
        self.random = random
        self.delay_ms = delay_ms
        self.session_timeout_ms = timeout_ms
        self.tree = NodeTree()
        self.image = ClusterImage()
        self.clients: list[MetadataClient] = []
        self.sessions: set[SessionId] = set()
        self._last_session = 0

    def connect(self, listener: Listener) -> tuple[MetadataClient, StoreView]:
        """A new client, and what it finds."""
        client = MetadataClient(self, listener, self.open_session())
        self.clients.append(client)
        return client, self.tree.view()

    def open_session(self) -> SessionId:
        self._last_session += 1
        session = SessionId(self._last_session)
        self.sessions.add(session)
        return session

    def apply(self, operations: Sequence[Operation], session: SessionId = NO_SESSION) -> None:
        """Do the operations and tell everybody. Raises `MultiRefused`."""
        changes = self.tree.multi(operations, session).changes
        if changes is not None:
            self._broadcast(changes)

    def end(self, session: SessionId) -> None:
        """Remove what a session owns."""
        if session not in self.sessions:
            return
        self.sessions.remove(session)
        changes = self.tree.expire_session(session).changes
        if changes is not None:
            self._broadcast(changes)

    def _broadcast(self, changes: Changes) -> None:
        self.image, _ = self.image.apply(changes)
        for client in self.clients:
            client.hear(changes)
