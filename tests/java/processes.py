"""The processes that the tests of Kafka's Java code start: brokers, and virtual machines.

Nothing here sleeps: waiting is for a line of output or for an exit, and has a deadline. A caller
that starts a process ends it; `Workshop` ends what a test forgot.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final

HERE: Final = Path(__file__).parent
JARS: Final = os.environ.get("STRANDLINE_KAFKA_JARS")
JAVA: Final = shutil.which("java")
JAVAC: Final = shutil.which("javac")
PATIENCE_SECONDS: Final = 240.0
# Short runs with a long class path: the quick compiler and the small collector start fastest.
_JVM_FLAGS: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx512m",
    # Where a logging binding is among the jars, it would write between what the tools print.
    "-Dorg.apache.logging.log4j.level=OFF",
)


class Process:
    """A child whose output is read line by line, its errors kept in a file."""

    def __init__(self, command: Sequence[str], errors: Path, env: Mapping[str, str]) -> None:
        self.errors = errors
        with errors.open("ab") as stream:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env={**os.environ, **env},
            )
        self._lines: Queue[str | None] = Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self, seconds: float = PATIENCE_SECONDS) -> str | None:
        """The next line of output, None at its end. Fails if the child stays silent."""
        try:
            return self._lines.get(timeout=seconds)
        except Empty:
            raise AssertionError(f"Silent for {seconds} s. {self.complaint()}") from None

    def lines(self) -> list[str]:
        """All lines that are still to come."""
        found = []
        while (line := self.line()) is not None:
            found.append(line)
        return found

    def tell(self, line: str) -> None:
        """Write one line to its standard input."""
        assert self._child.stdin is not None
        self._child.stdin.write(line + "\n")
        self._child.stdin.flush()

    def close_input(self) -> None:
        """Let its standard input end."""
        assert self._child.stdin is not None
        self._child.stdin.close()

    def complaint(self) -> str:
        """The end of its standard error."""
        return "It said: " + self.errors.read_text(errors="replace")[-4000:]

    def wait(self) -> int:
        """Wait for its end and return its status."""
        status = self._child.wait(PATIENCE_SECONDS)
        self._let_go()
        return status

    def kill(self) -> None:
        """End it at once, if it has not ended."""
        self.end(signal.SIGKILL)

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, and return the status."""
        if self._child.poll() is None:
            self._child.send_signal(how)
        try:
            status = self._child.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            status = self._child.wait()
        self._let_go()
        return status

    def _let_go(self) -> None:
        self._reader.join(PATIENCE_SECONDS)
        for stream in (self._child.stdin, self._child.stdout):
            if stream is not None and not stream.closed:
                stream.close()


class Broker:
    """A Strandline broker in its own process, on a port that the system chose."""

    def __init__(self, process: Process, data: Path) -> None:
        self.process = process
        self.data = data
        first = process.line()
        assert first is not None, f"The broker did not start. {process.complaint()}"
        self.report: dict[str, Any] = json.loads(first)
        self.address = f"127.0.0.1:{self.report['port']}"

    def stop(self) -> bool:
        """Stop cleanly; returns whether the broker says that it was clean."""
        status = self.process.end()
        assert status == 0, self.process.complaint()
        last = self.process.line()
        return last is not None and json.loads(last) == {"clean": True}

    def kill(self) -> None:
        """End it as a power cut of the process would."""
        self.process.end(signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run of a Java main class left behind."""

    status: int
    out: str
    err: str

    def __str__(self) -> str:
        return f"exit {self.status}\n--- out\n{self.out}\n--- err\n{self.err}"

    def succeeded(self) -> str:
        """Its output; fails with everything it said unless it succeeded."""
        assert self.status == 0, self
        return self.out

    def failed(self) -> str:
        """All it said; fails if it succeeded."""
        assert self.status != 0, self
        return self.out + self.err


class ToolServer:
    """One virtual machine in which Kafka's tools run one after the other."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def run(self, main: str, *arguments: str | Path, stdin: str = "") -> Outcome:
        """Run a main class with arguments."""
        args = [str(argument) for argument in arguments]
        self.process.tell(json.dumps({"main": main, "args": args, "stdin": stdin}))
        answer = self.process.line()
        assert answer is not None, f"{main} took its machine along. {self.process.complaint()}"
        found = json.loads(answer)
        return Outcome(found["exit"], found["out"], found["err"])


def compile_java(target: Path) -> Path:
    """Compile the Java sources of this directory once, and return where their classes are."""
    return compile_sources(HERE, target, f"{JARS}/*")


def compile_sources(sources: Path, target: Path, class_path: str) -> Path:
    """Compile the Java sources of a directory, and return where their classes are."""
    assert JAVAC is not None
    subprocess.run(
        [
            JAVAC,
            "-Xlint:all,-processing",
            "-Werror",
            "-proc:none",
            "-cp",
            class_path,
            "-d",
            target,
            *sources.glob("*.java"),
        ],
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    return target


class Workshop:
    """Starts processes with their files in one directory, and ends those that still run."""

    def __init__(self, directory: Path, classes: Path) -> None:
        self.directory = directory
        self.classes = classes
        self._started: list[Process] = []

    def start(self, *command: str | Path, env: Mapping[str, str] | None = None) -> Process:
        """Start any program."""
        errors = self.directory / f"stderr-{len(self._started)}.txt"
        process = Process([str(word) for word in command], errors, env or {})
        self._started.append(process)
        return process

    def broker(self, data: Path | None = None, *settings: str) -> Broker:
        """Start a Strandline broker on a fresh directory, or on the given one."""
        data = data or self.directory / f"data-{len(self._started)}"
        process = self.start(
            sys.executable,
            HERE / "serve.py",
            "listeners=PLAINTEXT://127.0.0.1:0",
            f"log.dirs={data}",
            *settings,
        )
        return Broker(process, data)

    def java(self, main: str, *arguments: str | Path) -> Process:
        """Start a virtual machine with Kafka's classes and ours."""
        assert JAVA is not None
        class_path = os.pathsep.join([str(self.classes), f"{JARS}/*"])
        return self.start(JAVA, *_JVM_FLAGS, "-cp", class_path, main, *arguments)

    def tools(self) -> ToolServer:
        """Start a machine that runs one main class after the other."""
        return ToolServer(self.java("ToolServer"))

    def close(self) -> None:
        """End everything that still runs."""
        for process in self._started:
            process.end(signal.SIGKILL)
