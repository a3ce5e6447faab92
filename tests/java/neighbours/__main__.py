"""`python -m tests.java.neighbours [connect] [mirror] [pipelines]`: programs that live beside it.

Needs Java and Maven (for Kafka's jars), as the tests do. Data, and what every process said, stays
in the directory that is printed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.java.neighbours import connect, mirror, pipelines
from tests.java.neighbours.rig import Rig

RUNS: Final[Mapping[str, Callable[[Rig], str]]] = {
    "connect": connect.run,
    "mirror": mirror.run,
    "pipelines": pipelines.run,
}


def main() -> None:
    """Do the runs, each on clusters of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.java.neighbours", description=__doc__)
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], help="default: all")
    options = parser.parse_args()
    cache = Path(os.environ.get("STRANDLINE_TEST_CACHE", Path.home() / ".cache/strandline-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    for name in options.runs or RUNS:
        home = Path(tempfile.mkdtemp(prefix=f"{name}-"))
        print(f"{name}: {home}", flush=True)
        began = time.monotonic()
        with Rig(home, cache) as rig:
            said = RUNS[name](rig)
        print(f"{name}: {said}, in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
