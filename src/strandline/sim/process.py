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
        self.world.trace.add(self._schedule.now_us, kind, self.machine.address, data)

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
        for observer in self.machine.observers:
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
        for observer in self.machine.observers:
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

    # -- the metadata store ------------------------------------------------------------------

    def metadata_changed(self, changes: Changes) -> None:
        """The store tells of a change (its listener)."""
        self.tell(self._take_news, changes)

    def _take_news(self, changes: Changes) -> None:
        self.world.trace.number(
            self._schedule.now_us, Kind.METADATA, self.machine.address, changes.zxid
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
