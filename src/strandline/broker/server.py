"""The asyncio driver: sockets and threads around one synchronous node.

The loop calls `on_readable` for every ready socket, the node answers into its outbox, and one
callback at the end of the round (`_finish_turn`) carries the effects out: the answers of a round
leave with one system call per connection. While little is going on, a turn ends with the socket
that began it. The driver decides nothing about the log; it only keeps sockets, time and threads.
"""

from __future__ import annotations

import asyncio
import logging
import time
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
from strandline.broker.receive_buffers import BufferPool
from strandline.broker.server_tls import ServerTls
from strandline.broker.slow_work import SlowWork
from strandline.broker.streams import Stream
from strandline.broker.transport import RECEIVE_BUFFER_BYTES, Transport
from strandline.broker.transport_host import Watched
from strandline.cluster.store import Changes, Store
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

__all__ = ["Limits", "ListenerSocket", "Server", "read_clock"]

log = logging.getLogger(__name__)

_LULL_NS: Final = 30_000
"""Input that comes within this time of the last turn is handled together with what follows it."""
_POOLED_BUFFERS: Final = 8
_LAST_ROUNDS_MAX: Final = 100


def read_clock() -> Instant:
    """The present, from the machine's clocks."""
    return Instant(time.monotonic_ns() // 1_000_000, time.time_ns() // 1_000_000)


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
        self.handles = limits.handles
        self.halted: str | None = None
        self._on_halt = on_halt
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._readiness = readiness_of(self._loop)
        self._transports: dict[ConnectionId, Transport[Connection]] = {}
        self._suspects = Suspects()
        self._newcomers = Newcomers(self._is_flood, self._end_turn_now)
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
            self._transports, limits.idle_ms_max, lambda: self._tick().monotonic_ms
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
        self._shared = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self._pool = BufferPool(_POOLED_BUFFERS, limits.frames)
        self._turn: asyncio.Handle | None = None
        self._turn_ended_ns = 0
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._is_attached = False
        self._stopped = False
        self._paused = False
        self.after_turn: Callable[[], None] | None = None
        """For faults: called when the effects of a turn are carried out."""
        self._held: list[Callable[[Instant], None]] = []
        """Events that came while the server was paused."""
        self._now = read_clock()
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
        self._schedule_turn()

    def accept(self) -> None:
        """Accept connections from now on."""
        self._acceptor.start()
        self._idle.watch()

    def begin_shutdown(self) -> None:
        """Have the node give its leaderships away; it goes on serving meanwhile."""
        self._node.begin_shutdown(self._tick())
        self._schedule_turn()

    async def stop(self) -> None:
        """Stop accepting, let metadata writes and syncs end, and close every connection."""
        self._acceptor.close()
        await self._cleaners.close()
        self._finish_turn()
        for _ in range(_LAST_ROUNDS_MAX):
            if not await self._slow_work.until_done():
                break
            # What a write brings about may be another write.
            self._finish_turn()
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
        self.links.close()
        self._stopped = True
        if self._is_attached:
            self.handles.detach()
            self._is_attached = False
        self._newcomers.close()
        self._idle.stop()
        for handle in (self._alarm, self._turn):
            if handle is not None:
                handle.cancel()

    def pause(self) -> None:
        """Do nothing until `resume`, as a stopped process: sockets stay open and fill up."""
        self._paused = True
        self._idle.stop()
        for handle in (self._alarm, self._turn):
            if handle is not None:
                handle.cancel()
        self._alarm = self._turn = None
        self._acceptor.pause()
        self._newcomers.pause()
        for transport in self._connected():
            descriptor = transport.socket.fileno()
            self._readiness.remove_reader(descriptor)
            self._readiness.remove_writer(descriptor)

    def resume(self) -> None:
        """Go on where `pause` stopped; timers that are overdue ring late."""
        if not self._paused:
            return
        self._paused = False
        self._newcomers.resume()
        for transport in self._connected():
            read, write = transport.watching
            self.watch(transport, read=read, write=write)
            transport.look_again()
        if self._acceptor.is_started:
            self.accept()
        held, self._held = self._held, []
        for event in held:
            self.tell(event)
        self._schedule_turn()

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
        connection = self._node.open_connection(host, listener, principal, self._tick())
        transport = Transport(self, connection, stream, shared=self._shared, pool=self._pool)
        transport.is_newcomer = self._is_flood()
        transport.last_active_ms = self._now.monotonic_ms
        self._transports[connection.id] = transport
        transport.update_watch()

    def _left(self, host: str, listener: str) -> None:
        """A client has not come in: its TLS handshake failed."""
        self._suspects.note(host, self._tick().monotonic_ms)
        self._acceptor.left(host, listener)
        self._node.authentication.count(listener, "TLS", failed=True)

    def _hang_up(self, listener: str) -> None:
        """A listener is closed."""
        for transport in list(self._transports.values()):
            if transport.connection.listener == listener:
                transport.part()

    def watch(self, transport: Watched, *, read: bool, write: bool) -> None:
        """Ask the loop for what the transport waits for (called only when it changes)."""
        if self._paused:
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
        return self._suspects.is_flood(self._now.monotonic_ms)

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

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Have something read in the next round of the loop, unless the server is paused then."""
        self._loop.call_soon(self._unless_paused, callback)

    def _unless_paused(self, callback: Callable[[], None]) -> None:
        if not self._paused:
            callback()

    def disconnected(self, transport: Transport[Connection], reason: str | None) -> None:
        """Forget a transport that is about to close its socket."""
        connection = transport.connection
        descriptor = transport.socket.fileno()
        readiness = self._newcomers if transport.is_newcomer else self._readiness
        readiness.remove_reader(descriptor)
        readiness.remove_writer(descriptor)
        if transport.is_turned_out:
            self._suspects.note(_who(connection), self._now.monotonic_ms)
        del self._transports[connection.id]
        self._acceptor.left(connection.client_host, connection.listener)
        self._node.close_connection(connection)
        if reason is not None:
            self._closings.info(
                self._now.monotonic_ms,
                "Connection %d from %s closed: %s",
                connection.id,
                connection.client_host,
                reason,
            )

    # -- turns -------------------------------------------------------------------------------

    def begin(self) -> Instant:
        """A socket has brought something; what comes of it leaves at the end of the round."""
        if self._turn is None:
            self._tick()
            if time.monotonic_ns() - self._turn_ended_ns < _LULL_NS:
                self._schedule_turn()
        return self._now

    def end(self) -> None:
        """End the turn at once if nothing else is going on: it saves a round of the loop."""
        if self._turn is None:
            self._finish_turn()

    def end_soon(self) -> None:
        """End the turn with the next round of the loop: effects may be under way now."""
        self._schedule_turn()

    def _end_turn_now(self) -> None:
        """What has come in is not to wait for what newcomers bring."""
        if self._turn is not None:
            self._turn.cancel()
            self._finish_turn()

    def _tick(self) -> Instant:
        self._now = read_clock()
        return self._now

    def _schedule_turn(self) -> None:
        if self._turn is None and not self._stopped and not self._paused:
            self._turn = self._loop.call_soon(self._finish_turn)

    def _finish_turn(self) -> None:
        self._turn = None
        if self._stopped:
            return
        try:
            effects = self._node.finish_turn(self._tick())
        except Exception:
            # A bug of ours. What was collected leaves with the next turn, which the alarm brings.
            log.exception("A turn failed")
            effects = []
        for effect in effects:
            try:
                self._carry_out(effect)
            except Exception:
                # The effects behind it belong to others.
                log.exception("%s could not be carried out", type(effect).__name__)
        self._set_alarm()
        self._turn_ended_ns = time.monotonic_ns()
        if self.after_turn is not None:
            self.after_turn()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send():
                transport = self._transports.get(effect.connection)
                if transport is not None:
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

    def _set_alarm(self) -> None:
        deadline_ms = self._node.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._alarm is not None:
            # An alarm that rings early is cheaper than setting a new one in every turn.
            if self._alarm_ms <= deadline_ms:
                return
            self._alarm.cancel()
        self._alarm_ms = deadline_ms
        delay_ms = max(0, deadline_ms - self._now.monotonic_ms)
        self._alarm = self._loop.call_later(delay_ms / 1000, self._ring)

    def _ring(self) -> None:
        self._alarm = None
        self._schedule_turn()

    def tell(self, event: Callable[[Instant], None]) -> None:
        """Hand an event to the node, now or when the server goes on."""
        if self._stopped:
            return
        if self._paused:
            self._held.append(event)
            return
        try:
            event(self._tick())
        except Exception:
            log.exception("An event could not be handled")
        self._schedule_turn()


def _who(connection: Connection) -> str:
    """Whose conduct it is: a user's, or where there are none an address's."""
    principal = connection.principal
    return connection.client_host if principal == ANONYMOUS else str(principal)
