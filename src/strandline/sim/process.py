"""One life of a broker: the driver that the asyncio server is in a real one, in virtual time.

    starting ── up ── leaving ── draining ── over

Events come from wires, the metadata store, the disk's thread and the clock. Each is handed to the
node at once, and ends in a turn: all events of one moment, then the node's effects in their order.
A process that is paused, or whose disk keeps it busy, is *blocked*: events
wait in their order, and what comes over the network waits in the sockets.

Whatever a file operation raises to end the process (`ProcessEnded`) and whatever comes out of the
node that should not are caught here, in `run`, and nowhere else. This file must not know how a
process starts (`starting`), nor what becomes of its machine (`machine`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, assert_never

from strandline.cluster.store import Changes, StoreError
from strandline.errors import InvariantViolated, StorageError
from strandline.node.effects import (
    Ask,
    Chunk,
    Close,
    ConnectionId,
    Dial,
    Effect,
    HangUp,
    LinkId,
    Send,
    SyncLog,
    WriteMetadata,
)
from strandline.node.node import Node
from strandline.sim.connections import Linked, Served
from strandline.sim.trace import Fingerprint, Kind, fingerprint, name_of
from strandline.storage.memory_files import ProcessEnded
from strandline.types import Instant, TopicPartition

if TYPE_CHECKING:
    from strandline.sim.latency import End
    from strandline.sim.machine import Machine
    from strandline.sim.store_client import StoreClient
    from strandline.sim.wires import Wire

Handler: TypeAlias = Callable[[Any], None]

_DRAIN_ROUNDS_MAX: Final = 100
_READY_US: Final = 10_000_000
"""A broker serves when it is registered, but at the latest after this time (`broker.startup`)."""
_SHUTDOWN_US: Final = 60_000_000
_SYNC_US: Final = (50, 2_000)
"""How long the disk's thread takes for a sync, if the disk is not slow."""


class Sink(Protocol):
    """A client without a wire, for tests: it gets its answers at once."""

    def take(self, chunks: Sequence[Chunk]) -> None:
        """The node sent bytes."""

    def closed_by_node(self, reason: str) -> None:
        """The node closed the connection."""

    def broker_died(self) -> None:
        """There is no node any more."""


class Process:
    """See the module. Made by `Machine.start`."""

    __slots__ = (
        "_alarm_us",
        "_busy_until_us",
        "_drain_rounds",
        "_effects",
        "_fingerprints",
        "_has_turn",
        "_held",
        "_is_accepting",
        "_lull_us",
        "_pending",
        "_random",
        "_schedule",
        "_stop_then",
        "_stopping_since_us",
        "_syncs",
        "_took_news",
        "backlog",
        "clock",
        "is_blocked",
        "is_over",
        "is_paused",
        "is_up",
        "links",
        "listener",
        "machine",
        "node",
        "served",
        "starting",
        "store",
        "world",
    )

    node: Node
    """While `is_up`, and afterwards."""

    def __init__(self, machine: Machine, random: Random, lull_us: int) -> None:
        """`lull_us`: how long events are collected before a turn ends."""
        self.machine = machine
        self.world = machine.world
        self.clock = machine.clock
        self.store: StoreClient | None = None
        self.starting: Callable[[Changes], None] | None = None
        """Hears of the metadata while there is no node."""
        self.is_over = False
        self.is_up = False
        self.is_paused = False
        self.is_blocked = False
        """Whether events wait: the process is paused, or waits for its disk."""
        self.served: dict[ConnectionId, Served] = {}
        self.links: dict[LinkId, Linked] = {}
        self.backlog: dict[Served, None] = {}
        """Connections that the kernel has and the process has not accepted yet."""
        self.listener = machine.config.listeners[0].name
        self._schedule = machine.world.schedule
        self._random = random
        self._held: deque[tuple[Handler, Any]] = deque()
        self._busy_until_us = 0
        self._lull_us = lull_us
        self._has_turn = False
        self._alarm_us: int | None = None
        self._effects: deque[Effect] = deque()
        """Of a turn during which the disk began to keep the process busy."""
        self._syncs: deque[SyncLog] = deque()
        """For the disk's thread, which carries the first one out."""
        self._pending = 0
        """Metadata writes and syncs under way."""
        self._is_accepting = False
        self._took_news = False
        self._stop_then: Callable[[bool], None] | None = None
        self._stopping_since_us: int | None = None
        self._drain_rounds = 0
        self._fingerprints: dict[TopicPartition, tuple[int, Fingerprint]] = {}

    @property
    def now(self) -> Instant:
        """What the machine's clocks show."""
        return self.clock.now

    def trace(self, kind: Kind, data: bytes) -> None:
        """Let the run's hash know what was delivered to this process."""
        self.world.trace.add(self._schedule.now_us, kind, self.machine.broker_id, data)

    # -- events ------------------------------------------------------------------------------

    def tell(self, handler: Handler, what: Any) -> None:
        """Let something happen to the node, now or when the process goes on."""
        if self.is_over:
            return
        if self.is_blocked:
            self._held.append((handler, what))
        elif self.is_up:
            self._handle(handler, what)
        else:
            self.run(handler, what)

    def _handle(self, handler: Handler, what: Any) -> None:
        if not self.run(handler, what):
            return
        for observer in self.world.observers:
            observer.node_acted(self.machine)
        self.want_turn()

    def run(self, handler: Handler, what: Any) -> bool:
        """Let the process work; whether it is still there afterwards."""
        machine = self.machine
        bugs = self.world.bugs
        bugs.working = machine
        try:
            handler(what)
        except ProcessEnded as ended:
            machine.crashed(ended)
        except Exception as error:  # noqa: BLE001 -- the boundary for bugs of the node
            machine.broke(error)
        finally:
            bugs.working = None
        if self.is_over:
            return False
        stall_us = machine.disk.take_stall_us()
        if stall_us:
            self._be_busy(stall_us)
        return True

    def _be_busy(self, stall_us: int) -> None:
        self.is_blocked = True
        now_us = self._schedule.now_us
        self._busy_until_us = max(self._busy_until_us, now_us) + stall_us
        self._schedule.at(self._busy_until_us, self._unblock)

    def pause(self) -> None:
        """Do nothing any more; the metadata session runs out, sockets fill up."""
        self.is_paused = self.is_blocked = True
        if self.store is not None:
            self.store.pause()

    def resume(self) -> None:
        """Go on: first with what has come meanwhile, then the store is heard again."""
        self.is_paused = False
        self._unblock()
        if not self.is_over and self.store is not None:
            self.store.resume()

    def _unblock(self) -> None:
        """Let everything happen that has waited, as far as it goes."""
        if self.is_over or self.is_paused or self._schedule.now_us < self._busy_until_us:
            return
        self.is_blocked = False
        if self._effects and not self.run(self._carry_out_all, None):
            return
        while self._held and not self.is_blocked:
            handler, what = self._held.popleft()
            if self.is_up:
                self._handle(handler, what)
            else:
                self.run(handler, what)
        if self.is_over or self.is_blocked:
            return
        for served in self.served.values():
            served.wire.go_on()
        if self.is_up:
            self.want_turn()

    # -- turns -------------------------------------------------------------------------------

    def want_turn(self) -> None:
        """End the turn when everything of this moment has happened."""
        if not self._has_turn and not self.is_over:
            self._has_turn = True
            self._schedule.after(self._lull_us, self._turn)

    def _turn(self) -> None:
        self._has_turn = False
        if self.is_over or self.is_blocked:
            return  # a turn follows when the process goes on
        if not self.run(self._finish_turn, None) or self._effects:
            return
        self._note_fingerprints()
        for observer in self.world.observers:
            observer.node_acted(self.machine)
        if self._took_news and not self.run(self._look_at_membership, None):
            return
        if self._stopping_since_us is not None:
            self._go_on_stopping()
        if not self.is_over:
            self._set_alarm()

    def _finish_turn(self, _: None) -> None:
        """Exactly once, as the asyncio server: a node that needs another turn has to ask for it."""
        disk, now = self.machine.disk, self.clock.now
        disk.now_ms = now.wall_ms
        self._effects.extend(self.node.finish_turn(now))
        stall_us = disk.take_stall_us()
        if stall_us:
            self._be_busy(stall_us)  # the effects leave when the disk is done
        elif self._effects:
            self._carry_out_all(None)

    def _carry_out_all(self, _: None) -> None:
        effects = self._effects
        sent: list[Served] = []
        while effects and not self.is_over:
            self._carry_out(effects.popleft(), sent)
        for served in sent:
            served.wire.go_on()

    def _note_fingerprints(self) -> None:
        known = self._fingerprints
        for replica in self.node.replicas:
            partition = replica.topic_partition
            seen = fingerprint(replica)
            before = known.get(partition)
            if before is None:
                before = (name_of(partition), seen)
            elif before[1] == seen:
                continue
            known[partition] = (before[0], seen)
            self.world.trace.replica(self.machine.broker_id, before[0], seen)

    # -- time --------------------------------------------------------------------------------

    def _set_alarm(self) -> None:
        deadline_ms = self.node.next_deadline_ms()
        if deadline_ms is None:
            return
        due_us = self.clock.due_us(deadline_ms)
        alarm_us = self._alarm_us
        if alarm_us is None or due_us < alarm_us:
            self._alarm_us = due_us
            self._schedule.at(due_us, self._ring)

    def _ring(self) -> None:
        now_us = self._schedule.now_us
        if self._alarm_us != now_us or self.is_over:
            return  # an earlier one took its place
        self._alarm_us = None
        if self.is_blocked:
            return  # a turn follows when the process goes on
        deadline_ms = self.node.next_deadline_ms()
        if deadline_ms is not None and self.clock.due_us(deadline_ms) <= now_us:
            self._turn()
        else:
            self._set_alarm()

    def clock_changed(self) -> None:
        """The machine's clock runs at another rate: deadlines are at other times."""
        self._alarm_us = None
        if self.is_up and not self.is_over:
            self._set_alarm()

    # -- effects -----------------------------------------------------------------------------

    def _carry_out(self, effect: Effect, sent: list[Served]) -> None:
        match effect:
            case Send():
                self._send(effect, sent)
            case Ask(link, chunks):
                linked = self.links.get(link)
                if linked is not None and linked.wire is not None:
                    linked.wire.send(b"".join(chunks))
            case WriteMetadata(token, operations):
                if self.store is None:
                    raise InvariantViolated("A node without a store writes metadata.")
                self._pending += 1
                self.store.write(operations, partial(self._written, token))
            case SyncLog():
                self._pending += 1
                self._syncs.append(effect)
                if len(self._syncs) == 1:
                    self._begin_sync()
            case Dial(link, target):
                linked = self.links[link] = Linked(self, link)
                linked.wire = self.world.network.dial(self.machine.broker_id, target, linked)
            case Close(connection, reason):
                self._close(connection, reason)
            case HangUp(link):
                linked = self.links.pop(link, None)
                if linked is not None and linked.wire is not None:
                    linked.wire.close()
            case _:
                assert_never(effect)

    def _send(self, effect: Send, sent: list[Served]) -> None:
        served = self.served.get(effect.connection)
        if served is not None:
            if served.is_client:
                for observer in self.world.observers:
                    observer.sent(self.machine, effect.connection, effect.chunks)
            served.wire.send_chunks(effect.chunks)
            sent.append(served)
            return
        sink = self.machine.direct.get(effect.connection)
        if sink is not None:
            try:
                sink.take(effect.chunks)
            except StorageError as error:
                sink.closed_by_node(str(error))

    def _close(self, connection: ConnectionId, reason: str) -> None:
        served = self.served.pop(connection, None)
        if served is not None:
            served.wire.close()
            if served.connection is not None:
                self.node.close_connection(served.connection)
            return
        sink = self.machine.direct.get(connection)
        if sink is not None:
            sink.closed_by_node(reason)

    # -- the metadata store ------------------------------------------------------------------

    def metadata_changed(self, changes: Changes) -> None:
        """The store tells of a change (its listener)."""
        self.tell(self._take_news, changes)

    def _take_news(self, changes: Changes) -> None:
        self.world.trace.number(
            self._schedule.now_us, Kind.METADATA, self.machine.broker_id, changes.zxid
        )
        if self.is_up:
            self._took_news = True
            self.node.metadata_changed(changes, self.clock.now)
        elif self.starting is not None:
            self.starting(changes)

    def _written(self, token: int, error: StoreError | None) -> None:
        self.tell(self._take_outcome, (token, error))

    def _take_outcome(self, outcome: tuple[int, StoreError | None]) -> None:
        token, error = outcome
        self._pending -= 1
        self.trace(Kind.WRITTEN, type(error).__name__.encode())
        self.node.metadata_written(token, error, self.clock.now)

    # -- the disk's thread -------------------------------------------------------------------

    def _begin_sync(self) -> None:
        """Sync what is next, at the beginning or at the end of the time that it takes: what is
        durable when the node hears of it is at least what was written before it asked."""
        delay_us = self._random.randint(*_SYNC_US)
        if self._random.getrandbits(1):
            self._schedule.after(delay_us, self._end_sync)
        else:
            self._sync(delay_us)

    def _end_sync(self) -> None:
        if self.is_over:
            return
        if self.is_paused:
            self._held.append((self._sync, 0))
        else:
            self.run(self._sync, 0)

    def _sync(self, delay_us: int) -> None:
        """Have the oldest plan carried out; the node hears of it after that time."""
        disk = self.machine.disk
        busy_us = disk.take_stall_us()
        if busy_us:
            self._be_busy(busy_us)
        result: bool | StorageError
        try:
            result = self._syncs[0].plan.carry_out(disk.files)
        except StorageError as error:
            result = error
        # Only this thread has waited for the disk.
        self._schedule.after(delay_us + disk.take_stall_us(), partial(self._synced, result))

    def _synced(self, result: bool | StorageError) -> None:
        if self.is_over:
            return
        sync = self._syncs.popleft()
        self.tell(self._take_synced, (sync.token, result))
        if self._syncs and not self.is_over:
            self.run(self._begin_next_sync, None)

    def _begin_next_sync(self, _: None) -> None:
        self._begin_sync()

    def _take_synced(self, outcome: tuple[int, bool | StorageError]) -> None:
        token, result = outcome
        self._pending -= 1
        self.world.trace.number(
            self._schedule.now_us, Kind.SYNCED, self.machine.broker_id, int(result is True)
        )
        self.node.log_synced(token, result, self.clock.now)

    # -- the network -------------------------------------------------------------------------

    def accept(self, wire: Wire, source: End) -> Served:
        """The kernel has a new connection for this process."""
        served = Served(self, wire, source)
        self.backlog[served] = None
        if self._is_accepting:
            self.tell(self._admit, served)
        return served

    def _admit(self, served: Served) -> None:
        if served not in self.backlog:
            return  # it has gone again
        del self.backlog[served]
        source = served.source
        host = source if isinstance(source, str) else f"broker-{source}"
        connection = served.connection = self.node.open_connection(host, self.listener)
        self.served[connection.id] = served
        served.wire.go_on()

    def _begin_to_accept(self, _: None = None) -> None:
        if not self._is_accepting:
            self._is_accepting = True
            for served in list(self.backlog):
                self._admit(served)

    def _look_at_membership(self, _: None) -> None:
        self._took_news = False
        membership = self.node.membership
        if membership.is_ousted:
            self.world.note(f"{self.machine.broker_id} finds its id taken by another process")
            if self._is_accepting:
                self.begin_to_stop(_nobody_asks)
            else:
                self.machine.start_failed("its id is in use")
        elif not self._is_accepting and membership.is_registered:
            self._begin_to_accept()

    # -- life --------------------------------------------------------------------------------

    def go_up(self, node: Node) -> None:
        """The start has made the node: let it work."""
        self.node = node
        self.is_up = True
        self.starting = None
        self.machine.went_up()
        node.start(self.clock.now)
        self.want_turn()
        self._schedule.after(_READY_US, self._ready_at_last)

    def _ready_at_last(self) -> None:
        if not self._is_accepting:
            self.tell(self._begin_to_accept, None)

    def begin_to_stop(self, then: Callable[[bool], None]) -> None:
        """Leave the cluster, then close everything; `then` hears whether that was clean."""
        if self._stopping_since_us is not None:
            return
        if not self.is_up:
            self.machine.start_failed("it was told to stop")
            then(False)
            return
        self._stop_then = then
        self._stopping_since_us = self._schedule.now_us
        self.node.begin_shutdown(self.clock.now)
        self._schedule.after(_SHUTDOWN_US, self.want_turn)

    def _go_on_stopping(self) -> None:
        since_us = self._stopping_since_us
        if since_us is None:
            return
        is_overdue = self._schedule.now_us - since_us >= _SHUTDOWN_US
        if not is_overdue and not self.node.is_shutdown_complete:
            return
        self._is_accepting = False
        if self._pending and self._drain_rounds < _DRAIN_ROUNDS_MAX:
            # What a write brings about may be another write.
            self._drain_rounds += 1
            return
        self.run(self._close_all, None)

    def _close_all(self, _: None) -> None:
        for served in list(self.served.values()):
            served.wire.close()
        for linked in list(self.links.values()):
            if linked.wire is not None:
                linked.wire.close()
        self.served.clear()
        self.links.clear()
        clean = self.node.stop(self.node.unbroken_since)
        then = self._stop_then
        self.machine.stopped()
        if then is not None:
            then(clean)


def _nobody_asks(clean: bool) -> None:
    """A process that stops by itself tells nobody how that went."""
