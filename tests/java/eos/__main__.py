"""`python -m tests.java.eos [words] [copies] [clients] [--rounds N] [--seed N]`.

Needs Java, Maven (for Kafka's jars) and ZooKeeper's jars, as the tests do. Data, and what every
process said, stays in the directory that is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Final

from tests.java.carrying_out import carry_out
from tests.java.eos import copies, words
from tests.java.eos.rig import Rig

RUNS: Final[Mapping[str, Callable[[Rig, int, int], str]]] = {
    "words": words.run,
    "copies": copies.run,
}


def main() -> None:
    """Do the runs, each on a cluster of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.java.eos", description=__doc__)
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], help="default: all")
    parser.add_argument("--rounds", type=int, default=1, help="kills of each broker (default: 1)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    carry_out(
        options.runs or RUNS,
        Rig,
        lambda name, rig: RUNS[name](rig, options.rounds, options.seed),
        prefix="eos-",
    )


if __name__ == "__main__":
    main()
