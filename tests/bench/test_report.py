from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from bench.environment import Environment
from bench.report import Session, as_json, markdown, verdicts
from bench.results import Result, Results

MACHINE = Environment(
    processor="Test CPU",
    processors=4,
    memory_gib=8.0,
    kernel="6.1",
    python="3.11",
    java="openjdk 17",
    kafka="4.3.1",
    librdkafka="2.16.0",
    commit="abc1234",
    data_file_system="tmpfs (/dev/shm)",
    load_before=0.5,
)


def session_of(brokers: Mapping[str, str], *failures: str) -> Session:
    return Session(
        environment=MACHINE,
        brokers=brokers,
        rounds=2,
        warmup_rounds=1,
        quick=False,
        titles={"tiny-16x5": "One record per request"},
        failures=failures,
    )


def tiny(ours: float, theirs: float, metric: str = "requests_per_second") -> Results:
    return Results(
        [
            Result("tiny-16x5", "main", 1, {metric: ours}),
            Result("tiny-16x5", "apache", 1, {metric: theirs}),
        ]
    )


BROKERS = {"main": "strandline", "apache": "kafka"}


@pytest.mark.parametrize(
    ("metric", "ours", "word"),
    [
        ("requests_per_second", 200.0, "met"),
        ("requests_per_second", 199.0, "missed"),
        ("cpu_us_per_request", 20.0, "met"),
        ("cpu_us_per_request", 20.1, "missed"),
    ],
)
def test_a_goal_is_judged_on_the_right_side_of_its_bound(
    metric: str, ours: float, word: str
) -> None:
    found = verdicts(session_of(BROKERS), tiny(ours, 100.0, metric))

    judged = {verdict.goal.metric: verdict.word for verdict in found if verdict.comparison}
    assert judged == {metric: word}


def test_a_goal_without_its_broker_is_not_measured() -> None:
    found = verdicts(session_of({"main": "strandline"}), tiny(2.0, 1.0))

    assert {verdict.word for verdict in found} == {"not measured"}


def test_the_subject_is_never_compared_with_itself() -> None:
    found = verdicts(session_of({"main": "kafka", "apache": "kafka"}), tiny(2.0, 1.0))

    assert {verdict.other for verdict in found if verdict.goal.against == "kafka"} == {"apache"}


def test_the_page_shows_the_machine_medians_ratios_and_failures() -> None:
    results = tiny(40_000.0, 16_000.0)
    results.add(Result("tiny-16x5", "main", 2, {"requests_per_second": 44_000.0}))
    results.add(Result("tiny-16x5", "apache", 2, {"requests_per_second": 8_000.0}))

    page = markdown(session_of(BROKERS, "round 2 tiny-16x5 apache: it ended"), results)

    assert "Test CPU" in page
    assert "tmpfs (/dev/shm)" in page
    assert "- round 2 tiny-16x5 apache: it ended" in page
    assert (
        "| requests [req/s] | **42,000** (40,000 to 44,000) | **12,000** (8,000 to 16,000) "
        "| 3.5x (2.5 to 5.5) |"
    ) in page


def test_every_row_of_a_table_has_as_many_cells_as_its_head() -> None:
    page = markdown(session_of({**BROKERS, "bound": "mock"}), tiny(2.0, 1.0))

    tables = [block for block in page.split("\n\n") if block.startswith("|")]
    assert len(tables) == 2
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_the_json_report_holds_every_run() -> None:
    data = json.loads(json.dumps(as_json(session_of(BROKERS), tiny(2.0, 1.0))))

    assert data["results"][0] == {
        "workload": "tiny-16x5",
        "broker": "main",
        "round": 1,
        "metrics": {"requests_per_second": 2.0},
    }
    assert data["environment"]["kafka"] == "4.3.1"


CLUSTERS = {"main": "strandline-cluster", "apache": "kafka-cluster"}


def test_a_cluster_is_judged_by_the_goals_for_clusters() -> None:
    found = verdicts(session_of(CLUSTERS), Results())

    assert {verdict.goal.workload for verdict in found} == {
        "all-r2-16x5",
        "latency-all-r2",
        "cluster-startup",
        "txn-1-r3",
        "txn-4-r3",
        "txn-copy-r3",
    }
    single = verdicts(session_of(BROKERS), Results())
    assert not {verdict.goal.title for verdict in found} & {v.goal.title for v in single}


@pytest.mark.parametrize(("p50", "word"), [(250.0, "met"), (251.0, "missed")])
def test_a_goal_may_be_about_the_subject_under_another_workload(p50: float, word: str) -> None:
    results = Results(
        [
            Result("latency-all-r2", "main", 1, {"p50_us": p50}),
            Result("latency-one-r2", "main", 1, {"p50_us": 100.0}),
        ]
    )

    judged = [each for each in verdicts(session_of(CLUSTERS), results) if each.comparison]

    assert [verdict.word for verdict in judged] == [word]
    assert "itself, `latency-one-r2`" in markdown(session_of(CLUSTERS), results)


@pytest.mark.parametrize(("seconds", "word"), [(1.0, "met"), (1.1, "missed")])
def test_a_goal_may_be_about_a_figure_itself(seconds: float, word: str) -> None:
    results = Results([Result("cluster-startup", "main", 1, {"startup_seconds": seconds})])

    judged = [each for each in verdicts(session_of(CLUSTERS), results) if each.comparison]

    assert [verdict.word for verdict in judged] == [word]
    row = next(
        line for line in markdown(session_of(CLUSTERS), results).splitlines() if word in line
    )
    assert f"| <= 1 | {seconds:g} |" in row


def test_a_workload_that_the_subject_cannot_run_is_read_off_the_next() -> None:
    brokers = {**CLUSTERS, "three": "strandline-processes"}
    results = Results(
        [
            Result("failover", "apache", 1, {"failover_seconds": 4.0}),
            Result("failover", "three", 1, {"failover_seconds": 2.0}),
        ]
    )

    page = markdown(session_of(brokers), results)

    assert "|  | apache | three | apache / three |" in page
    assert "| longest gap of acks [s] | 4.00 | 2.00 | 2x |" in page
