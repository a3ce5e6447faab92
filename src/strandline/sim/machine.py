"""One broker's machine: its disk, its clocks and, most of the time, a running process.

    start ── (through the store, can fail and is then tried again) ── up ── kill | power_cut | stop

SKELETON: signatures first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from strandline.config.broker import BrokerConfig
from strandline.node.node import Node
from strandline.types import BrokerId, Instant

if TYPE_CHECKING:
    from strandline.sim.clock import NodeClock
    from strandline.sim.disk import Disk
    from strandline.sim.world import World


class Machine:
    """See the module."""

    broker_id: BrokerId
    world: World
    config: BrokerConfig
    disk: Disk
    clock: NodeClock
    node: Node
    """Only while `is_up`."""
    life: int
    """Counts the starts of processes, from 1."""
    last_start_was_clean: bool

    @property
    def is_running(self) -> bool:
        """Whether there is a process: it starts, or works, or is paused."""

    @property
    def is_up(self) -> bool:
        """Whether the process has a node (it may be paused)."""

    @property
    def is_paused(self) -> bool: ...

    @property
    def is_powered(self) -> bool:
        """False from a power cut to the next start: then nothing answers, not even with a RST."""

    @property
    def now(self) -> Instant:
        """What this machine's clocks show."""

    def start(self) -> None:
        """Start a process; a start that fails is tried again until it works. No-op if running."""

    def kill(self) -> None:
        """End the process as SIGKILL does. No-op if there is none."""

    def power_cut(self, mode: str = "any") -> bool:
        """Cut the power; whether anything that was written is lost (see `Disk.power_cut`)."""

    def stop(self, then: Callable[[bool], None] = lambda clean: None) -> None:
        """Controlled shutdown, as by SIGTERM; `then` hears whether the logs were closed cleanly."""

    def pause(self) -> None:
        """As by SIGSTOP: timers late, no events, the session runs out."""

    def resume(self) -> None:
        """As by SIGCONT: what has waited happens now."""

    def swap_disk(self) -> None:
        """Cut the power and put an empty disk in (F-12)."""

    def crash_in(self, operations: int, how: Literal["kill", "power"] = "power") -> None:
        """Die at the n-th disk operation from now (1: the next one), before it takes effect."""

    def event(self, action: Callable[[Node, Instant], None]) -> None:
        """Let something happen to the node, now or when it goes on; lost if there is none."""
