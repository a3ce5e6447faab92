"""A broker's process as its supervisor sees it: what it has said so far, and how it ended.

Knows one process and its pipes. What follows from its end is the supervisor's (`process_cluster`).
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from subprocess import PIPE
from typing import Any

from strandline.broker import child_words as words
from strandline.broker.start_report import StartReport
from strandline.errors import InvariantViolated, MalformedFrame, StrandlineError

log = logging.getLogger(__name__)


class Child:
    """See the module. All methods belong to one event loop."""

    def __init__(self, broker_id: int, changed: Callable[[], None]) -> None:
        """`changed` is called when any of the attributes is different."""
        self.broker_id = broker_id
        self.is_prepared = False
        self.report: StartReport | None = None
        """Once it is ready."""
        self.failure: StrandlineError | None = None
        """What kept it from starting."""
        self.unfit_reason: str | None = None
        """Why it must not go on."""
        self.is_leaving = False
        self.was_clean = False
        """Whether it has ended with a clean shutdown."""
        self.has_ended = False
        self._changed = changed
        self._process: asyncio.subprocess.Process | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def end(self) -> str:
        """How it ended, as the end of a sentence."""
        if self._process is None:
            return "could not be started"
        status = self._process.returncode
        if status is None or status >= 0:
            return f"ended with status {status}"
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
        return f"was ended by signal {-status}"

    async def start(self, command: Sequence[str], order: words.Order) -> None:
        """Start the process, in a group of its own: Ctrl-C is the supervisor's alone.

        If the system gives none, it has ended, with a `failure`.
        """
        try:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, limit=words.LINE_BYTES_MAX, process_group=0
            )
        except OSError as error:
            self.failure = StrandlineError(
                f"The process of broker {self.broker_id} cannot be started: {error.strerror}."
            )
            self._has_no_process()
            return
        except BaseException:  # the stop of all comes in between; asyncio ends what it had begun
            self._has_no_process()
            raise
        log.info("Broker %d is process %d.", self.broker_id, self._process.pid)
        self._following = asyncio.create_task(self._follow(self._process))
        self._send(words.line_of_order(order))

    def _has_no_process(self) -> None:
        self.has_ended = True
        self._changed()

    def tell(self, word: str) -> None:
        """Say a word; a process that has ended does not hear it."""
        self._send(words.line_of(word))

    def wake(self) -> None:
        """Have it go on if it was stopped (SIGSTOP)."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without warning."""
        self._signal(signal.SIGKILL)

    async def ended(self) -> None:
        """Wait for its end."""
        if self._following is not None:
            await asyncio.shield(self._following)

    def _signal(self, number: int) -> None:
        if self._process is not None and not self.has_ended:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _send(self, line: bytes) -> None:
        stdin = self._process.stdin if self._process is not None else None
        if stdin is not None and not stdin.is_closing():
            stdin.write(line)

    async def _follow(self, process: asyncio.subprocess.Process) -> None:
        if process.stdout is None:
            raise InvariantViolated("The process has no pipe.")
        async for line in process.stdout:
            try:
                self._take_in(*words.read_line(line))
            except MalformedFrame as error:
                log.warning("Broker %d: %s", self.broker_id, error)
            self._changed()
        await process.wait()
        self.has_ended = True
        self._changed()

    def _take_in(self, word: str, said: Mapping[str, Any]) -> None:
        match word:
            case words.PREPARED:
                self.is_prepared = True
            case words.READY:
                self.report = words.read_report(said)
            case words.FAILED:
                self.failure = words.read_failure(said)
            case words.UNFIT:
                self.unfit_reason = str(said["reason"])
            case words.LEAVING:
                self.is_leaving = True
            case words.ENDED:
                self.was_clean = bool(said["clean"])
            case _:
                raise MalformedFrame(f"A process says {word!r}, which is no word.")
