"""What the measurements of tables share: a topic with rows, our pipeline, and Spark's own."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer, ProducerSettings
from strandline.lakehouse.pipeline.batches import RunContext
from strandline.lakehouse.pipeline.events import Event
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.pipeline.runner import Runner
from strandline.lakehouse.pipeline.running import NeverStopped
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import save_spec
from strandline.lakehouse.tables.store import open_store
from strandline.records.codec import Codec

COLUMNS: Final = {"id": "long", "name": "string", "price": "double", "at": "timestamp"}
SPARK_COLUMNS: Final = "id long, name string, price double, at timestamp"


@dataclass
class Bench:
    """One cluster of brokers, one session, and where tables go."""

    spark: SparkSession
    bootstrap: str
    home: Path
    records: int
    made: int = 0
    bytes: dict[str, int] = field(default_factory=dict)
    """Of keys and values, by topic."""

    def name(self) -> str:
        """A table's that is not there yet."""
        self.made += 1
        return f"table-{self.made}"

    def fill(self, topic: str, partitions: int, records: int) -> None:
        """Records of about 100 bytes, with keys, dealt out to the partitions in turn."""
        total = 0
        with ClusterClient(self.bootstrap) as client:
            producer = Producer(client, ProducerSettings(codec=Codec.LZ4))
            for number in range(records):
                value = json.dumps(
                    {
                        "id": number,
                        "name": f"name of {number % 1000}",
                        "price": number % 977 / 7,
                        "at": f"2026-03-01T{number % 24:02d}:00:00Z",
                    }
                ).encode()
                total += len(value) + 8
                producer.send(topic, value, key=b"%08d" % number, partition=number % partitions)
            producer.flush().raise_failure()
        self.bytes[topic] = total

    def ours(self, topic: str, **fields: object) -> None:
        """Our pipeline over what is there, into a new table (`spec`)."""
        spec = self.spec(topic, **fields)
        options = RunOptions(bootstrap=self.bootstrap, once=True)
        store = open_store(spec, create=True, spark=self.spark)
        Runner(RunContext(self.spark, spec, store, options), _silent).run(NeverStopped())

    def spec(self, topic: str, **fields: object) -> TableSpec:
        """A new table of a topic, on the disk unless `fields` of its definition say otherwise."""
        name = self.name()
        spec = TableSpec(
            name=name, topics=(topic,), location=str(self.home / name), columns=COLUMNS
        )
        spec = replace(spec, **fields)  # type: ignore[arg-type]
        save_spec(spec)
        return spec

    def spark_s(self, topic: str, *, source: str, sink: str, place: str = "") -> None:
        """A stream of Spark's own, over what is there. `place` is a directory, in Spark's words."""
        where = f"{place or self.home}/{self.name()}"
        rows = self.spark.readStream.format(source).options(
            **{
                "kafka.bootstrap.servers": self.bootstrap,
                "subscribe": topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": "1000000",
            }
        )
        written = parsed(rows.load()).writeStream.format(sink)
        query = written.option("checkpointLocation", f"{where}-checkpoint")
        query.trigger(availableNow=True).start(where).awaitTermination()


def _silent(_: Event) -> None:
    """What a run tells is not shown."""


def parsed(rows: DataFrame) -> DataFrame:
    """The columns that our tables have, made by Spark."""
    value = f.from_json(f.col("value").cast("string"), SPARK_COLUMNS).alias("value")
    places = ("topic", "partition", "offset", "timestamp")
    return rows.select(value, *places).select("value.*", *places)


def spread(seconds: Sequence[float]) -> str:
    """A median, and between what the figures were."""
    return f"{statistics.median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"
