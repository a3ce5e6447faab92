from __future__ import annotations

import pytest

from bench import run
from bench.catalogue import GOALS, quick_workloads, workloads
from bench.clusters import BROKERS
from bench.results import METRICS


def test_names_are_unique() -> None:
    names = [workload.name for workload in workloads()]

    assert len(names) == len(set(names))


def test_every_goal_names_a_metric_and_a_workload_that_exist() -> None:
    names = {workload.name for workload in workloads()} | {"memory"}

    assert {goal.metric for goal in GOALS} <= METRICS.keys()
    assert {goal.workload for goal in GOALS} <= names
    assert {goal.baseline for goal in GOALS if goal.baseline} <= names
    assert {kind for goal in GOALS for kind in (goal.against, *goal.kinds) if kind} <= {*BROKERS}


def test_every_goal_has_exactly_one_bound() -> None:
    assert all((goal.at_least is None) != (goal.at_most is None) for goal in GOALS)


def test_a_goal_against_the_mock_is_read_off_a_workload_that_the_mock_serves() -> None:
    served = {workload.name for workload in workloads() if workload.mock}

    assert {goal.workload for goal in GOALS if goal.against == "mock"} <= served


def test_all_combinations_of_the_client_workloads_are_there() -> None:
    names = {workload.name for workload in workloads()}

    assert {
        f"{verb}-{record}-{batch}-{codec}"
        for verb in ("produce", "consume")
        for record in ("100b", "1kb")
        for batch in ("1mb", "16kb")
        for codec in ("none", "lz4")
    } <= names


def test_the_command_line_chooses_brokers_and_workloads() -> None:
    options = run.parse(["--broker", "old=strandline", "--broker", "kafka", "--only", "tiny-*"])

    assert options.brokers == {"old": "strandline", "kafka": "kafka"}
    assert [workload.name for workload in options.plan.workloads] == [
        "tiny-16x5",
        "tiny-100x1",
        "tiny-1x5",
    ]
    assert (options.plan.rounds, options.plan.warmup_rounds) == (5, 2)


def test_a_quick_session_runs_what_the_goals_need() -> None:
    options = run.parse(["--quick"])

    assert {workload.name for workload in options.plan.workloads} == {
        workload.name for workload in quick_workloads() if workload.nodes == 1
    }
    assert (options.plan.rounds, options.plan.warmup_rounds) == (2, 1)


def test_a_session_of_clusters_runs_the_workloads_for_clusters() -> None:
    options = run.parse(["--cluster"])

    assert {BROKERS[kind].nodes for kind in options.brokers.values()} == {3}
    assert {workload.nodes for workload in options.plan.workloads} == {3}
    names = [workload.name for workload in options.plan.workloads]
    assert {"all-r2-16x5", "one-r2-16x5", "latency-all-r2", "cluster-startup"} <= {*names}


@pytest.mark.parametrize(
    "words",
    [
        ["--broker", "redpanda"],
        ["--broker", "kafka", "--broker", "kafka"],
        ["--only", "no-such-workload"],
        ["--set", "log.segment.bytes"],
        ["--rounds", "-1"],
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        run.parse(words)

    assert stopped.value.code == 2


def test_each_broker_may_have_a_command_of_its_own() -> None:
    brokers = ["--broker", "old=strandline", "--broker", "new=strandline"]
    command = "--strandline-command"
    commands = run.parse([*brokers, command, "old=A=1 python -m old serve"]).strandline_commands
    assert commands["old"] == ["A=1", "python", "-m", "old", "serve"]
    assert commands["new"][1:] == ("-m", "strandline.cli.main", "serve")
    commands = run.parse([*brokers, command, "new=b serve", command, "a serve"]).strandline_commands
    assert commands == {"old": ["a", "serve"], "new": ["b", "serve"]}
