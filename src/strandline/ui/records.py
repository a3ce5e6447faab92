"""The record browser: records of one partition from an offset, a time or the end, decoded.

This file reads with the project's own client; `decoding.py` makes something to read of the bytes.
It knows no HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.fetching import FetchSettings, Isolation
from strandline.client.start import Start
from strandline.records.record import Record
from strandline.types import Offset, TopicPartition
from strandline.ui.decoding import Decoder, Json, decoded

RECORDS_MAX: Final = 200
SEARCH_SECONDS_MAX: Final = 5.0
"""How long one request searches, or decodes; what it says then is where to go on."""

_POLL_MS: Final = 200


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to show: `limit` records of a partition, from `start` on; if wanted of one key only, or
    with a text in their values as they are shown."""

    partition: TopicPartition
    start: Start
    limit: int
    key: str | None = None
    contains: str | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED


def browse(cluster: ClusterClient, wanted: Wanted, keys: Decoder, values: Decoder) -> Json:
    """The records, and `next`: the offset to go on at. Raises `ProtocolError`."""
    consumer = Consumer(cluster, FetchSettings(isolation=wanted.isolation))
    consumer.assign({wanted.partition: wanted.start})
    first = consumer.positions[wanted.partition]
    end = consumer.end_offsets()[wanted.partition]
    is_wanted = None if wanted.key is None else keys.finder(wanted.key)
    found: list[Json] = []
    following = first
    deadline = time.monotonic() + SEARCH_SECONDS_MAX
    for record in _records(consumer, wanted.partition, end, deadline):
        if is_wanted is None or is_wanted(record.key):
            shown = _shown(record, keys, values)
            if wanted.contains is None or _has(shown["value"], wanted.contains):
                found.append(shown)
        following = Offset(record.offset + 1)
        if len(found) == wanted.limit or time.monotonic() >= deadline:
            break
    else:
        following = consumer.positions[wanted.partition]
    return {"from": first, "next": following, "end": end, "records": found}


def _has(value: Json | None, text: str) -> bool:
    """Whether upper or lower case, a value has a text in what is shown of it."""
    return value is not None and text.lower() in value["text"].lower()


def _records(
    consumer: Consumer, partition: TopicPartition, end: Offset, deadline: float
) -> Iterator[Record]:
    """Records up to where the partition ended at the beginning, or until time is up."""
    while consumer.positions[partition] < end and time.monotonic() < deadline:
        for fetched in consumer.poll(_POLL_MS):
            yield from fetched.records


def _shown(record: Record, keys: Decoder, values: Decoder) -> Json:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": keys.shown(record.key),
        "value": values.shown(record.value),
        "headers": [[name, decoded(value)] for name, value in record.headers],
    }
