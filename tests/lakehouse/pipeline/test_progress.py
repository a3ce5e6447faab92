"""How far a table is, as its status tells it: no number where offsets mean other records."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.lakehouse.pipeline.progress import progress_of
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import Frontier, TableState
from strandline.types import TopicPartition


def state_at(client: ClusterClient, topic: str, end: int) -> TableState:
    """Of a table that holds partition 0 up to that offset."""
    frontier = Frontier(0, end, 0, str(client.topic(topic).topic_id))
    return TableState(1, 1, pa.schema([]), {TopicPartition(topic, 0): frontier})


@pytest.fixture
def topic(client: ClusterClient, new_topic: Callable[..., str]) -> str:
    """A topic with three records."""
    name = new_topic(1)
    produce(client, name, 3)
    return name


def produce(client: ClusterClient, topic: str, records: int) -> None:
    with Producer(client) as producer:
        for _ in range(records):
            producer.send(topic, b"{}")


def spec_of(topic: str) -> TableSpec:
    return TableSpec(name="t", topics=(topic,), location="/nowhere")


def test_the_lag_of_a_topic_as_the_table_knows_it(client: ClusterClient, topic: str) -> None:
    progress = progress_of(client, spec_of(topic), state_at(client, topic, 2))
    assert progress.trouble is None
    assert progress.lag is not None
    assert progress.lag.records == 1


def test_a_topic_made_anew_has_no_lag(client: ClusterClient, topic: str) -> None:
    before = state_at(client, topic, 2)
    Admin(client).topics.delete([topic])
    Admin(client).topics.create(topic, partitions=1)
    client.forget([topic])
    produce(client, topic, 3)
    progress = progress_of(client, spec_of(topic), before)
    assert progress.lag is None
    assert progress.trouble is not None
    assert progress.trouble.startswith(f"Topic '{topic}' was deleted and created again")


def test_a_log_that_ends_before_the_table_has_no_lag(client: ClusterClient, topic: str) -> None:
    progress = progress_of(client, spec_of(topic), state_at(client, topic, 4))
    assert progress.lag is None
    assert progress.trouble is not None
    assert "ends at offset 3, but the table holds it up to 4" in progress.trouble
