"""The audit of all partitions as a Spark job, with a task per partition.

This file knows Spark's `mapInArrow`. It must not know what is checked (`storage/verify`). A task
gets the places of one partition's replicas and reads them itself, so the directories must be there
for every executor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from strandline.storage.real_files import RealFiles
from strandline.storage.verify.directories import Inventory, Replica
from strandline.storage.verify.findings import PartitionReport
from strandline.storage.verify.partition import audit_or_say_why
from strandline.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WORK = "work string"
_REPORT = "report string"


def audit_on_spark(spark: SparkSession, inventory: Inventory) -> list[PartitionReport]:
    """Audit every partition in a task of its own; the reports in the order of the inventory."""
    work = [
        (json.dumps([*at, [asdict(each) for each in replicas]]),)
        for at, replicas in inventory.partitions.items()
    ]
    if not work:
        return []
    tasks = spark.createDataFrame(work, _WORK).repartition(len(work))
    rows = tasks.mapInArrow(_audit_batches, _REPORT).collect()
    reports = [PartitionReport.from_json(json.loads(row["report"])) for row in rows]
    return sorted(reports, key=lambda report: (report.topic, report.partition))


def _audit_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """What runs in a task. Only there Arrow is needed."""
    import pyarrow as pa

    for batch in batches:
        reports = [_audit_text(text) for text in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(reports, pa.string())], names=["report"])


def _audit_text(text: str) -> str:
    topic, partition, replicas = json.loads(text)
    at = TopicPartition(topic, partition)
    report = audit_or_say_why(RealFiles(), at, [Replica(**each) for each in replicas])
    return json.dumps(report.to_json())
