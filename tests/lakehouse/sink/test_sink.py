"""Rows become records: what is said to the sink, the columns, and the way to the brokers."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.partitioner import partition_for_key
from strandline.client.start import Start
from strandline.errors import InvalidSetting, ProtocolError
from strandline.lakehouse.sink.columns import Columns, UnusableRows
from strandline.lakehouse.sink.delivery import NotWritten
from strandline.lakehouse.sink.format import Written, batch_writer, stream_writer
from strandline.lakehouse.sink.options import parse_options
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.testing import Cluster
from strandline.types import TopicPartition

NewTopic = Callable[..., str]
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map": MapType(StringType(), BinaryType()),
    "array": ArrayType(
        StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    ),
}


def schema(text: str) -> StructType:
    """From names and types such as "key string, headers array"."""
    fields = [each.split() for each in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in fields])


def rows(text: str, *values: tuple[object, ...]) -> pa.RecordBatch:
    """As Spark hands them over."""
    names = schema(text).names
    return pa.RecordBatch.from_pylist(
        [dict(zip(names, each, strict=True)) for each in values], to_arrow_schema(schema(text))
    )


@pytest.fixture
def read(client: ClusterClient) -> Callable[[str, int], list[list[Record]]]:
    """All records of a topic, by partition."""

    def records(topic: str, partitions: int) -> list[list[Record]]:
        consumer = Consumer(client)
        found: list[list[Record]] = [[] for _ in range(partitions)]
        consumer.assign({TopicPartition(topic, n): Start.earliest() for n in range(partitions)})
        ends = consumer.end_offsets()
        while any(consumer.positions[each] < end for each, end in ends.items()):
            for fetched in consumer.poll(1000):
                found[fetched.topic_partition.partition].extend(fetched.records)
        return found

    return records


def test_rows_become_records_with_all_that_they_hold(
    cluster: Cluster, new_topic: NewTopic, read: Callable[[str, int], list[list[Record]]]
) -> None:
    topic = new_topic(3)
    keyed = partition_for_key(b"k", 3)
    other = (keyed + 1) % 3
    ddl = "value string, key binary, headers array, partition int, more date, topic string"
    writer = batch_writer(
        {"kafka.bootstrap.servers": cluster.bootstrap_servers, "kafka.compression.type": "zstd"},
        schema(ddl),
        overwrite=False,
    )
    batches = [
        rows(
            ddl,
            ("käse", b"k", [{"key": "h", "value": None}], None, None, topic),
            (None, None, None, other, None, topic),
        ),
        rows(ddl, ("x", b"k", [], None, None, topic)),
    ]
    done = pickle.loads(pickle.dumps(writer)).write(iter(batches))
    assert done == Written(3)
    found = read(topic, 3)
    assert [(each.key, each.value, each.headers) for each in found[keyed]] == [
        (b"k", "käse".encode(), (("h", None),)),
        (b"k", b"x", ()),
    ]
    assert [(each.key, each.value) for each in found[other]] == [(None, None)]
    writer.commit([done])
    writer.abort([None])


def test_the_option_names_the_topic_of_all_rows(
    cluster: Cluster, new_topic: NewTopic, read: Callable[[str, int], list[list[Record]]]
) -> None:
    topic = new_topic()
    ddl = "topic string, value binary"
    writer = stream_writer(
        {"bootstrap.servers": cluster.bootstrap_servers, "topic": topic}, schema(ddl)
    )
    assert writer.write(iter([rows(ddl, ("other", b"v"), (None, b"w"))])) == Written(2)
    assert [each.value for each in read(topic, 1)[0]] == [b"v", b"w"]


def test_what_is_not_written_fails_the_task_with_its_reason(
    cluster: Cluster, new_topic: NewTopic
) -> None:
    topic = new_topic(max_message_bytes=1000)
    options = {"bootstrap.servers": cluster.bootstrap_servers, "topic": topic}
    writer = stream_writer(options, schema("value binary, partition int"))
    large = rows("value binary, partition int", (b"x" * 2000, 0), (b"y", 0))
    with pytest.raises(
        NotWritten, match=f"1 records for partition {topic}-0 were not written: .*m"
    ):
        writer.write(iter([large]))
    with pytest.raises(ProtocolError, match=f"There is no partition 7 of topic '{topic}'"):
        writer.write(iter([rows("value binary, partition int", (b"", 7))]))
    named = stream_writer(
        {"bootstrap.servers": options["bootstrap.servers"]}, schema("topic string, value string")
    )
    with pytest.raises(UnusableRows, match="its column topic is null"):
        named.write(iter([rows("topic string, value string", (None, "x"))]))


@pytest.mark.parametrize(
    ("ddl", "topic", "sentence"),
    [
        ("key string", "t", "no column value"),
        ("value int", "t", "value must be string or binary, not int"),
        ("value string, key bigint", "t", "key must be string or binary, not bigint"),
        ("value string", None, "Nothing says to which topic"),
        ("value string, topic binary", None, "topic must be string, not binary"),
        ("value string, partition bigint", "t", "partition must be int, not bigint"),
        ("value string, headers map", "t", "headers must be array<struct<key"),
    ],
)
def test_columns_that_cannot_be_meant_are_refused(
    ddl: str, topic: str | None, sentence: str
) -> None:
    with pytest.raises(UnusableRows, match=sentence):
        Columns.of(schema(ddl), topic)


def test_producer_settings_are_kafkas() -> None:
    servers = {"kafka.bootstrap.servers": "h:1"}
    assert parse_options(servers).producer.acks == -1
    options = parse_options(
        servers
        | {"kafka.acks": "1", "kafka.compression.type": "ZSTD", "kafka.batch.size": "99"}
        | {"kafka.linger.ms": "5", "checkpointlocation": "/x", "queryname": "q"}
    )
    producer = options.producer
    assert (producer.acks, producer.codec, producer.batch_bytes) == (1, Codec.ZSTD, 99)
    for wrong, sentence in {
        "kafka.acks": "kafka.acks is all or -1 or 1 or 0, not 'x'",
        "kafka.transactional.id": "a write is not a transaction",
        "kafka.compresion.type": "did you mean kafka.compression.type",
    }.items():
        with pytest.raises(InvalidSetting, match=sentence):
            parse_options(servers | {wrong: "x"})
    with pytest.raises(InvalidSetting, match="cannot be overwritten"):
        batch_writer(servers, schema("value string, topic string"), overwrite=True)
