"""`python -m tests.java.neighbours [connect] [mirror] [pipelines]`: programs that live beside it.

Needs Java and Maven (for Kafka's jars), as the tests do. Data, and what every process said, stays
in the directory that is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from tests.java.carrying_out import carry_out
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
    carry_out(options.runs or RUNS, Rig, lambda name, rig: RUNS[name](rig))


if __name__ == "__main__":
    main()
