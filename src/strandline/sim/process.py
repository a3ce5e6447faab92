"""One life of a broker: the driver that the asyncio server is in a real one, in virtual time.

    starting ── up ── leaving ── over

Events come from connections, the metadata store, the disk's thread and the clock. Each is handed to
the node at once, and ends in a turn: all events of one moment, then the node's effects in their
order. A process that is paused, or whose disk keeps it busy, is *blocked*: events wait in their
order, and what comes over the network waits in the sockets.

Whatever a file operation raises to end the process (`ProcessEnded`) and whatever comes out of the
node that should not are caught here, in `run`, and nowhere else. This file knows when things
happen. How effects are carried out is in `connections` and `sync_thread`, how a process begins and
ends in `starting` and `leaving`, and what becomes of its machine in `machine`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, assert_never

from strandline.cluster.store import Changes, StoreError
from strandline.errors import InvariantViolated, StorageError
from strandline.node.effects import (
    Ask,
    CleanLog,
    Close,
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
from strandline.sim.cleaner_threads import CleanerThreads
from strandline.sim.connections import Connections
from strandline.sim.leaving import Leaving
from strandline.sim.running_process import Handler, HostMachine
from strandline.sim.sync_thread import SyncThread
from strandline.sim.trace import Kind, ReplicaTrace
from strandline.storage.memory_files import ProcessEnded
from strandline.types import Instant

if TYPE_CHECKING:
    from strandline.sim.store_client import StoreClient


class Process:
    """See the module. Made by `Machine.start`.

    - `store`: its access to the metadata, once it has one.
    - `starting`: hears of the metadata while there is no node.
    - `is_blocked`: events wait.
    - `unanswered`: metadata writes whose outcome the node has not heard.
    """

    __slots__ = (
        "_alarm_us",
        "_busy_until_us",
        "_effects",
        "_has_turn",
        "_held",
        "_lull_us",
        "_replicas",
        "_schedule",
        "_took_news",
        "cleaners",
        "clock",
        "connections",
        "is_blocked",
        "is_over",
        "is_paused",
        "is_up",
        "leaving",
        "machine",
        "node",
        "starting",
        "store",
        "sync_thread",
        "unanswered",
        "world",
    )

    node: Node
    """While `is_up`, and afterwards."""

    def __init__(self, machine: HostMachine, random: Random, lull_us: int) -> None:
        """`lull_us`: how long events are collected before a turn ends."""
        self.machine = machine
        self.world = machine.world
        self.clock = machine.clock
        self.connections = Connections(self)
        self.sync_thread = SyncThread(self, random)
        self.cleaners = CleanerThreads(self, machine.world.streams(f"cleaners {machine.address}"))
        self.leaving: Leaving | None = None
        self.store: StoreClient | None = None
        self.starting: Callable[[Changes], None] | None = None
        self.is_over = False
        self.is_up = False
        self.is_paused = False
        self.is_blocked = False
        self.unanswered = 0
        self._schedule = machine.world.schedule
        self._held: deque[tuple[Handler, Any]] = deque()
        self._busy_until_us = 0
        self._lull_us = lull_us
        self._has_turn = False
        self._alarm_us: int | None = None
        self._effects: deque[Effect] = deque()
        """Of the last turn, as far as the disk has to be waited for."""
        self._took_news = False
        self._replicas = ReplicaTrace(machine.world.trace, machine.address)

    @property
    def now(self) -> Instant:
        """What the machine's clocks show."""
        return self.clock.now

    def trace(self, kind: Kind, data: bytes) -> None:
        """Let the run's hash know what was delivered to this process."""
        self.world.trace.add(self._schedule.now_us, kind, self.machine.address, data)

    def go_up(self, node: Node) -> None:
        """The start has made the node: let it work."""
        self.node = node
        self.is_up = True
        self.starting = None
        self.machine.went_up()
        node.start(self.clock.now)
        self.want_turn()
        self.connections.accept_at_last()

    # -- events ------------------------------------------------------------------------------

    def tell(self, handler: Handler, what: Any) -> None:
        """Let something happen, now or when the process goes on."""
        if self.is_over:
            return
        if self.is_blocked:
            self._held.append((handler, what))
        else:
            self._handle(handler, what)

    def hold(self, handler: Handler, what: Any) -> None:
        """Let something happen when the process goes on."""
        self._held.append((handler, what))

    def _handle(self, handler: Handler, what: Any) -> None:
        if not self.run(handler, what) or not self.is_up:
            return
        self.cleaners.tell_observers()
        self.machine.acted()
        self.want_turn()

    def run(self, handler: Handler, what: Any) -> bool:
        """Let the process work; whether it is still there afterwards."""
        machine = self.machine
        bugs = self.world.bugs
        bugs.working = machine.broker_id
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
            self.be_busy(stall_us)
        return True

    def be_busy(self, stall_us: int) -> None:
        """The process waits for its disk."""
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
        if self._effects:
            if not self.run(self._carry_out_all, None):
                return
            self.machine.acted()  # a turn is over: nothing else has happened since
        while self._held and not (self.is_blocked or self.is_over):
            handler, what = self._held.popleft()
            self._handle(handler, what)
        if self.is_over or self.is_blocked:
            return
        self.connections.go_on()
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
        self._replicas.note(self.node.replicas)
        self.machine.acted()
        if self._took_news and not self.run(self._look_at_membership, None):
            return
        if self.leaving is not None and not self.run(self.leaving.go_on, None):
            return
        self._set_alarm()

    def _finish_turn(self, _: None) -> None:
        """Exactly once, as the asyncio server: a node that needs another turn has to ask for it."""
        disk, now = self.machine.disk, self.clock.now
        disk.now_ms = now.wall_ms
        self._effects.extend(self.node.finish_turn(now))
        stall_us = disk.take_stall_us()
        if stall_us:
            self.be_busy(stall_us)  # the effects leave when the disk is done
        elif self._effects:
            self._carry_out_all(None)

    def _carry_out_all(self, _: None) -> None:
        effects = self._effects
        while effects and not self.is_over:
            self._carry_out(effects.popleft())

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(connection, chunks):
                self.connections.send(connection, chunks)
            case Ask(link, request):
                self.connections.ask(link, request)
            case WriteMetadata(token, operations):
                if self.store is None:
                    raise InvariantViolated("A node without a store writes metadata.")
                self.unanswered += 1
                self.store.write(operations, partial(self._written, token))
            case SyncLog():
                self.sync_thread.add(effect)
            case CleanLog():
                self.cleaners.add(effect)
            case ExamineLog():
                self.cleaners.examine(effect)
            case StopCleaning(token):
                self.cleaners.stop(token)
            case PaceCleaning():
                pass  # the time that a round takes is drawn
            case RemoveFiles():
                self._remove_files(effect)
            case Dial():
                self.connections.dial(effect)
            case Close(connection, reason):
                self.connections.close(connection, reason)
            case HangUp(link):
                self.connections.hang_up(link)
            case Halt(reason):
                self.machine.start_failed(reason)
            case _:
                assert_never(effect)

    def _remove_files(self, effect: RemoveFiles) -> None:
        """At once, so that a crash can come between any two; the node hears of it afterwards."""
        error: StorageError | None = None
        try:
            effect.carry_out(self.machine.disk.files)
        except StorageError as failed:
            error = failed
        self._schedule.after(0, partial(self.tell, self._files_removed, (effect.token, error)))

    def _files_removed(self, outcome: tuple[int, StorageError | None]) -> None:
        token, error = outcome
        self.node.files_removed(token, error, self.clock.now)

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
        self.unanswered -= 1
        self.trace(Kind.WRITTEN, type(error).__name__.encode())
        self.node.metadata_written(token, error, self.clock.now)

    def _look_at_membership(self, _: None) -> None:
        """Serve as soon as the broker is registered, and no longer when another one is it."""
        self._took_news = False
        membership = self.node.membership
        if membership.is_fenced:
            self.world.note(f"{self.machine.address} finds its id taken by another process")
            if self.connections.is_accepting:
                self.leave(_nobody_asks)
            else:
                self.machine.start_failed("its id is in use")
        elif membership.is_registered:
            self.connections.begin_to_accept()

    # -- the end -----------------------------------------------------------------------------

    def leave(self, then: Callable[[bool], None]) -> None:
        """Leave the cluster, then close everything; `then` hears whether that was clean."""
        if not self.is_up:
            self.machine.start_failed("it was told to stop")
            then(False)
        elif self.leaving is None:
            self.leaving = Leaving(self, then)


def _nobody_asks(clean: bool) -> None:
    """The shutdown callback of a process that stops by itself: no caller waits for the outcome."""
