"""A server in Java beside a test, which ends with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from strandline.lakehouse.session_java import find_java
from tests.faults.processes import until

PATIENCE_S: Final = 120.0
_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")

T = TypeVar("T")


@contextmanager
def java_server(
    what: str,
    arguments: Sequence[str],
    log: Path,
    ready: Callable[[], T],
    environment: Mapping[str, str] | None = None,
) -> Iterator[T]:
    """What `ready` says, as soon as that is true. `environment` is added to this process's."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(find_java().executable), *_OPTIONS, *arguments],
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def looked() -> T:
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
        return ready()

    try:
        yield until(looked, what, seconds=PATIENCE_S)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
