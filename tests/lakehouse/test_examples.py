"""The examples run as they are. Their answers are those of pandas, which sees all at once."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.demo.flights import events
from strandline.testing import Cluster

EXAMPLES = Path(__file__).parents[2] / "examples"
COUNT = 4000
OPEN_FOR, REST = pd.Timedelta("24h"), pd.Timedelta("8h")
"""What the examples wait by default: longer than any delay in the data, so that nothing is late."""

Run = Callable[[str], pd.DataFrame]


@pytest.fixture(scope="module")
def flights(cluster: Cluster) -> pd.DataFrame:
    """The first days of the year, in a topic of that name and as they are."""
    cluster.create_topic("flights", 2, 1, retention_ms=-1)
    first = list(events(COUNT))
    with ClusterClient(cluster.bootstrap_servers) as client, Producer(client) as producer:
        for event in first:
            producer.send("flights", event.value, key=event.key)
        producer.flush().raise_failure()
    rows = pd.read_json(BytesIO(b"\n".join(event.value for event in first)), lines=True)
    scheduled = pd.to_datetime(rows["time_hour"]) + pd.to_timedelta(rows["minute"], unit="min")
    return rows.assign(scheduled=scheduled.dt.tz_localize(None))


@pytest.fixture
def run(
    spark: SparkSession, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs an example as a user does; the rows that it wrote."""
    monkeypatch.syspath_prepend(str(EXAMPLES))

    def example(name: str) -> pd.DataFrame:
        main = runpy.run_path(str(EXAMPLES / name))["main"]
        arguments = [cluster.bootstrap_servers, "flights", str(tmp_path)]
        done = CliRunner().invoke(main, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return spark.read.parquet(str(tmp_path / "rows")).toPandas()

    return example


def test_every_closed_hour_is_written_once_and_right(run: Run, flights: pd.DataFrame) -> None:
    written = run("delays_by_hour.py").set_index(["hour", "origin"]).sort_index()
    by_hour = flights.groupby([flights["scheduled"].dt.floor("h").rename("hour"), "origin"])
    wanted = pd.DataFrame(
        {
            "flights": by_hour.size(),
            "cancelled": by_hour["dep_delay"].apply(lambda each: each.isna().sum()),
            "delay_minutes": by_hour["dep_delay"].mean(),
            "longest_minutes": by_hour["dep_delay"].max(),
        }
    )
    closed_before = flights["scheduled"].max() - OPEN_FOR - pd.Timedelta("1h")
    wanted = wanted[wanted.index.get_level_values("hour") <= closed_before]
    assert len(wanted) > 100
    pd.testing.assert_frame_equal(
        written, wanted, check_dtype=False, check_index_type=False, check_names=False
    )


def test_every_finished_day_of_an_aircraft_is_written_once_and_right(
    run: Run, flights: pd.DataFrame
) -> None:
    written = run("aircraft_sessions.py").sort_values(["tailnum", "first_leg"])
    flown = flights.dropna(subset=["tailnum", "dep_delay"]).sort_values(["tailnum", "scheduled"])
    new_day = flown.groupby("tailnum")["scheduled"].diff() > REST
    days = flown.groupby(["tailnum", new_day.groupby(flown["tailnum"]).cumsum()])
    wanted = pd.DataFrame(
        {
            "legs": days.size(),
            "miles": days["distance"].sum(),
            "minutes_late": days["dep_delay"].apply(lambda each: each.clip(lower=0).sum()),
            "first_leg": days["scheduled"].min(),
            "last_leg": days["scheduled"].max(),
        }
    ).reset_index(level=0)
    closed_before = flown["scheduled"].max() - OPEN_FOR
    wanted = wanted[wanted["last_leg"] + REST <= closed_before]
    assert len(wanted) > 1000
    pd.testing.assert_frame_equal(
        written.reset_index(drop=True),
        wanted.reset_index(drop=True),
        check_dtype=False,
    )
