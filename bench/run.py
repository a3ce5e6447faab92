"""`python -m bench.run`: the session. Starts the brokers, runs the rounds, writes the report.

All brokers stay up for the whole session (a JVM needs its warm-up to last) and idle while another
one is measured. A run that fails is named in the report and in the exit status.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from bench import catalogue, environment, native, report
from bench.brokers import COMMON_SETTINGS, Broker, BrokerError, Launch, java_command
from bench.clusters import BROKERS
from bench.kafka_jars import KAFKA_VERSION, JarsError, kafka_jars, zookeeper_jars
from bench.rounds import Plan, Runner
from bench.secure import Security
from bench.workloads import FULL, QUICK, Setup

SINGLE_KINDS = ("strandline", "kafka", "mock")
CLUSTER_KINDS = ("strandline-cluster", "strandline-processes", "kafka-cluster")


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    plan: Plan
    brokers: Mapping[str, str]
    """Label to kind; the first is the subject of every ratio."""
    quick: bool
    cache: Path
    output: Path
    kafka_version: str
    strandline_commands: Mapping[str, Sequence[str]]
    """By label, for every broker."""
    settings: Mapping[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 when every run gave a figure, 1 when one failed, 2 when the
    session could not begin."""
    try:
        return _session(parse(arguments))
    except (native.BuildError, JarsError, BrokerError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


def parse(arguments: Sequence[str] | None) -> Options:
    """The command line. Ends the program when it makes no sense, as argparse does."""
    parser = _parser()
    given = parser.parse_args(arguments)
    brokers: dict[str, str] = {}
    for text in given.broker or (CLUSTER_KINDS if given.cluster else SINGLE_KINDS):
        label, _, kind = text.rpartition("=")
        if kind not in BROKERS:
            parser.error(f"{kind} is no kind of broker; there are {', '.join(BROKERS)}")
        if (label or kind) in brokers:
            parser.error(f"two brokers are called {label or kind}: write LABEL=KIND")
        brokers[label or kind] = kind
    sizes = {BROKERS[kind].nodes for kind in brokers.values()}
    chosen = catalogue.quick_workloads() if given.quick else catalogue.workloads()
    if given.only:
        chosen = tuple(
            workload
            for workload in catalogue.workloads()
            if any(fnmatch(workload.name, pattern) for pattern in given.only)
        )
    chosen = tuple(workload for workload in chosen if workload.nodes in sizes)
    if not chosen:
        parser.error("no workload has such a name; --list shows them")
    if given.list:
        for workload in catalogue.workloads():
            print(f"{workload.name:24s} {workload.title}")
        parser.exit()
    rounds = given.rounds or (2 if given.quick else 5)
    warmup_rounds = given.warmup_rounds
    if warmup_rounds is None:
        warmup_rounds = 1 if given.quick else 2
    return Options(
        plan=Plan(chosen, rounds, warmup_rounds, given.data_dir),
        brokers=brokers,
        quick=given.quick,
        cache=given.cache_dir,
        output=given.output,
        kafka_version=given.kafka_version,
        strandline_commands=_commands(given.strandline_command, brokers),
        settings=dict(pair.split("=", 1) for pair in given.set),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__.split("\n")[0])
    add = parser.add_argument
    add(
        "--broker", action="append", metavar="[LABEL=]KIND", help="repeat; the first is the subject"
    )
    add(
        "--cluster",
        action="store_true",
        help=f"clusters of three brokers: {', '.join(CLUSTER_KINDS)}",
    )
    add("--only", action="append", metavar="PATTERN", help="workloads by name; repeat")
    add("--list", action="store_true", help="list the workloads and stop")
    add("--quick", action="store_true", help="short runs of the goals' workloads, 2 rounds")
    add("--rounds", type=_count, default=0, help="counted rounds (default: 5, quick: 2)")
    add("--warmup-rounds", type=_count, help="rounds before them (default: 2, quick: 1)")
    add("--data-dir", type=Path, default=Path("/dev/shm"), help="brokers' data (default: /dev/shm)")
    add("--cache-dir", type=Path, default=native.default_cache(), help="jars and compiled clients")
    add("--output", type=Path, default=Path("bench-report"), help="report, without its suffix")
    add("--kafka-version", default=KAFKA_VERSION)
    add(
        "--strandline-command",
        action="append",
        default=[],
        metavar="[LABEL=]COMMAND",
        help="another build, of one broker or of all; repeat",
    )
    add("--set", action="append", default=[], type=_pair, help="NAME=VALUE for all brokers")
    return parser


def _commands(given: Sequence[str], labels: Iterable[str]) -> dict[str, Sequence[str]]:
    """How each broker is started: as is said of it, of all, or by this interpreter."""
    commands: dict[str, Sequence[str]] = dict.fromkeys(
        labels, (sys.executable, "-m", "strandline.cli.main", "serve")
    )
    own: dict[str, Sequence[str]] = {}
    for text in given:
        label, equals, command = text.partition("=")
        if equals and label in commands:
            own[label] = shlex.split(command)
        else:
            commands = dict.fromkeys(commands, shlex.split(text))
    return {**commands, **own}


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a number of rounds")
    return int(text)


def _pair(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=VALUE")
    return text


def _session(options: Options) -> int:
    tools = native.build(options.cache)
    kinds = set(options.brokers.values())
    with_kafka = not kinds.isdisjoint({"kafka", "kafka-cluster"})
    jars = kafka_jars(options.cache, options.kafka_version) if with_kafka else None
    zookeeper = zookeeper_jars(options.cache) if "strandline-processes" in kinds else None
    settings = {**COMMON_SETTINGS, **options.settings}
    machine = environment.describe(
        options.plan.data_directory, kafka_jars=jars, java=java_command()
    )
    with ExitStack() as stack:
        root = Path(tempfile.mkdtemp(prefix="strandline-bench-", dir=options.plan.data_directory))
        stack.callback(shutil.rmtree, root, ignore_errors=True)

        is_secure = any(workload.secure for workload in options.plan.workloads)
        security = Security.made_in(root) if is_secure else None

        def prepared(
            label: str, kind: str, directory: Path, security: Security | None = None
        ) -> Broker:
            command = options.strandline_commands[label]
            launch = Launch(command, jars, tools.rdperf, zookeeper, settings, security)
            broker = BROKERS[kind](label, directory, launch)
            stack.callback(broker.stop)
            broker.prepare()
            return broker

        def fresh(label: str) -> Broker:
            directory = Path(tempfile.mkdtemp(prefix="fresh-", dir=root)) / "broker"
            return prepared(label, options.brokers[label], directory)

        brokers = {
            label: prepared(label, kind, root / label, security)
            for label, kind in options.brokers.items()
        }
        for broker in brokers.values():
            broker.start()
        effort = QUICK if options.quick else FULL
        runner = Runner(options.plan, brokers, Setup(tools, effort, fresh, security))
        try:
            runner.run()
        except KeyboardInterrupt:
            runner.failures.append("the session was interrupted: its last rounds are missing")
    _write(options, machine, runner)
    return 1 if runner.failures else 0


def _write(options: Options, machine: environment.Environment, runner: Runner) -> None:
    titles = {workload.name: workload.title for workload in options.plan.workloads}
    titles["memory"] = "Most resident memory seen after a workload of the round"
    session = report.Session(
        environment=machine,
        brokers=options.brokers,
        rounds=options.plan.rounds,
        warmup_rounds=options.plan.warmup_rounds,
        quick=options.quick,
        titles=titles,
        failures=tuple(runner.failures),
    )
    page = options.output.with_suffix(".md")
    page.write_text(report.markdown(session, runner.results))
    data = report.as_json(session, runner.results)
    options.output.with_suffix(".json").write_text(json.dumps(data, indent=1) + "\n")
    print(f"report: {page}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
