"""Many tables in one process: supervised, measured, and run in one session of Spark's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.errors import RecordsLost
from strandline.lakehouse.pipeline.events import Committed, Event, Notice, Started, Stopped
from strandline.lakehouse.pipeline.lag import Lag
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.running import run_table
from strandline.lakehouse.service.live import LiveTable, State
from strandline.lakehouse.service.measuring import Measurer
from strandline.lakehouse.service.metrics import metrics_text
from strandline.lakehouse.service.restarting import Backoff
from strandline.lakehouse.service.serving import StatusServer, answer
from strandline.lakehouse.service.sharing import SharedSession
from strandline.lakehouse.service.supervising import Policy, SupervisedTable, Supervisor
from strandline.lakehouse.tables.errors import FencedWriter
from tests.lakehouse.pipeline.conftest import Stop, TableUnderTest

COMMITTED = Committed(1, 1, rows=4, late_rows=1, dead_letters=2, ranges=(), lost=(), seconds=0.5)
UP_TO_DATE = Stopped(1, 4, None)


def test_pauses_double_up_to_the_longest_and_begin_anew_after_a_commit() -> None:
    backoff = Backoff(first_s=1, most_s=5)
    pauses = [backoff.after_failure(has_committed=False) for _ in range(5)]
    assert pauses == [1, 2, 4, 5, 5]
    assert backoff.after_failure(has_committed=True) == 1
    assert backoff.after_failure(has_committed=False) == 2
    for _ in range(2_000):
        assert backoff.after_failure(has_committed=False) <= 5


def supervised(
    runs: dict[str, Callable[..., Stopped]], **policy: Any
) -> tuple[Supervisor, list[tuple[str, Event]]]:
    told: list[tuple[str, Event]] = []
    supervisor = Supervisor(
        [SupervisedTable(name, run) for name, run in runs.items()],
        {name: LiveTable(name, lambda: 1_000) for name in runs},
        lambda name, event: told.append((name, event)),
        Policy(**{"first_s": 0.001, "most_s": 0.002, **policy}),
    )
    return supervisor, told


def test_a_table_that_fails_is_begun_again_and_the_others_go_on() -> None:
    recovered, attempts = threading.Event(), 0

    def failing(tell: Callable[[Event], None], stop: Stop) -> Stopped:
        nonlocal attempts
        attempts += 1
        if attempts < 4:
            raise RecordsLost("Offsets 0 to 9 are gone.")
        tell(Started(1, 0, None))
        tell(COMMITTED)
        recovered.set()
        return UP_TO_DATE

    def steady(tell: Callable[[Event], None], stop: Stop) -> Stopped:
        tell(COMMITTED)
        assert recovered.wait(60)
        return UP_TO_DATE

    supervisor, told = supervised({"bad": failing, "good": steady})
    supervisor.start()
    supervisor.wait(Stop())
    bad, good = supervisor.facts()
    assert (bad.state, bad.restarts, bad.commits, bad.reason) == (State.STOPPED, 3, 1, None)
    assert (good.state, good.restarts, good.commits) == (State.STOPPED, 0, 1)
    said = [event.sentence for name, event in told if name == "bad" and isinstance(event, Notice)]
    assert len(said) == 3
    assert said[0].startswith("Offsets 0 to 9 are gone. Beginning again in")


def test_a_table_that_another_run_took_is_left_to_it() -> None:
    attempts = []

    def fenced(tell: Callable[[Event], None], stop: Stop) -> Stopped:
        attempts.append(1)
        raise FencedWriter("Another query fills the table.")

    supervisor, _ = supervised({"t": fenced})
    supervisor.start()
    supervisor.wait(Stop())
    [facts] = supervisor.facts()
    assert (facts.state, attempts, supervisor.lost) == (State.YIELDED, [1], [])
    assert answer("/readyz", supervisor)[0] == 503


def test_a_stop_ends_a_pause_and_is_passed_on() -> None:
    failed = threading.Event()

    def failing(tell: Callable[[Event], None], stop: Stop) -> Stopped:
        failed.set()
        raise ValueError

    def waiting(tell: Callable[[Event], None], stop: Stop) -> Stopped:
        while not stop.is_set:
            threading.Event().wait(0.01)
        return UP_TO_DATE

    supervisor, _ = supervised({"bad": failing, "good": waiting}, first_s=3_600, most_s=3_600)
    supervisor.start()
    assert failed.wait(60)
    supervisor.wait(Stop(is_set=True))
    assert [each.state for each in supervisor.facts()] == [State.STOPPED, State.STOPPED]
    assert supervisor.facts()[0].reason == "ValueError."


def test_once_tries_a_table_a_single_time() -> None:
    def failing(tell: Callable[[Event], None], stop: Stop) -> Stopped:
        raise RecordsLost("Gone.")

    supervisor, _ = supervised({"t": failing}, once=True)
    supervisor.start()
    supervisor.wait(Stop())
    assert supervisor.facts()[0].state is State.FAILED
    assert supervisor.lost == []


def test_metrics_are_those_of_each_table_and_what_is_unknown_is_left_out() -> None:
    live = LiveTable("orders", lambda: 5_000)
    live.tell(Started(1, 0, Lag(7, None, {})))
    live.tell(COMMITTED)
    live.looked_at(Lag(3, 1.5, {}), (("rows", 10, 2, 300),))
    text = metrics_text([live.facts, LiveTable("idle", lambda: 0).facts]).decode()
    samples = {
        (each.name, each.labels["table"], each.labels.get("state", each.labels.get("side"))): (
            each.value
        )
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }
    assert samples["strandline_table_state", "orders", "running"] == 1
    assert samples["strandline_table_state", "idle", "running"] == 0
    assert samples["strandline_table_lag_records", "orders", None] == 3
    assert samples["strandline_table_lag_seconds", "orders", None] == 1.5
    assert samples["strandline_table_commit_seconds_total", "orders", None] == 0.5
    assert samples["strandline_table_dead_letters_total", "orders", None] == 2
    assert samples["strandline_table_last_commit_timestamp_seconds", "orders", None] == 5
    assert samples["strandline_table_files", "orders", "rows"] == 2
    assert samples["strandline_table_bytes", "orders", "rows"] == 300
    assert ("strandline_table_lag_records", "idle", None) not in samples


def test_the_dashboard_asks_for_metrics_that_there_are() -> None:
    import re

    path = Path(__file__).parents[3] / "examples" / "grafana-tables.json"
    dashboard = json.loads(path.read_text())
    live = LiveTable("t", lambda: 0)
    live.tell(COMMITTED)
    live.looked_at(Lag(1, 1.0, {}), (("rows", 1, 1, 1),))
    known = {
        each.name
        for family in text_string_to_metric_families(metrics_text([live.facts]).decode())
        for each in family.samples
    }
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for text in asked for name in re.findall(r"strandline_\w+", text)}
    assert len(asked) >= 6
    assert named <= known


def test_health_is_served_on_loopback_and_under_its_own_name_only() -> None:
    supervisor, _ = supervised({})
    with StatusServer(supervisor, 0) as server:
        with urlopen(f"{server.url}/readyz", timeout=30) as response:
            assert json.load(response) == {"ready": True, "tables": {}}
        with pytest.raises(OSError, match="421"):
            urlopen(Request(f"{server.url}/metrics", headers={"Host": "a.example"}), timeout=30)
        with pytest.raises(OSError, match="404"):
            urlopen(f"{server.url}/else", timeout=30)


def test_tables_share_a_session_and_one_that_fails_leaves_the_others(
    spark: SparkSession, make_table: Callable[..., TableUnderTest], tmp_path: Path
) -> None:
    good = make_table(location=str(tmp_path / "good"))
    bad = make_table(location=str(tmp_path / "bad"), select="select * from nowhere")
    for table in (good, bad):
        table.produce([(None, {"n": number}) for number in range(3)])
    shared = SharedSession(lambda: spark)
    failed, pools = threading.Event(), []

    def run_of(name: str, table: TableUnderTest) -> Callable[..., Stopped]:
        def run(tell: Callable[[Event], None], stop: Stop) -> Stopped:
            options = RunOptions(bootstrap=table.bootstrap, interval_ms=100)
            part = shared.of(name)
            pools.append((name, part.session() and _pool(spark)))
            return run_table(
                table.spec,
                options,
                on_event=tell,
                stop=lambda: nullcontext(stop),
                shared=part,
            )

        return run

    live = {name: LiveTable(name, lambda: 1) for name in ("good", "bad")}
    committed = threading.Event()

    def tell(name: str, event: Event) -> None:
        if name == "good" and isinstance(event, Committed):
            committed.set()
        if name == "bad" and isinstance(event, Notice) and "Beginning again" in event.sentence:
            failed.set()

    supervisor = Supervisor(
        [
            SupervisedTable("good", run_of("good", good)),
            SupervisedTable("bad", run_of("bad", bad)),
        ],
        live,
        tell,
        Policy(first_s=3_600, most_s=3_600),
    )
    supervisor.start()
    assert committed.wait(300)
    assert failed.wait(300)
    states = [each.state for each in supervisor.facts()]
    assert states == [State.RUNNING, State.FAILED]
    assert answer("/readyz", supervisor)[0] == 503
    assert answer("/healthz", supervisor)[0] == 200
    supervisor.wait(Stop(is_set=True))
    assert sorted(pools) == [("bad", "bad"), ("good", "good")]
    assert good.rows("n") == [(0,), (1,), (2,)]
    assert good.verify().is_good
    assert "nowhere" in (supervisor.facts()[1].reason or "")
    assert not bad.store.files()

    with Measurer(
        live, [], good.bootstrap, RunOptions(bootstrap="").config.security, every_s=3_600
    ) as measurer:
        measurer.look("bad", Location.parse(bad.spec.location))
        measurer.look("good", Location.parse(good.spec.location))
    lag = live["bad"].facts.lag
    assert lag is not None
    assert lag.records == 3
    assert live["good"].facts.held[0][:3] == ("rows", 3, 1)


def _pool(spark: SparkSession) -> str | None:
    return spark.sparkContext.getLocalProperty("spark.scheduler.pool")
