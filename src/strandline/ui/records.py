"""The record browser: records of one partition from an offset, a time or the end, decoded.

This file reads with the project's own client and shows bytes as what they are: JSON, text, or
hexadecimal. It knows no HTTP.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer, Start
from strandline.client.fetching import FetchSettings, Isolation
from strandline.records.record import Record
from strandline.types import Offset, TopicPartition

RECORDS_MAX: Final = 200
SEARCH_SECONDS_MAX: Final = 5.0
"""How long one request looks for a key; what it says then is where to go on."""

_SHOWN_BYTES_MAX: Final = 16_384
_POLL_MS: Final = 200

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to show: `limit` records of a partition, from `start` on, of one key if there is one."""

    partition: TopicPartition
    start: Start
    limit: int
    key: str | None = None
    isolation: Isolation = Isolation.READ_UNCOMMITTED


def browse(cluster: ClusterClient, wanted: Wanted) -> Json:
    """The records, and `next`: the offset to go on at. Raises `ProtocolError`."""
    consumer = Consumer(cluster, FetchSettings(isolation=wanted.isolation))
    consumer.assign({wanted.partition: wanted.start})
    first = consumer.positions[wanted.partition]
    end = consumer.end_offsets()[wanted.partition]
    found: list[Json] = []
    following = first
    for record in _records(consumer, wanted.partition, end):
        if wanted.key is None or _text(record.key) == wanted.key:
            found.append(_shown(record))
        following = Offset(record.offset + 1)
        if len(found) == wanted.limit:
            break
    else:
        following = consumer.positions[wanted.partition]
    return {"from": first, "next": following, "end": end, "records": found}


def _records(consumer: Consumer, partition: TopicPartition, end: Offset) -> Iterator[Record]:
    """Records up to where the partition ended at the beginning, or until time is up."""
    deadline = time.monotonic() + SEARCH_SECONDS_MAX
    while consumer.positions[partition] < end and time.monotonic() < deadline:
        for fetched in consumer.poll(_POLL_MS):
            yield from fetched.records


def _shown(record: Record) -> Json:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": decoded(record.key),
        "value": decoded(record.value),
        "headers": [[name, decoded(value)] for name, value in record.headers],
    }


def decoded(data: bytes | None) -> Json | None:
    """Bytes as people read them: `as` is json, text or hex; long ones are cut, with their size."""
    if data is None:
        return None
    head = data[:_SHOWN_BYTES_MAX]
    cut = {"size": len(data)} if len(data) > len(head) else {}
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"as": "hex", "text": head.hex(" "), **cut}
    if text[:1] in "{[" and not cut:
        try:
            return {
                "as": "json",
                "text": json.dumps(json.loads(text), indent=2, ensure_ascii=False),
            }
        except (ValueError, RecursionError):
            pass  # it only begins like JSON
    return {"as": "text", "text": text[:_SHOWN_BYTES_MAX], **cut}


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")
