"""Well-formed inputs to begin with: a fuzzer that starts from nothing finds a frame after hours."""

from __future__ import annotations

from random import Random
from typing import Any

from fuzz.node_seeds import conversations
from fuzz.targets import TARGETS
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import request_frame
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.protocol.schema import encode
from strandline.records.builder import build_batch
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.types import Offset

_AVRO = [
    (b'"string"', b"\x06abc"),
    (b'["null", {"type": "array", "items": "long"}]', b"\x02\x04\x02\x04\x00"),
    (
        b'{"type": "record", "name": "A", "fields": [{"name": "d", "type": {"type": "bytes", '
        b'"logicalType": "decimal", "precision": 4, "scale": 2}}, {"name": "n", "type": '
        b'["null", "A"]}, {"name": "m", "type": {"type": "map", "values": "boolean"}}]}',
        b"\x02\x05\x00\x02\x02k\x01\x00",
    ),
    (b'{"type": "enum", "name": "E", "symbols": ["A", "B"]}', b"\x02"),
    (b'{"type": "int", "logicalType": "date"}', b"\xd0\x0f"),
]
_APIS = [KNOWN[key] for key in sorted(KNOWN)]


def seeds_of(target: str) -> list[bytes]:
    """Inputs that the target accepts, smallest first."""
    found: list[bytes] = []
    match target:
        case "requests" | "responses":
            found = _messages(requests=target == "requests")
        case "batches":
            found = [bytes([rule]) + batch for batch in _batches() for rule in (0, 1, 2, 3, 0x80)]
        case "columns":
            found = [bytes([rule]) + batch for batch in _batches() for rule in (0, 0x0E, 0x88)]
        case "records":
            found = _batches()
        case "recovery":
            found = [bytes([kind]) + b"".join(_batches()[:2]) for kind in range(5)]
        case "checkpoints":
            found = [
                b"0\n1\ntopic 0 42\n",
                b"0\n2\n0 0\n1 10\n",
                b"version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\n",
                b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
            ]
        case "properties":
            found = [b"node.id=1\nlisteners=PLAINTEXT://:9092\nlog.dirs=/a,/b\n", b"a\\u0041=\\\nb"]
        case "acls":
            found = [
                b'{"version":1,"acls":[{"principal":"User:a","permissionType":"Allow",'
                b'"operation":"Read","host":"*"}]}',
                b"User:a;User:CN=b,O=c",
            ]
        case "sasl":
            found = [
                b"\0u\0password",
                b"n,,n=u,r=nonce\xff\xffc=biws,r=nonce,p=AAAA",
                b"n,a=u,n=u,r=nonce,x=y",
                b"n,,\x01auth=Bearer a.b.c\x01x=y\x01\x01\xff\xff\x01",
                b"salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096",
                b'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="b" c=d;',
                b"RULE:^CN=(.*?),.*$/$1/L, DEFAULT",
                bytes.fromhex("301830163014020101300030003000300b310930070603550403130161"),
            ]
        case "avro":
            found = [len(schema).to_bytes(2, "big") + schema + value for schema, value in _AVRO]
        case "mixed":
            found = [
                bytes([number]) + seed
                for number, name in enumerate(TARGETS)
                for seed in seeds_of(name)[:40]
            ]
        case "node" | "framing":
            found = _conversations(with_size=target == "framing")
            if target == "node":
                found += conversations()
    return sorted(found, key=len) or [b"\0" * 40]


def mutated(seed: bytes, random: Random) -> bytes:
    """The seed with a few bytes changed, cut, repeated or put in."""
    data = bytearray(seed)
    for _ in range(random.randrange(1, 6)):
        at = random.randrange(len(data) + 1)
        match random.randrange(6):
            case 0 | 1 if at < len(data):
                data[at] ^= 1 << random.randrange(8)
            case 2 if at < len(data):
                data[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
            case 3:
                data[at:at] = random.randbytes(random.randrange(8))
            case 4:
                del data[at : at + random.randrange(8)]
            case _:
                data[at : at + 4] = random.choice(
                    [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\x7f"]
                )
    return bytes(data)


def _messages(*, requests: bool) -> list[bytes]:
    found = []
    for index, api in enumerate(_APIS):
        for step, version in enumerate(range(api.versions.lowest, api.versions.highest + 1)):
            message = (api.request_class if requests else api.response_class)()
            found.append(bytes([index, step]) + encode(message, version))
    return found


def _batches() -> list[bytes]:
    records = [
        Record(Offset(0), 1_700_000_000_000 + i, b"k", b"value" * 20, (("h", None), ("i", b"x")))
        for i in range(3)
    ]
    return [build_batch(records, codec=codec) for codec in Codec]


def _conversations(*, with_size: bool) -> list[bytes]:
    batch = build_batch([Record(Offset(0), 1_700_000_000_000, None, b"v")])
    produce = ProduceRequest(
        acks=-1,
        timeout_ms=10,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[PartitionProduceData(index=0, records=memoryview(batch))],
            )
        ],
    )
    fetch = FetchRequest(
        max_wait_ms=100,
        min_bytes=1,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition_max_bytes=1000)])],
    )
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    frames = [
        _frame(ApiKey.METADATA, 9, metadata),
        _frame(ApiKey.FETCH, 11, fetch),
        _frame(ApiKey.PRODUCE, 9, produce),
        _frame(ApiKey.PRODUCE, 9, produce),
    ]
    frames += [_frame(api.key, api.versions.highest, api.request_class()) for api in _APIS]
    if with_size:
        return frames
    together = b"".join(bytes([len(f) - 4, 0]) + f[4:] for f in frames[:4])
    alone = [bytes([len(f) - 4, 0]) + f[4:] for f in frames if len(f) < 260]
    return [*alone, together, *[together + one for one in alone]]


def _frame(key: ApiKey, version: int, message: object) -> bytes:
    chunks = request_frame(KNOWN[key], version, 1, "fuzz", message)
    pieces: list[Any] = chunks
    return b"".join(pieces)
