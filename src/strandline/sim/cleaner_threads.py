"""The threads in which a process compacts logs (`CleanLog`), or only looks what that would do.

A round goes on segment by segment: everything up to the next new segment happens at one moment, and
between two of them whatever comes. A crash may come at each of its file operations. What the node
hears, and when, is drawn; results come in their order, and the end after all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import Final, TypeAlias

from strandline.errors import StrandlineError
from strandline.node.effects import CleanLog, ExamineLog
from strandline.sim.running_process import RunningProcess
from strandline.sim.trace import Kind
from strandline.storage.compaction.cleaning import CleaningAborted, carry_out
from strandline.storage.compaction.dry_run import DryRun, dry_run
from strandline.storage.compaction.plan import CleaningPlan, CleaningResult
from strandline.storage.memory_files import ProcessEnded

_STEP_US: Final = (100, 30_000)
"""How long it takes until a segment is compacted if the disk is not slow."""
_TELL_US: Final = (0, 5_000)
"""How long until the node hears of it."""

_Outcome: TypeAlias = CleaningResult | StrandlineError | None


class _Round:
    """One round; also its `Pace`, by which it is ended."""

    def __init__(self, token: int, process: RunningProcess, plan: CleaningPlan) -> None:
        self.token = token
        self.plan = plan
        self.is_stopped = False
        self.results: Iterator[CleaningResult] = carry_out(plan, process.machine.disk.files, self)

    def spend(self, byte_count: int) -> None:
        """See `storage.compaction.segment_reader.Pace`."""
        del byte_count
        if self.is_stopped:
            raise CleaningAborted(f"{self.plan.topic_partition} is not to be compacted now.")


class CleanerThreads:
    """See the module."""

    __slots__ = ("_process", "_random", "_rounds", "_told")

    def __init__(self, process: RunningProcess, random: Random) -> None:
        self._process = process
        self._random = random
        self._rounds: dict[int, _Round] = {}
        self._told: list[_Outcome] = []

    @property
    def is_at_work(self) -> bool:
        """Whether the node has yet to hear of a round."""
        return bool(self._rounds)

    def directories(self) -> set[str]:
        """Where new segments may be under way."""
        return {each.plan.directory for each in self._rounds.values()}

    def tell_observers(self) -> None:
        """Tell them what the node has heard of since the last call."""
        if not self._told:
            return
        told, self._told = self._told, []
        machine = self._process.machine
        for outcome in told:
            if isinstance(outcome, CleaningResult):
                machine.cleaned(outcome)
            else:
                machine.round_ended(outcome)

    def add(self, effect: CleanLog) -> None:
        """Begin a round."""
        self._rounds[effect.token] = _Round(effect.token, self._process, effect.plan)
        self._after(_STEP_US, partial(self._step, effect.token))

    def stop(self, token: int) -> None:
        """Have a round end at its next step, if it has not ended."""
        found = self._rounds.get(token)
        if found is not None:
            found.is_stopped = True

    def examine(self, effect: ExamineLog) -> None:
        """Look what a round would do."""
        process = self._process
        outcome: DryRun | StrandlineError
        try:
            outcome = dry_run(effect.plan, process.machine.disk.files)
        except StrandlineError as error:
            outcome = error
        self._after(_TELL_US, partial(process.tell, self._examined, (effect.token, outcome)))

    def _examined(self, told: tuple[int, DryRun | StrandlineError]) -> None:
        self._process.node.log_examined(*told, self._process.now)

    def abandon(self) -> None:
        """The process is over, and its disk refuses whatever a round would still tidy up."""
        for each in self._rounds.values():
            close = getattr(each.results, "close", None)
            if close is not None:
                try:
                    close()
                except ProcessEnded:
                    continue
        self._rounds.clear()

    # -- one round ---------------------------------------------------------------------------

    def _after(self, delay_us: tuple[int, int], then: partial[None], stall_us: int = 0) -> None:
        delay = self._random.randint(*delay_us) + stall_us
        self._process.world.schedule.after(delay, then)

    def _step(self, token: int) -> None:
        process = self._process
        if process.is_over:
            return
        if process.is_paused:
            process.hold(self._work, token)
        else:
            process.run(self._work, token)

    def _work(self, token: int) -> None:
        """Compact up to the next new segment."""
        process, each = self._process, self._rounds[token]
        disk = process.machine.disk
        busy_us = disk.take_stall_us()
        if busy_us:
            process.be_busy(busy_us)
        outcome: _Outcome
        try:
            outcome = next(each.results, None)
        except StrandlineError as error:
            outcome = error
        # Only this thread has waited for the disk.
        self._after(_TELL_US, partial(self._done, token, outcome), disk.take_stall_us())

    def _done(self, token: int, outcome: _Outcome) -> None:
        process = self._process
        if process.is_over:
            return
        process.tell(self._tell, (token, outcome))
        if isinstance(outcome, CleaningResult) and not process.is_over:
            self._after(_STEP_US, partial(self._step, token))

    def _tell(self, told: tuple[int, _Outcome]) -> None:
        token, outcome = told
        process = self._process
        world = process.world
        is_result = isinstance(outcome, CleaningResult)
        world.trace.number(
            world.schedule.now_us, Kind.CLEANED, process.machine.address, int(is_result)
        )
        self._told.append(outcome)
        if isinstance(outcome, CleaningResult):
            process.node.log_cleaned(token, outcome, process.now)
        else:
            del self._rounds[token]
            process.node.cleaning_ended(token, outcome, process.now)
