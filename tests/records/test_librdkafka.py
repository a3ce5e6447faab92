"""Differential test against librdkafka: each reads what the other writes, codec by codec.

librdkafka has no interface to its record format, but it has a broker of its own for tests, which
keeps batches as they come. So its producer writes a batch and a bare fetch request gets the bytes;
or a bare produce request brings our bytes and its consumer, checking checksums, reads them.
"""

from __future__ import annotations

import random
import socket
from struct import calcsize, pack, unpack_from

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from strandline.records.batch import iterate_headers, verify_crc
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record, read_records
from strandline.types import NO_OFFSET

TOPIC = "t"
NOW = 1_700_000_000_000
SETTINGS = {
    Codec.NONE: "none",
    Codec.GZIP: "gzip",
    Codec.SNAPPY: "snappy",
    Codec.LZ4: "lz4",
    Codec.ZSTD: "zstd",
}


def some_records(seed: int) -> list[Record]:
    source = random.Random(seed)
    return [
        Record(
            timestamp=NOW + source.randrange(1000),
            key=source.choice([None, b"", b"key %d" % n]),
            value=source.choice([None, b"", source.randbytes(5000), b"text " * 4000]),
            headers=(("header", b"x"), ("empty", b""), ("null", None)) if n % 3 else (),
        )
        for n in range(30)
    ]


class BareClient:
    """Speaks just enough of the protocol to carry record batches as bytes."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=120)

    def close(self) -> None:
        self._socket.close()

    def produce(self, batch: bytes) -> None:
        """Produce v7 with acks=-1 to partition 0."""
        body = pack(">hhi", -1, -1, 10_000) + _ONE_PARTITION + pack(">i", len(batch)) + batch
        answer = self._call(0, 7, body)
        (error,) = unpack_from(">h", answer, 4 + len(_ONE_PARTITION))
        assert error == 0

    def fetch(self) -> bytes:
        """Fetch v4 from partition 0 at offset 0; returns its records."""
        body = pack(">iiiib", -1, 1000, 1, 1 << 26, 0) + _ONE_PARTITION
        answer = self._call(1, 4, body + pack(">qi", 0, 1 << 26))
        at = 4 + 4 + len(_ONE_PARTITION)
        error, _, _, aborted, size = unpack_from(">hqqii", answer, at)
        assert error == 0
        assert aborted <= 0
        start = at + calcsize(">hqqii")
        return answer[start : start + size]

    def _call(self, api: int, version: int, body: bytes) -> bytes:
        request = pack(">hhih", api, version, 1, -1) + body
        self._socket.sendall(pack(">i", len(request)) + request)
        (size,) = unpack_from(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            assert part, "the broker closed the connection"
            parts += part
        return bytes(parts)


_ONE_PARTITION = pack(">ih", 1, len(TOPIC)) + TOPIC.encode() + pack(">ii", 1, 0)


def broker_of(producer: Producer) -> tuple[str, int]:
    (broker,) = producer.list_topics(TOPIC, timeout=120).brokers.values()
    return broker.host, broker.port


def mock_producer(codec: Codec) -> Producer:
    return Producer(
        {
            "bootstrap.servers": "replaced.by.the.mock",
            "test.mock.num.brokers": 1,
            "compression.type": SETTINGS[codec],
            "linger.ms": 2000,
            "batch.size": 4 << 20,
            "message.max.bytes": 8 << 20,
        }
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_of_librdkafka_are_read(codec: Codec) -> None:
    records = some_records(codec)
    producer = mock_producer(codec)
    client = BareClient(*broker_of(producer))
    try:
        for record in records:
            producer.produce(
                TOPIC,
                record.value,
                record.key,
                partition=0,
                timestamp=record.timestamp,
                headers=list(record.headers),
            )
        assert producer.flush(20) == 0
        fetched = client.fetch()
    finally:
        client.close()
    read: list[Record] = []
    for position, header in iterate_headers(fetched):
        assert verify_crc(fetched, position, header.size_bytes)
        assert header.codec is codec
        read += read_records(fetched, position)
    assert [record._replace(offset=NO_OFFSET) for record in read] == records


@pytest.mark.parametrize("codec", list(Codec))
def test_librdkafka_reads_our_batches(codec: Codec) -> None:
    records = some_records(codec)
    producer = mock_producer(codec)
    host, port = broker_of(producer)
    client = BareClient(host, port)
    consumer = Consumer(
        {"bootstrap.servers": f"{host}:{port}", "group.id": "g", "check.crcs": True}
    )
    try:
        client.produce(build_batch(records, codec=codec))
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        messages = consumer.consume(len(records), timeout=120)
    finally:
        client.close()
        consumer.close()
    assert [message.error() for message in messages] == [None] * len(records)
    read = [
        Record(
            timestamp=message.timestamp()[1],
            key=message.key(),
            value=message.value(),
            headers=tuple(message.headers() or ()),  # type: ignore[arg-type]
        )
        for message in messages
    ]
    assert read == records
