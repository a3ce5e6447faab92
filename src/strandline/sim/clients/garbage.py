"""A client that sends invalid bytes (F-72), which must end in an error or a closed connection.

`client garbage x1 every=500ms topic=t lies=yes`

Broken frames, versions that do not exist, impossible sizes, batches that lie about what is in
them. A broker must answer with an error or hang up, must not log a traceback, and must not change:
what got into a log would be read as a value that no client has sent.

With `lies=yes`, which is the default, it sends every broker a batch of `lies.py` with each piece of
garbage: good header, right checksum, and records that no reader can read, or a transaction. If one
is taken, the readers of the partition are stuck (I-57, I-35). Which one, a generator of its own
says, so that seeds send the same garbage as before there were lies.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import ClassVar, Final

from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import request_frame
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.records.batch import HEADER_BYTES, parse_header
from strandline.records.builder import build_batch, join_batch
from strandline.records.record import Record
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.lies import LIES
from strandline.sim.clients.tries import Try, TryingClient
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import NO_OFFSET, BrokerId

_HALF_FRAME_US: Final = 500_000
_SIZE_BYTES: Final = 4
_CRC_AT: Final = 17
_BY_NAME: Final = 12
_FLAGS_BYTES: Final = 3
"""Two flags and no tagged fields, at the end of a Metadata request."""
_SIZES: Final = (0x7FFF_FFFF, -1, -0x8000_0000, 104_857_601)

Mischief = Callable[[Random, str], bytes]


class GarbageClient(TryingClient):
    """See the module."""

    kind: ClassVar[str] = "garbage"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options, every="500ms")
        self._topic = options.text("topic", "t")
        self.repertoire = list(MISCHIEF)
        """The bytes to send, drawn each time."""
        self.lies = list(LIES) if options.flag("lies", default=True) else []
        """Which lies it tells besides."""
        self._liar = world.streams(f"lies of {spec.name}")

    def act(self) -> None:
        """See `TryingClient`."""
        what = self.random.choice(self.repertoire)
        data = MISCHIEF[what](self.random, self._topic)
        brokers = self.world.options.brokers
        self._send(what, data, BrokerId(self.random.randrange(brokers) + 1))
        if self.lies:
            lie = self._liar.choice(self.lies)
            data = _produce(LIES[lie](self._liar), self._topic)
            # Only the leader looks at it.
            for number in range(brokers):
                self._send(lie, data, BrokerId(number + 1))

    def _send(self, what: str, data: bytes, target: BrokerId) -> None:
        attempt = Try(self, what, data)
        if what == "half a frame":
            self.begin(attempt, target, patience_us=_HALF_FRAME_US, how="given up")
        else:
            self.begin(attempt, target)


def _framed(body: bytes) -> bytes:
    return len(body).to_bytes(_SIZE_BYTES, "big") + body


def _request(key: ApiKey, message: object, version: int) -> bytes:
    chunks = request_frame(KNOWN[key], version, 1, "vandal", message)
    return b"".join(chunks)  # type: ignore[arg-type]  # clients send no ranges of files


def _metadata(topic: str) -> bytes:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    return _request(ApiKey.METADATA, request, KNOWN[ApiKey.METADATA].versions.highest)


def _random_bytes(random: Random, topic: str) -> bytes:
    del topic
    return _framed(random.randbytes(random.randint(1, 200)))


def _unknown_api(random: Random, topic: str) -> bytes:
    key = random.choice((999, 4, 7, -1, 0x7FFF))
    return _framed(key.to_bytes(2, "big", signed=True) + _metadata(topic)[_SIZE_BYTES + 2 :])


def _wrong_version(random: Random, topic: str) -> bytes:
    frame = _metadata(topic)[_SIZE_BYTES:]
    key = random.choice((ApiKey.METADATA, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.API_VERSIONS))
    version = random.choice((99, -1, 0x7FFF))
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big", signed=True)
    return _framed(head + frame[4:])


def _truncated(random: Random, topic: str) -> bytes:
    body = _metadata(topic)[_SIZE_BYTES:]
    return _framed(body[: random.randrange(len(body))])


def _trailing(random: Random, topic: str) -> bytes:
    return _framed(_metadata(topic)[_SIZE_BYTES:] + random.randbytes(random.randint(1, 20)))


def _flipped(random: Random, topic: str) -> bytes:
    """A request with one byte changed behind its header, but for the flag that makes topics."""
    body = bytearray(_metadata(topic)[_SIZE_BYTES:])
    body[random.randrange(8, len(body) - _FLAGS_BYTES)] ^= 1 << random.randrange(8)
    return _framed(bytes(body))


def _huge_size(random: Random, topic: str) -> bytes:
    size = random.choice(_SIZES)
    return size.to_bytes(_SIZE_BYTES, "big", signed=True) + _metadata(topic)[_SIZE_BYTES:]


def _half_frame(random: Random, topic: str) -> bytes:
    frame = _metadata(topic)
    return frame[: random.randrange(1, len(frame))]


def _long_varint(random: Random, topic: str) -> bytes:
    """The length of a compact array that takes more bytes than any number does."""
    del topic
    version = KNOWN[ApiKey.METADATA].versions.highest
    head = b"".join(
        (int(ApiKey.METADATA).to_bytes(2, "big"), version.to_bytes(2, "big"), bytes(4), b"\xff\xff")
    )
    return _framed(head + b"\0" + b"\xff" * random.randint(5, 20) + b"\x7f")


def _odd_fetch(random: Random, topic: str) -> bytes:
    """Numbers that no reader has."""
    numbers = (-1, -0x8000_0000, 0x7FFF_FFFF, 0)
    partition = FetchPartition(
        partition=random.choice(numbers),
        fetch_offset=random.choice((-1, -2, 2**63 - 1, -(2**63))),
        partition_max_bytes=random.choice(numbers),
    )
    request = FetchRequest(
        max_wait_ms=random.choice((-1, 0)),
        min_bytes=random.choice(numbers),
        max_bytes=random.choice(numbers),
        session_id=random.choice((0, 12345)),
        session_epoch=random.choice((-1, 5, -7)),
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    return _request(ApiKey.FETCH, request, _BY_NAME)


def _produce(batch: bytes, topic: str) -> bytes:
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return _request(ApiKey.PRODUCE, request, _BY_NAME)


def _batch() -> bytes:
    return build_batch([Record(NO_OFFSET, 1_700_000_000_000, None, b"garbage")])


def _wrong_crc(random: Random, topic: str) -> bytes:
    batch = bytearray(_batch())
    batch[_CRC_AT + random.randrange(4)] ^= 1 << random.randrange(8)
    return _produce(bytes(batch), topic)


def _wrong_count(random: Random, topic: str) -> bytes:
    """A batch whose number of records does not fit its offsets."""
    header = parse_header(_batch())._replace(
        record_count=random.choice((0, -1, 2, 0x7FFF_FFFF, -0x8000_0000)),
        last_offset_delta=random.choice((0, -1, 0x7FFF_FFFF, -0x8000_0000)),
    )
    return _produce(bytes(join_batch(header, _batch()[HEADER_BYTES:])), topic)


def _wrong_length(random: Random, topic: str) -> bytes:
    """A batch whose length points far behind it, or into it."""
    batch = bytearray(_batch())
    length = random.choice((0, 10, HEADER_BYTES - 13, len(batch), 0x7FFF_FFFF, 0xFFFF_FFFF))
    batch[8:12] = length.to_bytes(4, "big")
    return _produce(bytes(batch), topic)


MISCHIEF: Final[dict[str, Mischief]] = {
    "random bytes": _random_bytes,
    "unknown API": _unknown_api,
    "wrong version": _wrong_version,
    "truncated request": _truncated,
    "trailing bytes": _trailing,
    "flipped bit": _flipped,
    "impossible size": _huge_size,
    "half a frame": _half_frame,
    "long varint": _long_varint,
    "odd fetch": _odd_fetch,
    "wrong checksum": _wrong_crc,
    "wrong count": _wrong_count,
    "wrong length": _wrong_length,
}
