"""Reading the truncation ledger of brokers: entries, their records, and what may be produced again.

Which records of an entry count is decided here: control records never, and those of a transaction
only if its commit is in the entry, too. What began in an entry and was decided elsewhere, or never,
is left out and counted.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from strandline.client.cluster import ClusterClient
from strandline.client.consumer import Consumer
from strandline.client.fetching import FetchSettings
from strandline.client.inspection import inspect, inspect_all
from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.records.batch import iterate_headers
from strandline.records.control import parse_marker
from strandline.records.record import Record, read_records
from strandline.types import BrokerId, Offset, ProducerId, TopicPartition

Entry = dict[str, Any]
"""As `storage.ledger.Entry` has it."""

_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class Kept:
    """The records of an entry."""

    records: list[Record]
    undecided: int
    """Records of transactions whose end is not in the entry."""
    aborted: int


def entries(cluster: ClusterClient) -> list[Entry]:
    """The entries of all brokers, the oldest first."""
    found = [
        entry
        for document in inspect_all(cluster, "ledger").values()
        for entry in document["entries"]
    ]
    return sorted(found, key=lambda entry: (entry["wall_ms"], entry["id"]))


def find(cluster: ClusterClient, entry_id: str) -> Entry:
    """The entry of that id. Raises `ProtocolError` (RESOURCE_NOT_FOUND)."""
    for entry in entries(cluster):
        if entry["id"] == entry_id:
            return entry
    raise ProtocolError(
        ErrorCode.RESOURCE_NOT_FOUND, f"No broker has an entry '{entry_id}' in its ledger."
    )


def partition_of(entry: Entry) -> TopicPartition:
    """Where an entry's records were."""
    return TopicPartition(entry["topic"], entry["partition"])


def kept(cluster: ClusterClient, entry: Entry) -> Kept:
    """The records of an entry that count. Raises `ProtocolError` and `CorruptRecords`."""
    records: list[Record] = []
    waiting: dict[ProducerId, list[Record]] = {}
    aborted = 0
    data = b"".join(_pieces(cluster, entry))
    for position, header in iterate_headers(data):
        found = list(read_records(data, position))
        if header.is_control:
            ended = waiting.pop(header.producer_id, [])
            if any(m is not None and m.commits for m in map(parse_marker, found)):
                records += ended
            else:
                aborted += len(ended)
        elif header.is_transactional:
            waiting.setdefault(header.producer_id, []).extend(found)
        else:
            records += found
    undecided = sum(map(len, waiting.values()))
    return Kept(sorted(records, key=lambda record: record.offset), undecided, aborted)


def present(cluster: ClusterClient, entry: Entry) -> dict[Offset, Record]:
    """What the partition has today at the offsets of an entry."""
    at = partition_of(entry)
    consumer = Consumer(cluster, FetchSettings())
    starts = consumer.resolve({at: Start.earliest()})
    consumer.assign({at: Start.at_offset(max(entry["from_offset"], starts[at]))})
    end = min(entry["kept_to_offset"], consumer.end_offsets()[at])
    found: dict[Offset, Record] = {}
    while consumer.positions[at] < end:
        for fetched in consumer.poll(_POLL_MS):
            found.update((each.offset, each) for each in fetched.records if each.offset < end)
        if consumer.trouble is not None:
            raise consumer.trouble
    return found


def _pieces(cluster: ClusterClient, entry: Entry) -> Iterator[bytes]:
    position = 0
    while position < entry["size_bytes"]:
        broker = BrokerId(entry["broker"])
        document = inspect(cluster, broker, "ledger", id=entry["id"], position=position)
        data = b64decode(document["data"])
        if not data:
            raise ProtocolError(
                ErrorCode.RESOURCE_NOT_FOUND, f"The entry '{entry['id']}' is shorter than it says."
            )
        yield data
        position += len(data)
