"""The records of one task on their way to their topics.

Each task has a producer of its own: a retry of a request is recognised by the brokers, so that the
producer's own retries make no duplicates. A task that Spark runs again has another producer, and
writes again what the one before had written: at least once, as with Spark's own sink.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from strandline.client.cluster import ClusterClient
from strandline.client.delivery import FlushResult
from strandline.client.producer import Producer
from strandline.errors import StrandlineError
from strandline.lakehouse.sink.columns import Columns
from strandline.lakehouse.sink.options import SinkOptions


class NotWritten(StrandlineError):
    """Records were not, or not certainly, written. The sentence says how many, where and why."""


def deliver(options: SinkOptions, columns: Columns, batches: Iterable[pa.RecordBatch]) -> int:
    """Write all rows and wait until the brokers have them; the number of records.

    Raises `NotWritten`, `UnusableRows`, and `ProtocolError` for a topic or partition that is not
    there. Whatever came before the failure may have been written.
    """
    count = 0
    with ClusterClient(options.bootstrap, options.client) as cluster:
        producer = Producer(cluster, options.producer)
        for batch in batches:
            for topic, key, value, partition, headers in columns.records(batch):
                producer.send(topic, value, key=key, headers=headers, partition=partition)
            # A task may have any number of rows: failures are told before the next of them.
            raise_failures(producer.flush())
            count += batch.num_rows
    return count


def raise_failures(result: FlushResult) -> None:
    """Raise `NotWritten` if there were any."""
    if not result.failed:
        return
    failed = result.failed[0]
    others = sum(each.count for each in result.failed[1:])
    sentences = [
        f"{failed.count} records for partition {failed.topic_partition} were not written: "
        f"{failed.error.message}"
    ]
    if failed.maybe_written:
        sentences.append("They may be in the log all the same.")
    if others:
        sentences.append(f"So were {others} more.")
    raise NotWritten(" ".join(sentences)) from failed.error
