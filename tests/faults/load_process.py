"""The load in a process of its own, and the handle of it that a test holds.

Client threads that compete for the interpreter with the gates of the network would make every
connection of the cluster slow. The child is told what to do by lines on its standard input and
answers each with a line of JSON; the history comes back as a file.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from strandline.sim.history.checker import check
from strandline.sim.history.operations import Event
from strandline.sim.history.report import Anomaly, AnomalyKind, Report
from tests.faults.group_reader import GROUP
from tests.faults.load import LAST_READERS, SETTLE_S, Load, LoadError
from tests.faults.processes import until

ROOT: Final = Path(__file__).parents[2]
ANSWER_S: Final = 6 * SETTLE_S


class LoadProcess:
    """`with` starts the clients; `finish` stops them and judges what they saw."""

    def __init__(
        self,
        home: Path,
        bootstrap: str,
        topic: str,
        partitions: int = 1,
        *,
        acks: str = "all",
        may_lose: bool = False,
        with_group: bool = False,
        producers: Sequence[str] = ("librdkafka", "kafka-python"),
    ) -> None:
        self._history = home / f"history-of-{topic}.pickle"
        self._log = home / f"load-of-{topic}.log"
        arguments = {
            "bootstrap": bootstrap,
            "topic": topic,
            "partitions": partitions,
            "acks": acks,
            "may_lose": may_lose,
            "with_group": with_group,
            "producers": list(producers),
        }
        self._command = [sys.executable, "-m", "tests.faults.load_process", json.dumps(arguments)]
        self._child: subprocess.Popen[str] | None = None
        self.events: Sequence[Event] = ()

    def __enter__(self) -> Self:
        with self._log.open("w") as log:
            self._child = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env={**os.environ, "PYTHONWARNINGS": "ignore"},
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    stream.close()

    def pause(self) -> None:
        """SIGSTOP."""
        assert self._child is not None
        self._child.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        assert self._child is not None
        self._child.send_signal(signal.SIGCONT)

    def acknowledged(self) -> int:
        """How many sends were acknowledged so far."""
        return int(self._ask("acknowledged"))

    def wait_for_more(self, count: int, *, seconds: float = SETTLE_S) -> None:
        """Wait until so many more sends were acknowledged: the cluster serves."""
        enough = self.acknowledged() + count
        until(
            lambda: self.acknowledged() >= enough,
            f"{count} more acknowledged sends",
            seconds=seconds,
        )

    def finish(self) -> Report:
        """Stop all clients, read everything again from the start, and judge. Raises LoadError when
        a client failed, a send has no outcome, or a reader could not come to the end."""
        self._ask(f"finish {self._history}")
        # Written by our own child a moment ago.
        self.events = pickle.loads(self._history.read_bytes())
        return check(self.events, last_readers=LAST_READERS)

    def complaint(self) -> str:
        """The end of what the clients complained about."""
        return self._log.read_text()[-3000:]

    def missed_by_group(self) -> list[Anomaly]:
        """Acknowledged records that the group was never given, after `finish`."""
        missing = {AnomalyKind.LOST, AnomalyKind.UNSEEN}
        found = check(self.events, last_readers={GROUP}).anomalies
        return [anomaly for anomaly in found if anomaly.kind in missing]

    def _ask(self, command: str) -> Any:
        assert self._child is not None
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(command + "\n")
        self._child.stdin.flush()
        ready, _, _ = select.select([self._child.stdout], [], [], ANSWER_S)
        line = self._child.stdout.readline() if ready else ""
        if not line:
            raise LoadError(f"The load says nothing:\n{self.complaint()}")
        answer = json.loads(line)
        if "error" in answer:
            raise LoadError(answer["error"])
        return answer["result"]


def main() -> None:
    """The child: runs until its standard input ends."""
    arguments = json.loads(sys.argv[1])
    with Load(**arguments) as load:
        for line in sys.stdin:
            command, _, argument = line.strip().partition(" ")
            try:
                if command == "finish":
                    load.finish()
                    Path(argument).write_bytes(pickle.dumps(load.history.events))
                answer: dict[str, Any] = {"result": load.acknowledged()}
            except LoadError as error:
                answer = {"error": str(error)}
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
