"""The topic that the demo computes: its newest records count all departures, over two batches."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.lakehouse.demo import computed_topic
from strandline.lakehouse.demo.flights import events
from strandline.lakehouse.demo.production import Production
from strandline.testing import Cluster

DEPARTURES = 1000


def test_newest_records_of_the_computed_topic_count_each_departure_once(
    spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(computed_topic, "_DEPARTURES_PER_BATCH", DEPARTURES // 2 + 3)
    production = Production(cluster.bootstrap_servers, "departures", DEPARTURES)
    production.make_topic()
    production.run()
    assert production.failure is None
    found = computed_topic.compute(spark, cluster.bootstrap_servers, "departures", tmp_path)
    assert found.departures == DEPARTURES
    assert found.transactions == 2
    airlines = {event.value.split(b'"carrier":"')[1][:2] for event in events(DEPARTURES)}
    assert found.records > len(airlines), "an airline whose numbers change is written again"
    assert len(found.latest) == 3
    assert {str(row[0]).encode() for row in found.latest} <= airlines
