"""`python -m tests.faults.pipelines --times 50`: kill -9 of a pipeline's driver, JVM, workers and
brokers at random moments under load; after each, the table must be proven to hold every record
exactly once. The seed decides what is killed; when, is the machine's affair as well.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.session import session
from strandline.lakehouse.tables.store import open_store
from strandline.lakehouse.verify.job import verify
from tests.faults.pipelines.running import UnderLoad


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.pipelines", description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--mode", choices=("append", "upsert"), default="append")
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="strandline-pipelines-"))
    print(f"seed {options.seed}, {options.mode}, {options.format}: {home}", flush=True)
    chance = random.Random(options.seed)
    spark = session(
        "proofs",
        master="local[2]",
        memory="512m",
        log_level="OFF",
        conf={"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"},
    )
    killed: dict[str, int] = {}
    began = time.monotonic()
    with UnderLoad(home, options.seed, mode=options.mode, format=options.format) as running:
        settings = RunOptions(bootstrap=running.cluster.bootstrap_servers)
        for time_of in range(1, options.times + 1):
            running.pipeline.wait_for_commits(chance.randint(1, 3))
            fault = chance.choice(sorted(running.faults))
            running.at_a_random_moment(fault)
            running.pipeline.wait_for_commits(1)
            report = verify(
                spark,
                open_store(running.pipeline.spec),
                settings.read_settings(running.pipeline.spec),
            )
            killed[fault] = killed.get(fault, 0) + 1
            held = sum(each.end - each.start for each in report.partitions.values())
            print(
                f"{time_of}: {fault} killed; {held:,} offsets in {report.sequence} commits: "
                f"{report.sentences()[-1]} ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
            if not report.is_good:
                print(report)
                return 1
        running.pipeline.stop()
    spark.stop()
    print(f"{options.times} kills, each time exactly once: {killed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
