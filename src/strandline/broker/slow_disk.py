"""A disk on which writing takes longer than it does, for `faults`."""

from __future__ import annotations

import asyncio

from strandline.broker.running import Broker


class SlowDisk:
    """Holds a broker up after each turn in which it wrote records, as a slow write would.

    It is the whole broker that waits, since it writes in its one thread. Its session lives on.
    """

    def __init__(self, broker: Broker, delay_ms: int) -> None:
        self.delay_ms = delay_ms
        self._broker = broker
        self._written = self._bytes_written()
        self._handle: asyncio.TimerHandle | None = None
        broker.after_turns(self._look)

    def end(self) -> None:
        """The disk is quick again."""
        self._broker.after_turns(None)
        if self._handle is not None:
            self._handle.cancel()
            self._go_on()

    def _look(self) -> None:
        written = self._bytes_written()
        if written == self._written or self._handle is not None or self._broker.is_paused:
            return
        self._written = written
        self._broker.hold()
        self._handle = asyncio.get_running_loop().call_later(self.delay_ms / 1000, self._go_on)

    def _go_on(self) -> None:
        self._handle = None
        if not self._broker.is_paused and not self._broker.has_ended:
            self._broker.let_go()

    def _bytes_written(self) -> int:
        replicas = self._broker.node.replicas
        return sum(each.traffic.bytes_in + each.traffic.replication_in for each in replicas)
