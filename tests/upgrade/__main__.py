"""`python -m tests.upgrade --from cdd9713 [--to REVISION] [--rounds N]`: a rolling upgrade.

Three brokers of the first revision over a real ZooKeeper are replaced one by one, under load, by
those of the second (this checkout, unless said otherwise), and then one by one back again. Clients
send and read all the time, a group among them; every round is judged in the end: nothing lost,
repeated or reordered, and all replicas equal.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.upgrade.releases import RELEASES, SOURCES, unpack
from tests.upgrade.rolling import replace_one_by_one


def main() -> None:
    """As many rounds as asked for, each with a cluster of its own."""
    words = argparse.ArgumentParser(description=__doc__)
    newest = list(RELEASES.values())[-1]
    words.add_argument("--from", dest="earlier", default=newest, help="a release or a revision")
    words.add_argument("--to", help="a release or a revision; this checkout as it is, if not given")
    words.add_argument("--rounds", type=int, default=1)
    arguments = words.parse_args()
    with tempfile.TemporaryDirectory() as home:
        earlier = _sources(arguments.earlier, Path(home) / "earlier")
        later = SOURCES if arguments.to is None else _sources(arguments.to, Path(home) / "later")
        for number in range(1, arguments.rounds + 1):
            place = Path(home) / f"round-{number}"
            place.mkdir()
            replace_one_by_one(place, [earlier, later, earlier])
            print(f"round {number}: nothing lost, repeated or reordered; all replicas equal")


def _sources(name: str, into: Path) -> Path:
    return unpack(RELEASES.get(name, name), into)


if __name__ == "__main__":
    main()
