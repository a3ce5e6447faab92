"""One broker's machine: its disk, its clocks and, most of the time, a running process.

    start ──▶ a process starts, is up, ends by kill | power_cut | stop | a bug ──▶ start ──▶ ...

A process that cannot start ends and is started again by and by, as by a supervisor. What a process
does while it lives is in `process`; here is what happens to it, and what outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.config.broker import BrokerConfig
from strandline.errors import InvariantViolated, StrandlineError
from strandline.node.effects import Chunk, ConnectionId
from strandline.node.node import Node
from strandline.sim.bugs import is_of_simulator, place_of
from strandline.sim.clock import NodeClock
from strandline.sim.connections import Served
from strandline.sim.disk import Disk
from strandline.sim.disk_faults import CrashPoint
from strandline.sim.disk_faults import Ending as CrashEnding
from strandline.sim.observer import Ending, Observer
from strandline.sim.process import Process
from strandline.sim.running_process import Sink, Surroundings
from strandline.sim.starting import Starting
from strandline.sim.trace import Kind
from strandline.storage.compaction.plan import CleaningResult
from strandline.storage.memory_files import ProcessEnded
from strandline.storage.memory_inodes import PowerCut
from strandline.types import BrokerId, Instant

if TYPE_CHECKING:
    from strandline.sim.latency import End
    from strandline.sim.store_client import StoreClient
    from strandline.sim.wires import Wire

_LULLS_US: Final = (0, 50, 200, 500)
"""How long a process collects events before it ends a turn; drawn for each life."""
_BOOT_US: Final = (100, 5_000)
_RETRY_US: Final = (100_000, 1_000_000)
_WRITE_BACK_US: Final = (500_000, 5_000_000)


def _ignore(clean: bool) -> None:
    """The callback for a shutdown whose outcome the caller does not need."""


class Machine:
    """See the module.

    - `address`: by what the network and the store know it; only for intruders not its broker's id.
    - `life`: counts the processes, from 1.
    - `is_powered`: False from a power cut to the next start: then nothing answers at all.
    - `direct`: clients without a wire, by connection, for tests.
    - `last_node`: the node of the process that ended last, while observers hear of its end.
    """

    def __init__(
        self,
        world: Surroundings,
        config: BrokerConfig,
        disk: Disk,
        clock: NodeClock,
        *,
        address: BrokerId,
        observers: Sequence[Observer[Machine]],
        is_exact: bool,
    ) -> None:
        """`observers` are told of its processes. `is_exact`: these start at once, end each turn at
        once, and nothing reaches the disk by itself, for tests that say what happens step by step.
        """
        self.world = world
        self.config = config
        self.broker_id = BrokerId(config.node_id)
        self.address = address
        self.host = f"broker-{address}"
        self.observers = observers
        self.disk = disk
        self.clock = clock
        self.life = 0
        self.is_powered = True
        self.direct: dict[ConnectionId, Sink] = {}
        self.last_node: Node | None = None
        self.last_start_was_clean = True
        self.start_notices: tuple[str, ...] = ()
        """What the last start that succeeded found, in sentences."""
        self.connections_max = config.max_connections
        self.frame_bytes_max = config.socket_request_max_bytes
        self._random = world.streams(f"broker {address}")
        self._is_exact = is_exact
        self._process: Process | None = None
        clock.changed = self._clock_changed
        if not is_exact:
            self._plan_write_back()

    def __repr__(self) -> str:
        return self.host

    # -- looking -----------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether there is a process: it starts, or works, or is paused."""
        return self._process is not None

    @property
    def is_up(self) -> bool:
        """Whether the process has a node (it may be paused)."""
        return self._process is not None and self._process.is_up

    @property
    def is_paused(self) -> bool:
        return self._process is not None and self._process.is_paused

    @property
    def node(self) -> Node:
        """What the process works with, while `is_up`."""
        process = self._process
        if process is None or not process.is_up:
            raise InvariantViolated(f"Broker {self.broker_id} has no node now.")
        return process.node

    @property
    def metadata(self) -> StoreClient | None:
        """The process's access to the store, once it has one."""
        return None if self._process is None else self._process.store

    @property
    def now(self) -> Instant:
        """What this machine's clocks show."""
        return self.clock.now

    # -- what happens to it ------------------------------------------------------------------

    def start(self) -> None:
        """Start a process, if there is none; a start that fails is tried again until it works."""
        if self._process is not None:
            return
        if not self.is_powered:
            self.is_powered = True
            self.clock.reboot()
            self.world.network.powered_on(self.address)
        self.life += 1
        lull_us, boot_us = 0, 0
        if not self._is_exact:
            lull_us, boot_us = self._random.choice(_LULLS_US), self._random.randint(*_BOOT_US)
        process = self._process = Process(self, self._random, lull_us)
        starting = Starting(process, self._random)
        self.world.schedule.after(boot_us, partial(process.tell, starting.begin, None))

    def kill(self) -> None:
        """End the process as SIGKILL does, if there is one: what it wrote stays."""
        self._end("kill")

    def power_cut(self, mode: PowerCut = "any") -> bool:
        """Cut the power; whether anything that was written is lost. Also without a process."""
        if self._process is None:
            self._go_dark()
            return self.disk.power_cut(mode)
        return self._end("power", mode)

    def swap_disk(self) -> bool:
        """Cut the power and put empty disks in (F-12)."""
        if self._process is None:
            self._go_dark()
            self.disk.swap()
            return True
        return self._end("swap")

    def stop(self, then: Callable[[bool], None] = _ignore) -> None:
        """Controlled shutdown, as by SIGTERM; `then` hears whether the logs were closed cleanly.

        It is not told if the process ends in another way meanwhile. A paused one stops later.
        """
        if self._process is not None:
            self._process.tell(self._process.leave, then)

    def pause(self) -> None:
        """As by SIGSTOP: timers late, no events, the session runs out."""
        if self._process is not None and not self._process.is_paused:
            self._process.pause()

    def resume(self) -> None:
        """As by SIGCONT: what has waited happens now, before anything new is heard."""
        if self._process is not None and self._process.is_paused:
            self._process.resume()

    def crash_in(
        self,
        operations: int,
        how: CrashEnding = "power",
        *,
        mode: PowerCut = "any",
        operation: str = "",
        path_part: str = "",
    ) -> None:
        """Die at the n-th disk operation from now (1: the next one), in whichever life that is."""
        self.disk.crash_in(operations, how=how, mode=mode, operation=operation, path_part=path_part)

    def disarm(self) -> None:
        """Forget `crash_in`."""
        self.disk.forget_crash()

    def event(self, action: Callable[[Node, Instant], None]) -> None:
        """Let something happen to the node, now or when it goes on; lost if there is none."""
        process = self._process
        if process is not None and process.is_up:
            process.tell(partial(_act, process), action)

    def schedule_turn(self) -> None:
        """Something was done to the node directly: end the turn."""
        if self._process is not None and self._process.is_up:
            self._process.want_turn()

    # -- what the network asks ---------------------------------------------------------------

    def accept(self, wire: Wire, source: End) -> Served | None:
        """Accept a connection. The kernel listens from the beginning of a start on."""
        return None if self._process is None else self._process.connections.arrived(wire, source)

    # -- what the process tells --------------------------------------------------------------

    def acted(self) -> None:
        """Its node has handled an event, or ended a turn."""
        for observer in self.observers:
            observer.node_acted(self)

    def sent(self, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        """Its node answers a client."""
        for observer in self.observers:
            observer.sent(self, connection, chunks)

    def cleaned(self, result: CleaningResult) -> None:
        """Its node was given a compacted segment."""
        for observer in self.observers:
            observer.cleaned(self, result)

    def round_ended(self, error: StrandlineError | None) -> None:
        """Its node has heard of the end of a round of compaction."""
        for observer in self.observers:
            observer.round_ended(self, error)

    def went_up(self) -> None:
        """The process has made its node, which begins to work next."""
        world = self.world
        how = "cleanly" if self.last_start_was_clean else "after a crash"
        world.note(f"{self.address} is up, {how}; {'; '.join(self.start_notices) or 'all well'}")
        world.trace.number(world.schedule.now_us, Kind.STARTED, self.address, self.life)
        for observer in self.observers:
            observer.started(self)

    def start_failed(self, reason: str) -> None:
        """The process gives its start up, in order; another one will try."""
        self.world.note(f"{self.address} cannot start: {reason}")
        self._end("failed", at_once=True)
        life = self.life

        def again() -> None:
            if self.life == life and self.is_powered:
                self.start()

        self.world.schedule.after(self._random.randint(*_RETRY_US), again)

    def stopped(self) -> None:
        """The process has closed everything."""
        self._end("stop", at_once=True)

    def crashed(self, ended: ProcessEnded) -> None:
        """A disk operation was the last one of the process."""
        cause = ended.cause
        if not isinstance(cause, CrashPoint):
            raise InvariantViolated(f"A process cannot end by {cause}.")
        self.world.note(f"{self.address} dies at a disk operation: {cause}")
        if cause.how == "power":
            self._end("power", cause.mode)
        else:
            self._end("kill")

    def broke(self, error: Exception) -> None:
        """An exception came out of the node that should not: the process ends.

        One that the simulator itself has raised goes on to the caller of the run.
        """
        place = place_of(error)
        if is_of_simulator(place):
            raise error
        self.world.bug(self.broker_id, f"{type(error).__name__}: {error} at {place}")
        self._end("bug")

    # -- the end -----------------------------------------------------------------------------

    def _end(self, how: Ending, mode: PowerCut = "any", *, at_once: bool = False) -> bool:
        """The process is over; whether anything that it wrote is lost."""
        process, world = self._process, self.world
        if process is None:
            return False
        self._process = None
        process.is_over = True
        if process.store is not None:
            process.store.die(at_once)
        if how in ("power", "swap"):
            self._go_dark()
        else:
            world.network.died(self.address, silent=False)
        lossy = self._end_on_disk(how, mode)
        process.cleaners.abandon()
        world.note(f"{self.address} has ended: {how}{', something is lost' if lossy else ''}")
        world.trace.number(world.schedule.now_us, Kind.ENDED, self.address, self.life)
        sinks, self.direct = self.direct, {}
        for sink in sinks.values():
            sink.broker_died()
        self.last_node = process.node if process.is_up else None
        for observer in self.observers:
            observer.ended(self, how, lossy=lossy)
        self.last_node = None
        return lossy

    def _end_on_disk(self, how: Ending, mode: PowerCut) -> bool:
        match how:
            case "power":
                return self.disk.power_cut(mode)
            case "swap":
                self.disk.swap()
                return True
            case _:
                return self.disk.killed()

    def _go_dark(self) -> None:
        self.is_powered = False
        self.world.network.died(self.address, silent=True)

    # -- in the background -------------------------------------------------------------------

    def _clock_changed(self) -> None:
        if self._process is not None:
            self._process.clock_changed()

    def _plan_write_back(self) -> None:
        delay_us = self.world.streams(f"write back {self.address}").randint(*_WRITE_BACK_US)
        self.world.schedule.after(delay_us, self._write_back)

    def _write_back(self) -> None:
        """The kernel brings to the disk what it likes."""
        if self.is_powered:
            self.disk.write_back()
        self._plan_write_back()


def _act(process: Process, action: Callable[[Node, Instant], None]) -> None:
    action(process.node, process.now)
