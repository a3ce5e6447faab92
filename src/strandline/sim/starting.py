"""The start of a simulated process: the broker's own steps (`node.start_up`), in virtual time.

Whatever can go wrong with a start ends the process, which a supervisor starts again: the store
cannot be reached, the disk fails, the broker's id is in use. A crash in the middle comes out of a
file operation and is none of this file's business.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from random import Random
from typing import Protocol, assert_never

from strandline.cluster.store import Changes, StoreError
from strandline.cluster.znodes import Endpoint
from strandline.errors import InvalidSetting, StorageError
from strandline.node.node import Node
from strandline.node.start_up import StartUp, Step, Wait, Write
from strandline.sim.running_process import RunningProcess
from strandline.sim.store_client import StoreClient


class StartingProcess(RunningProcess, Protocol):
    """A process that has no node yet."""

    store: StoreClient | None
    """Its access to the metadata, once it has one."""
    starting: Callable[[Changes], None] | None
    """Hears of the metadata."""

    def metadata_changed(self, changes: Changes) -> None:
        """The store tells of a change."""

    def go_up(self, node: Node) -> None:
        """The start has made the node: let it work."""


class Starting:
    """See the module."""

    def __init__(self, process: StartingProcess, random: Random) -> None:
        machine = process.machine
        self._process = process
        self._start_up = StartUp(
            machine.config,
            machine.disk.files,
            random,
            clock=lambda: machine.clock.now,
            is_alone=False,
        )
        self._steps: Generator[Step, None, None] | None = None
        self._wait: Wait | None = None

    def begin(self, _: None = None) -> None:
        """Everything up to the first thing that takes time."""
        process = self._process
        machine = process.machine
        try:
            self._start_up.directories.make()
            store = process.store = StoreClient(process.world.store, process, machine.address)
        except (StorageError, StoreError) as error:
            machine.start_failed(str(error))
            return
        process.starting = self._changed
        self._steps = self._start_up.steps(store.first_view)
        self._go_on()

    def _go_on(self) -> None:
        """Take steps until one takes time, or all are done."""
        process, steps = self._process, self._steps
        store = process.store
        if steps is None or store is None:
            return
        try:
            step = next(steps, None)
        except (StorageError, StoreError, InvalidSetting) as error:
            process.machine.start_failed(str(error))
            return
        match step:
            case None:
                self._finish()
            case Write():
                store.write(step.operations, partial(self._hear, step))
            case Wait():
                self._wait = step
                timed_out = partial(process.tell, self._time_out, step)
                process.world.schedule.after(step.timeout_ms * 1000, timed_out)
            case _:
                assert_never(step)

    def _finish(self) -> None:
        machine = self._process.machine
        machine.last_start_was_clean = self._start_up.directories.was_clean
        node = self._start_up.make_node((Endpoint("PLAINTEXT", machine.host, 9092),))
        machine.start_notices = tuple(self._start_up.directories.notices)
        self._process.go_up(node)

    # -- what takes time ---------------------------------------------------------------------

    def _hear(self, write: Write, error: StoreError | None) -> None:
        write.error = error
        self._process.tell(self._written, None)

    def _written(self, _: None) -> None:
        self._go_on()

    def _changed(self, changes: Changes) -> None:
        self._start_up.changed(changes)
        wait = self._wait
        if wait is not None and wait.condition():
            self._end_wait(wait, is_met=True)

    def _time_out(self, wait: Wait) -> None:
        if self._wait is wait:
            self._end_wait(wait, is_met=wait.condition())

    def _end_wait(self, wait: Wait, *, is_met: bool) -> None:
        self._wait = None
        wait.is_met = is_met
        self._go_on()
