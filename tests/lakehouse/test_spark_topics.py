"""Topics through Spark itself: few tests, each of which goes far. What needs no Spark is tested in
`source` and `sink`.

Where Spark's own connector for Kafka is there (`check` fetches it), it reads and writes the same
topics: its rows must be ours.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from strandline.client.admin import Admin
from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from tests.lakehouse.conftest import KAFKA_CONNECTOR_JARS

NewTopic = Callable[..., str]
FORMATS = [
    "strandline",
    pytest.param(
        "kafka",
        marks=pytest.mark.skipif(
            not KAFKA_CONNECTOR_JARS,
            reason="STRANDLINE_SPARK_KAFKA_JARS does not name the jars of Spark's connector",
        ),
    ),
]


def produce(client: ClusterClient, topic: str, *numbers: int) -> None:
    """Records with a number in everything that they have."""
    with Producer(client) as producer:
        for n in numbers:
            headers = [("n", b"%d" % n), ("none", None)] if n % 3 == 0 else []
            key = None if n % 5 == 0 else b"k%d" % (n % 7)
            value = None if n % 11 == 0 else b"v%d" % n
            producer.send(topic, value, key=key, headers=headers, timestamp=1_700_000_000_000 + n)
        producer.flush().raise_failure()


def load(spark: SparkSession, cluster: Cluster, form: str, **options: object) -> DataFrame:
    loaded: DataFrame = _configured(spark.read, cluster, form, options).load()
    return loaded


def _configured(reader: Any, cluster: Cluster, form: str, options: dict[str, object]) -> Any:
    reader = reader.format(form).option("kafka.bootstrap.servers", cluster.bootstrap_servers)
    return reader.options(**options)


def run(
    spark: SparkSession, cluster: Cluster, form: str, target: str, place: Path, **options: object
) -> StreamingQuery:
    """A stream from topics to a topic, until it has read what there is."""
    rows = _configured(spark.readStream, cluster, form, options).load()
    rows = rows.selectExpr("key", "value", "headers")
    query: StreamingQuery = (
        rows.writeStream.format(form)
        .option("kafka.bootstrap.servers", cluster.bootstrap_servers)
        .option("topic", target)
        .option("checkpointLocation", str(place))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


@pytest.mark.skipif(not KAFKA_CONNECTOR_JARS, reason="Spark's connector for Kafka is not there")
def test_rows_are_those_of_sparks_own_connector(
    spark: SparkSession, cluster: Cluster, client: ClusterClient, new_topic: NewTopic
) -> None:
    topic = new_topic(3, retention_ms=-1)  # the records are years old
    produce(client, topic, *range(300))
    options = {
        "subscribe": topic,
        "includeHeaders": True,
        "minPartitions": 7,
        "startingOffsets": json.dumps({topic: {"0": 5, "1": -2, "2": 9}}),
        "endingTimestamp": 1_700_000_000_250,
    }
    ours, theirs = (load(spark, cluster, form, **options) for form in ("strandline", "kafka"))
    assert ours.schema == theirs.schema
    count = ours.count()
    assert 150 < count <= 250
    assert theirs.count() == count
    assert ours.exceptAll(theirs).isEmpty()
    assert theirs.exceptAll(ours).isEmpty()


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_from_topic_to_topic_survives_a_restart_and_writes_nothing_twice(
    form: str,
    spark: SparkSession,
    cluster: Cluster,
    client: ClusterClient,
    new_topic: NewTopic,
    tmp_path: Path,
) -> None:
    source, target = (new_topic(2, retention_ms=-1) for _ in range(2))
    produce(client, source, *range(100))
    options = {"subscribe": source, "includeHeaders": True, "maxOffsetsPerTrigger": 60}
    options["startingOffsets"] = "earliest"
    first = run(spark, cluster, form, target, tmp_path, **options)
    sizes = [each["numInputRows"] for each in first.recentProgress]
    assert sum(sizes) == 100
    assert max(sizes) <= 62
    produce(client, source, *range(100, 130))
    second = run(spark, cluster, form, target, tmp_path, **options)
    assert sum(each["numInputRows"] for each in second.recentProgress) == 30
    last = second.lastProgress
    assert last is not None
    progress = json.loads(last["sources"][0]["endOffset"])
    assert progress == json.loads(last["sources"][0]["latestOffset"])
    written = load(spark, cluster, form, subscribe=target, includeHeaders=True)
    wanted = load(spark, cluster, form, subscribe=source, includeHeaders=True)
    columns = ["key", "value", "headers"]
    assert written.count() == 130
    assert wanted.select(columns).exceptAll(written.select(columns)).isEmpty()


def test_a_replayed_batch_reads_the_same_records(
    spark: SparkSession,
    cluster: Cluster,
    client: ClusterClient,
    new_topic: NewTopic,
    tmp_path: Path,
) -> None:
    """Spark takes the ends from its log, whatever has come in the meantime."""
    source, target = (new_topic(retention_ms=-1) for _ in range(2))
    produce(client, source, *range(40))
    options = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": True}
    options["minOffsetsPerTrigger"] = 1000  # Trigger.AvailableNow waits for nothing
    run(spark, cluster, "strandline", target, tmp_path, **options)
    (committed,) = (tmp_path / "commits").glob("0")
    committed.unlink()
    shutil.rmtree(tmp_path / "commits")
    produce(client, source, *range(40, 50))
    again = run(spark, cluster, "strandline", target, tmp_path, **options)
    assert [each["numInputRows"] for each in again.recentProgress] == [40, 10]


def test_losses_and_mistakes_stop_a_query_with_their_sentence(
    spark: SparkSession,
    cluster: Cluster,
    client: ClusterClient,
    new_topic: NewTopic,
    tmp_path: Path,
) -> None:
    source, target = (new_topic(retention_ms=-1) for _ in range(2))
    options = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": True}
    produce(client, source, *range(10))
    run(spark, cluster, "strandline", target, tmp_path, **options)
    produce(client, source, *range(20))
    Admin(client).topics.delete_records({TopicPartition(source, 0): Offset(15)})
    with pytest.raises(
        StreamingQueryException, match="begins at offset 15: the records from 10 on"
    ):
        run(spark, cluster, "strandline", target, tmp_path, **options)
    forgiving = run(spark, cluster, "strandline", target, tmp_path, failOnDataLoss=False, **options)
    assert forgiving.lastProgress is not None
    assert forgiving.lastProgress["numInputRows"] == 15
    with pytest.raises(AnalysisException, match="did you mean subscribe"):
        load(spark, cluster, "strandline", subscribes=source)
    with pytest.raises(Exception, match="There is no topic 'never'"):
        load(spark, cluster, "strandline", subscribe="never").count()
    numbers = spark.range(1).selectExpr("id as value")
    with pytest.raises(AnalysisException, match="value must be string or binary, not bigint"):
        numbers.write.format("strandline").option(
            "kafka.bootstrap.servers", cluster.bootstrap_servers
        ).option("topic", target).mode("append").save()
