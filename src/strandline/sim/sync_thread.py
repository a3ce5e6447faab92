"""The thread in which a process syncs files, one plan after the other.

A sync happens at the beginning or at the end of the time that it takes, by a draw: what is durable
when the node hears of it is at least what was written before it asked, and perhaps more. The node
goes on meanwhile, also if the disk is slow.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import Final

from strandline.errors import StorageError
from strandline.node.effects import SyncLog
from strandline.sim.running_process import RunningProcess
from strandline.sim.trace import Kind

_SYNC_US: Final = (50, 2_000)
"""How long a sync takes if the disk is not slow."""


class SyncThread:
    """See the module."""

    __slots__ = ("_process", "_random", "_waiting")

    def __init__(self, process: RunningProcess, random: Random) -> None:
        self._process = process
        self._random = random
        self._waiting: deque[SyncLog] = deque()

    @property
    def is_at_work(self) -> bool:
        """Whether the node has yet to hear of a sync."""
        return bool(self._waiting)

    def add(self, sync: SyncLog) -> None:
        """Sync what the plan names, after what was asked for before."""
        self._waiting.append(sync)
        if len(self._waiting) == 1:
            self._begin(None)

    def _begin(self, _: None) -> None:
        delay_us = self._random.randint(*_SYNC_US)
        if self._random.getrandbits(1):
            self._process.world.schedule.after(delay_us, self._end)
        else:
            self._sync(delay_us)

    def _end(self) -> None:
        process = self._process
        if process.is_over:
            return
        if process.is_paused:
            process.hold(self._sync, 0)
        else:
            process.run(self._sync, 0)

    def _sync(self, delay_us: int) -> None:
        """Carry the oldest plan out; the node hears of it after that time."""
        process = self._process
        disk = process.machine.disk
        busy_us = disk.take_stall_us()
        if busy_us:
            process.be_busy(busy_us)
        result: bool | StorageError
        try:
            result = self._waiting[0].plan.carry_out(disk.files)
        except StorageError as error:
            result = error
        # Only this thread has waited for the disk.
        delay_us += disk.take_stall_us()
        process.world.schedule.after(delay_us, partial(self._synced, result))

    def _synced(self, result: bool | StorageError) -> None:
        process = self._process
        if process.is_over:
            return
        sync = self._waiting.popleft()
        process.tell(self._tell, (sync.token, result))
        if self._waiting and not process.is_over:
            process.run(self._begin, None)

    def _tell(self, outcome: tuple[int, bool | StorageError]) -> None:
        token, result = outcome
        process = self._process
        world = process.world
        world.trace.number(
            world.schedule.now_us, Kind.SYNCED, process.machine.address, int(result is True)
        )
        process.node.log_synced(token, result, process.now)
