"""What the parts of a process want of it, and what it wants of its machine and of its world.

    world ── makes ──> machine ── starts ──> process ── is made of ──> connections, threads, ...

Each is made by the one before and calls it: these are the calls in that direction, so that no part
has to import what it is a part of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from strandline.config.broker import BrokerConfig
    from strandline.errors import StrandlineError
    from strandline.node.effects import Chunk, ConnectionId
    from strandline.node.node import Node
    from strandline.sim.bugs import BugWatch
    from strandline.sim.clock import NodeClock
    from strandline.sim.disk import Disk
    from strandline.sim.network import Network
    from strandline.sim.schedule import Schedule
    from strandline.sim.store import Store
    from strandline.sim.streams import Streams
    from strandline.sim.trace import Kind, Trace
    from strandline.storage.compaction.plan import CleaningResult
    from strandline.storage.memory_files import ProcessEnded
    from strandline.types import BrokerId, Instant

Handler: TypeAlias = Callable[[Any], None]


class Sink(Protocol):
    """A client without a wire, for tests: it gets its answers at once."""

    def take(self, chunks: Sequence[Chunk]) -> None:
        """The node sent bytes."""

    def closed_by_node(self, reason: str) -> None:
        """The node closed the connection."""

    def broker_died(self) -> None:
        """There is no node any more."""


class Surroundings(Protocol):
    """The world of a machine (`world.World`)."""

    schedule: Schedule
    streams: Streams
    trace: Trace
    network: Network
    store: Store
    bugs: BugWatch[BrokerId]
    """Whose node is at work."""
    addresses: dict[str, BrokerId]
    """Machines by what their brokers say is their host."""

    def note(self, text: str) -> None:
        """Write into the ring of last events."""

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        """Report a bug of a node, or of the simulator (None)."""


class HostMachine(Protocol):
    """The machine of a process (`machine.Machine`)."""

    config: BrokerConfig
    broker_id: BrokerId
    address: BrokerId
    host: str
    disk: Disk
    clock: NodeClock
    last_start_was_clean: bool
    start_notices: tuple[str, ...]

    @property
    def world(self) -> Surroundings: ...

    @property
    def direct(self) -> Mapping[ConnectionId, Sink]:
        """Clients without a wire."""

    # What becomes of the process.

    def went_up(self) -> None:
        """It has made its node, which begins to work next."""

    def start_failed(self, reason: str) -> None:
        """It gives its start up, in order."""

    def stopped(self) -> None:
        """It has closed everything."""

    def crashed(self, ended: ProcessEnded) -> None:
        """A disk operation was its last one."""

    def broke(self, error: Exception) -> None:
        """An exception came out of the node that should not."""

    # What observers are told.

    def acted(self) -> None:
        """The node has handled an event, or ended a turn."""

    def sent(self, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        """The node answers a client."""

    def cleaned(self, result: CleaningResult) -> None:
        """The node was given a compacted segment."""

    def round_ended(self, error: StrandlineError | None) -> None:
        """The node has heard of the end of a round of compaction."""


class RunningProcess(Protocol):
    """A process (`process.Process`), to its parts."""

    is_over: bool
    is_paused: bool
    is_blocked: bool
    """Events wait."""
    node: Node
    """Once there is one."""

    @property
    def world(self) -> Surroundings: ...

    @property
    def machine(self) -> HostMachine: ...

    @property
    def now(self) -> Instant:
        """What the machine's clocks show."""

    def tell(self, handler: Handler, what: Any) -> None:
        """Let something happen, now or when the process goes on."""

    def hold(self, handler: Handler, what: Any) -> None:
        """Let something happen when the process goes on."""

    def run(self, handler: Handler, what: Any) -> bool:
        """Let the process work; whether it is still there afterwards."""

    def be_busy(self, stall_us: int) -> None:
        """The process waits for its disk."""

    def trace(self, kind: Kind, data: bytes) -> None:
        """Let the run's hash know what was delivered to this process."""
