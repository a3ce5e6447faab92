"""`python -m tests.faults.pipelines --times 50`: kill -9 of what the run of a table consists of, at
random moments under load; after each, the table must be proven to hold every record exactly once.

Victims are the command (Spark's driver), Spark's JVM, Python workers, brokers, and with
`--executors` the executors of a standalone Spark, in JVMs of their own below two workers. With
`--lake s3` there are these as well, and the tables are in an S3 server: the workers of that Spark,
its master, and the connections of the S3 server have their turns, and DuckDB reads the table after
each proof, and must find each offset once. Each is killed at any time, and at a random point of
each stage: while the run starts, while files are written, within a commit, within a compaction. The
run is started again if it ended; when the table has all that there was at the kill, it is proven.

At the first thing that is not as it must be, everything ends, and the directory stays. SIGTERM ends
it as well, after the kill that is under way and with the last proofs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

from pyspark.sql import SparkSession

from strandline.cli.stopping import Stop
from strandline.lakehouse.session import session
from strandline.lakehouse.verify.report import Report
from tests.faults.pipelines import proof
from tests.faults.pipelines.lake import Lake
from tests.faults.pipelines.outcome import Outcome, offsets_of, table
from tests.faults.pipelines.running import BrokerProcesses, UnderLoad
from tests.faults.pipelines.victims import Kill, plan
from tests.lakehouse.standalone import StandaloneSpark
from tests.zookeeper.server import missing


def main() -> int:
    """Returns the exit status."""
    options = _options()
    if (reason := missing()) is not None:
        print(f"Brokers in processes of their own need a ZooKeeper: {reason}", file=sys.stderr)
        return 2
    home = Path(tempfile.mkdtemp(prefix="strandline-pipelines-"))
    again = f"--times {options.times} --seed {options.seed} --mode {options.mode}"
    again += f" --format {options.format} --writer {options.writer}"
    again += " --executors" if options.executors else ""
    again += f" --lake {options.lake}" if options.lake else ""
    print(f"{again}: {home}", flush=True)
    began_s = time.monotonic()
    outcomes: list[Outcome] = []
    with (
        Stop(terminate=True) as stop,
        Lake() if options.lake else nullcontext() as lake,
        _cluster(home, lake) if lake or options.executors else nullcontext() as executors,
        UnderLoad(
            home,
            options.seed,
            BrokerProcesses,
            spark=executors,
            lake=lake,
            mode=options.mode,
            format=options.format,
            writer=options.writer,
        ) as running,
    ):
        spark = _session(home)  # it opens the lake as the environment says that there is now
        running.wait_until_held(dict.fromkeys(running.ends(), 1))
        kills = plan(random.Random(options.seed), running.victims)
        for number in range(1, options.times + 1):
            outcome = _one(spark, running, next(kills), lake)
            outcomes.append(outcome)
            minutes = (time.monotonic() - began_s) / 60
            print(f"{number}: {outcome.line()} ({minutes:.1f} min)", flush=True)
            if stop.is_set:
                break
        last = _when_all_is_quiet(spark, running, lake)
        print(f"\n{table(outcomes)}\n\n{_summary(running, last)}\nAgain: {again}", flush=True)
        spark.stop()
    return 0


def _cluster(home: Path, lake: Lake | None) -> StandaloneSpark:
    settings = "" if lake is None else lake.settings
    return StandaloneSpark(home / "spark", settings=settings, recovers=lake is not None)


def _one(spark: SparkSession, running: UnderLoad, kill: Kill, lake: Lake | None) -> Outcome:
    killed = running.strike(kill)
    ends = running.ends()
    running.wait_until_held(ends)
    seconds = time.monotonic() - killed.at_s
    acknowledged = running.load.acknowledged - killed.acknowledged
    if not acknowledged:
        raise proof.NotProven("Nothing was sent all the while.")
    report = proof.prove(spark, running.pipeline.spec, running.brokers.bootstrap, ends)
    if lake is not None:
        proof.check_by_duckdb(lake, running.pipeline.spec, ends)
    return Outcome(kill, killed, acknowledged, seconds, offsets_of(report), report.sequence)


def _when_all_is_quiet(spark: SparkSession, running: UnderLoad, lake: Lake | None) -> Report:
    """The load ends, the run ends with all of it; the last proofs."""
    running.load.end()
    ends = running.ends()
    running.wait_until_held(ends)
    running.pipeline.stop()
    spec, bootstrap = running.pipeline.spec, running.brokers.bootstrap
    proof.check_against_load(spec, running.load)
    if lake is not None:
        proof.check_by_duckdb(lake, spec, ends)
    proof.check_faults_are_found(spark, spec, bootstrap)
    return proof.prove(spark, spec, bootstrap, ends)


def _summary(running: UnderLoad, last: Report) -> str:
    places: dict[str, int] = {}
    for each in last.partitions.values():
        for place, count in each.places.items():
            places[place] = places.get(place, 0) + count
    return (
        f"{running.load.acknowledged:,} records were acknowledged, {len(running.load.bad):,} of "
        f"them unreadable. In {last.sequence:,} commits of {running.pipeline.starts} processes "
        f"they became {places}. The table was proven after each kill and at the end; read by "
        "others, it is what was sent; two faults that were planted into it were found."
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.pipelines", description=__doc__)
    parser.add_argument("--times", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--mode", choices=("append", "upsert"), default="append")
    parser.add_argument("--format", choices=("delta", "iceberg"), default="delta")
    parser.add_argument(
        "--writer",
        choices=("strandline", "spark"),
        default="strandline",
        help="spark: STRANDLINE_DELTA_JARS names the jars",
    )
    parser.add_argument("--executors", action="store_true", help="in JVMs of their own")
    parser.add_argument(
        "--lake", choices=("s3",), help="tables in an S3 server, and a cluster of Spark's"
    )
    options = parser.parse_args()
    if options.lake and (options.format, options.writer) != ("delta", "strandline"):
        parser.error("--lake is for Delta tables by our own writer")
    return options


def _session(home: Path) -> SparkSession:
    """For the proofs."""
    return session(
        "proofs",
        master="local[2]",
        memory="512m",
        java_options=f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={home}",
        log_level="OFF",
        conf={"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"},
    )


if __name__ == "__main__":
    sys.exit(main())
