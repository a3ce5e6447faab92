"""`python -m tests.java.eos [words] [copies] [clients] [--rounds N] [--seed N]`.

Needs Java, Maven (for Kafka's jars) and ZooKeeper's jars, as the tests do. Data, and what every
process said, stays in the directory that is printed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

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
    cache = Path(os.environ.get("STRANDLINE_TEST_CACHE", Path.home() / ".cache/strandline-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    for name in options.runs or RUNS:
        home = Path(tempfile.mkdtemp(prefix=f"eos-{name}-"))
        print(f"{name}: {home}", flush=True)
        began = time.monotonic()
        with Rig(home, cache) as rig:
            said = RUNS[name](rig, options.rounds, options.seed)
        print(f"{name}: {said}, in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
