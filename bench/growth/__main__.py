"""The command of this package: measure, print tables, draw pictures, name what is worse."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.environment import describe
from bench.growth import connections, groups, partitions, records, recovery, segments
from bench.growth.curve import Curve, table
from bench.growth.served import World
from bench.native import build, default_cache
from bench.workloads import QUICK, Setup

KINDS: Final[Mapping[str, tuple[str, Callable[[World, int], Iterator[Curve]]]]] = {
    "partitions": ("Partitions of a broker", partitions.curves),
    "connections": ("Connections to a broker", connections.curves),
    "groups": ("Members of a group", groups.curves),
    "records": ("Sizes of records", records.curves),
    "segments": ("Segments of a partition", segments.curves),
    "recovery": ("Recovery after a crash", recovery.curves),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its status is 1 if a curve is worse than it may be."""
    options = _parser().parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    setup = Setup(build(options.cache_dir), QUICK)
    command = (sys.executable, "-m", "strandline.cli.main", "serve")
    world = World(command, options.data_dir, setup)
    print(describe(options.data_dir, kafka_jars=None, java="java").line(), "\n")
    problems: list[str] = []
    for kind in options.only or KINDS:
        title, measure = KINDS[kind]
        found = list(measure(world, options.most))
        print(f"{title}\n\n{table(found)}\n", flush=True)
        problems += [problem for curve in found for problem in curve.problems]
        if not options.no_pictures:
            # What draws is asked for last: it is needed by nothing else.
            from bench.growth.picture import draw

            draw(title, [curve for curve in found if curve.points], options.output / f"{kind}.svg")
    print("\n".join(problems) or "Nothing is worse than it may be.")
    return 1 if problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description="How cost grows with work."
    )
    add = parser.add_argument
    add("--only", action="append", choices=list(KINDS), help="of these kinds of work (repeat it)")
    add("--most", type=int, default=10_000_000, help="no more work than that, of any kind")
    add("--output", type=Path, default=Path("bench-growth"), help="directory for the pictures")
    add("--no-pictures", action="store_true", help="tables alone")
    add("--data-dir", type=Path, default=Path("/dev/shm"), help="where brokers write")
    add("--cache-dir", type=Path, default=default_cache(), help="of compiled clients")
    return parser


if __name__ == "__main__":
    sys.exit(main())
