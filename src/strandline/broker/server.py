"""The asyncio driver: sockets and threads around one synchronous node.

The loop calls `on_readable` for every ready socket, the node answers into its outbox, and at the
end of the turn (`turns`) the effects are carried out. The driver decides nothing about the log; it
only keeps sockets, time and threads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, assert_never

from strandline.broker.acceptor import Acceptor, Limits, ListenerSocket
from strandline.broker.admission import Admission
from strandline.broker.cleaners import Cleaners
from strandline.broker.connection_limits import ConnectionLimits
from strandline.broker.event_loop import readiness_of
from strandline.broker.handshakes import Handshakes
from strandline.broker.idle import IdleConnections
from strandline.broker.links import Links
from strandline.broker.listening import Listening
from strandline.broker.newcomers import Newcomers, Suspects
from strandline.broker.receive_buffers import BufferPool, SharedBuffer
from strandline.broker.server_tls import ServerTls
from strandline.broker.slow_work import SlowWork
from strandline.broker.streams import Stream
from strandline.broker.transport import Transport
from strandline.broker.transport_host import Watched
from strandline.broker.turns import Turns
from strandline.cluster.store import Changes, Store
from strandline.node.authentication.failed_handshakes import HandshakeKind
from strandline.node.connection import Connection
from strandline.node.effects import (
    Ask,
    CleanLog,
    Close,
    ConnectionId,
    Dial,
    Effect,
    ExamineLog,
    Halt,
    HangUp,
    PaceCleaning,
    RemoveFiles,
    Send,
    StopCleaning,
    SyncLog,
    WriteMetadata,
)
from strandline.node.node import Node
from strandline.node.sparing_log import SparingLog
from strandline.storage.files import Files
from strandline.types import ANONYMOUS, Instant, Principal

__all__ = ["Limits", "ListenerSocket", "Server"]

log = logging.getLogger(__name__)

_POOLED_BUFFERS: Final = 8
_LAST_ROUNDS_MAX: Final = 100


class Server:
    """Carries out one node's effects and feeds it what the sockets bring."""

    def __init__(
        self,
        node: Node,
        store: Store,
        files: Files,
        limits: Limits,
        listeners: Sequence[ListenerSocket],
        *,
        tls: ServerTls,
        on_halt: Callable[[], None],
    ) -> None:
        """`on_halt` is called when the node has nothing left to serve; `halted` says why."""
        self.receive = node.receive
        self.turns = turns = Turns(node, self._carry_out)
        self.begin, self.end, self.end_soon = turns.begin, turns.end, turns.end_soon
        self.tell = turns.tell
        self.handles = limits.handles
        self.halted: str | None = None
        self._on_halt = on_halt
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._readiness = readiness_of(self._loop)
        self._transports: dict[ConnectionId, Transport[Connection]] = {}
        self._suspects = Suspects()
        self._newcomers = Newcomers(self._is_flood, turns.end_now)
        self._handshakes = Handshakes(self._newcomers)
        self._tls = tls
        self._followed = node.settings.broker
        self._admission = Admission(
            tls.listeners, self._handshakes, tls.timeout_s, self._admit, self._left
        )
        self._limits = ConnectionLimits(
            node.settings, node.quotas, [each.name for each in listeners]
        )
        self._idle = IdleConnections(
            self._transports, limits.idle_ms_max, lambda: turns.tick().monotonic_ms
        )
        self._closings = SparingLog(log)
        self.call_in_turn = self._newcomers.later
        self._acceptor = Acceptor(
            listeners,
            limits.handles,
            self._limits,
            self._admission.arrived,
            partial(self._idle.make_way, self._limits.is_spared),
            self._newcomers,
        )
        self._listening = Listening(
            node, listeners, self._acceptor, self._limits, tls, self._hang_up
        )
        node.parts.check_listeners = self._listening.check
        self._shared = SharedBuffer()
        self._pool = BufferPool(_POOLED_BUFFERS, limits.frames)
        self._is_attached = False
        self._slow_work = SlowWork(node, store, files, self.tell)
        self._cleaners = Cleaners(node, self.tell)
        self.links = Links(
            node,
            self,
            self._shared,
            self._pool,
            frame_bytes_max=limits.frame_bytes_max,
            handles=limits.handles,
            tls=tls,
            handshakes=self._handshakes,
        )

    # -- life --------------------------------------------------------------------------------

    def start(self) -> None:
        """Let the node work, and speak with other brokers, from now on."""
        self.handles.attach()
        self._is_attached = True
        self._follow_settings()
        self.end_soon()

    def accept(self) -> None:
        """Accept connections from now on."""
        self._acceptor.start()
        self._idle.watch()

    def begin_shutdown(self) -> None:
        """Have the node give its leaderships away; it goes on serving meanwhile."""
        self._node.begin_shutdown(self.turns.tick())
        self.end_soon()

    async def stop(self) -> None:
        """Stop accepting, let metadata writes and syncs end, and close every connection."""
        self._acceptor.close()
        await self._cleaners.close()
        self.turns.finish()
        for _ in range(_LAST_ROUNDS_MAX):
            if not await self._slow_work.until_done():
                break
            # What a write brings about may be another write.
            self.turns.finish()
        for transport in list(self._transports.values()):
            transport.part()
        self._end()
        await self._slow_work.close()

    def abandon(self) -> None:
        """End as a killed process does: sockets close, and no peer is told anything."""
        self._acceptor.close()
        self._end()
        self._cleaners.abandon()
        self._slow_work.abandon()

    async def ended(self) -> None:
        """Wait until no thread of an abandoned server touches its files any more."""
        await self._cleaners.ended()
        await self._slow_work.ended()

    def _end(self) -> None:
        """Nothing reaches the node from here on."""
        for transport in list(self._transports.values()):
            transport.close(None)
        self._handshakes.close()
        self._acceptor.forget()
        self.links.close()
        self.turns.stop()
        if self._is_attached:
            self.handles.detach()
            self._is_attached = False
        self._newcomers.close()
        self._idle.stop()

    def pause(self) -> None:
        """Do nothing until `resume`, as a stopped process: sockets stay open and fill up."""
        self.turns.pause()
        self._idle.stop()
        self._acceptor.pause()
        self._newcomers.pause()
        for transport in self._connected():
            descriptor = transport.socket.fileno()
            self._readiness.remove_reader(descriptor)
            self._readiness.remove_writer(descriptor)

    def resume(self) -> None:
        """Go on where `pause` stopped."""
        if not self.turns.is_paused:
            return
        self.turns.resume()
        self._newcomers.resume()
        for transport in self._connected():
            read, write = transport.watching
            self.watch(transport, read=read, write=write)
            transport.look_again()
        if self._acceptor.is_started:
            self.accept()

    def _connected(self) -> list[Transport[Any]]:
        return [*self._transports.values(), *self.links.transports]

    def metadata_changed(self, changes: Changes) -> None:
        """Tell the node what changed in the metadata store (the store's listener).

        The store has written the change: that the node fails to follow it must not keep it from
        other listeners.
        """
        self.tell(partial(self._metadata_changed, changes))
        self._acceptor.look_again()

    def _metadata_changed(self, changes: Changes, now: Instant) -> None:
        self._node.metadata_changed(changes, now)
        self._follow_settings()

    def _follow_settings(self) -> None:
        """What changes at run time of listeners is followed here."""
        config = self._node.settings.broker
        if config is not self._followed:
            self._followed = config
            self._listening.follow(config)
            self._tls.follow(config)
            self._limits.follow()

    # -- connections -------------------------------------------------------------------------

    def _admit(self, stream: Stream, host: str, listener: str, principal: Principal) -> None:
        """A client has connected, and speaks as its listener demands."""
        connection = self._node.open_connection(host, listener, principal, self.turns.tick())
        transport = Transport(self, connection, stream, shared=self._shared, pool=self._pool)
        transport.is_newcomer = self._is_flood()
        transport.last_active_ms = self.turns.now.monotonic_ms
        self._transports[connection.id] = transport
        transport.update_watch()

    def _left(self, kind: HandshakeKind) -> None:
        """A client has not come in: its TLS handshake failed."""
        now = self.turns.tick()
        self._suspects.note(kind.host, now.monotonic_ms)
        self._acceptor.left(kind.host, kind.listener)
        self._node.authentication.handshake_failed(kind, now)

    def _hang_up(self, listener: str) -> None:
        """A listener is closed."""
        for transport in list(self._transports.values()):
            if transport.connection.listener == listener:
                transport.part()

    def watch(self, transport: Watched, *, read: bool, write: bool) -> None:
        """Ask the loop for what the transport waits for (called only when it changes)."""
        if self.turns.is_paused:
            return
        # By its number: asyncio writes down the socket itself when it does not know it, which costs
        # more than all else that is done to accept a connection.
        descriptor = transport.socket.fileno()
        readiness = self._newcomers if transport.is_newcomer else self._readiness
        if read:
            readiness.add_reader(descriptor, transport.on_readable)
        else:
            readiness.remove_reader(descriptor)
        if write:
            readiness.add_writer(descriptor, transport.on_writable)
        else:
            readiness.remove_writer(descriptor)

    def _is_flood(self) -> bool:
        return self._suspects.is_flood(self.turns.now.monotonic_ms)

    def _settle(self, transport: Transport[Connection]) -> None:
        """A newcomer was answered: from now on it is served with all others, if it may be."""
        connection = transport.connection
        gate = connection.gate
        if (gate is None or not gate.is_shut) and _who(connection) not in self._suspects:
            descriptor = transport.socket.fileno()
            self._newcomers.remove_reader(descriptor)
            self._newcomers.remove_writer(descriptor)
            transport.is_newcomer = False
            read, write = transport.watching
            self.watch(transport, read=read, write=write)
            transport.look_again()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have something read in the next round of the loop, unless the server is paused then."""
        self._loop.call_soon(self._unless_paused, callback)

    def _unless_paused(self, callback: Callable[[], None]) -> None:
        if not self.turns.is_paused:
            callback()

    def disconnected(self, transport: Transport[Connection], reason: str | None) -> None:
        """Forget a transport that is about to close its socket."""
        connection = transport.connection
        descriptor = transport.socket.fileno()
        readiness = self._newcomers if transport.is_newcomer else self._readiness
        readiness.remove_reader(descriptor)
        readiness.remove_writer(descriptor)
        if transport.is_turned_out:
            self._suspects.note(_who(connection), self.turns.now.monotonic_ms)
        del self._transports[connection.id]
        self._acceptor.left(connection.client_host, connection.listener)
        self._node.close_connection(connection)
        if reason is not None:
            self._closings.info(
                self.turns.now.monotonic_ms,
                "Connection %d from %s closed: %s",
                connection.id,
                connection.client_host,
                reason,
            )

    # -- effects -----------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                transport = self._transports.get(effect.connection)
                if transport is not None:
                    # As in Kafka it is used by this, too: its request may have waited for long.
                    transport.last_active_ms = self.turns.now.monotonic_ms
                    transport.send(effect.chunks)
                    if transport.is_newcomer and not transport.closed:
                        self._settle(transport)
            case Close():
                transport = self._transports.get(effect.connection)
                if transport is not None:
                    transport.turn_out(effect.reason)
            case WriteMetadata() | SyncLog() | RemoveFiles():
                self._slow_work.begin(effect)
            case CleanLog():
                self._cleaners.clean(effect)
            case ExamineLog():
                self._cleaners.examine(effect)
            case StopCleaning():
                self._cleaners.stop_round(effect.token)
            case PaceCleaning():
                self._cleaners.set_pace(effect.bytes_per_second)
            case Ask():
                self.links.ask(effect)
            case Dial():
                self.links.dial(effect)
            case HangUp():
                self.links.hang_up(effect)
            case Halt():
                log.critical("The broker cannot go on: %s", effect.reason)
                self.halted = effect.reason
                self._on_halt()
            case _:
                assert_never(effect)


def _who(connection: Connection) -> str:
    """Whose conduct it is: a user's, or where there are none an address's."""
    principal = connection.principal
    return connection.client_host if principal == ANONYMOUS else str(principal)
