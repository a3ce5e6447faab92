"""The batches that simulated producers send: their contents, and what is known of them.

Every value is unique over the whole history and says who sent it: `b"p1-17"`, followed by `:` and
padding where a batch is to be large. Some batches are such that a broker must refuse them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from random import Random
from typing import Final, Self

from strandline.client.delivery import Batch, Identity
from strandline.records.batch import HEADER_BYTES, parse_header
from strandline.records.builder import build_batch, join_batch
from strandline.records.codec import Codec
from strandline.records.record import Record
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection
from strandline.sim.history.lookups import Leadership
from strandline.sim.history.operations import Erased, Sent, StartSeen
from strandline.sim.scenarios.script import BadScript
from strandline.sim.schedule import START_US
from strandline.types import (
    NO_OFFSET,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Offset,
    TopicId,
    TopicPartition,
)

WALL_MS: Final = 1_700_000_000_000
"""The wall clock time at the time 0 of a run, in ms."""
_DAY_MS: Final = 86_400_000
_STRANGE_MS: Final = (-400 * _DAY_MS, -_DAY_MS, -3_600_000, 60_000, 30 * _DAY_MS, 4000 * _DAY_MS)
"""How far from now the timestamps of odd batches are (F-59)."""
_CODECS: Final = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)
_ZSTD_SINCE: Final = 7
_PER_CENT: Final = 100


class RecordedBatch(Batch):
    """Records for one partition that stay together, and what the history knows of them."""

    __slots__ = (
        "attempts",
        "claimed_ms",
        "codec",
        "is_answered",
        "led_by",
        "log_start",
        "newest_epoch",
        "place",
        "values",
    )

    def __init__(self, topic_partition: TopicPartition, created_ms: int) -> None:
        super().__init__(topic_partition, created_ms)
        self.values: tuple[bytes, ...] = ()
        """Unique, without padding: as the history has them. One for each record, but for a
        tombstone that there may be behind them."""
        self.codec = Codec.NONE
        self.claimed_ms: int | None = None
        """The largest timestamp in its header; None: the true one."""
        self.place = ""
        """The incarnation of the partition that it was first sent to, in the history."""
        self.attempts = 0
        self.led_by: Leadership | None = None
        """As what the broker led to which it was sent last, when it was sent."""
        self.newest_epoch = -1
        """The newest leader epoch that there was then."""
        self.log_start = 0
        """Where the partition's log began then; when the answer comes all brokers may be down."""
        self.is_answered = False
        """Whether the last answer spoke of it."""

    def split(self) -> tuple[Self, Self]:
        """See `Batch`."""
        halves = super().split()
        middle = len(halves[0].records)
        for half, values in zip(halves, (self.values[:middle], self.values[middle:]), strict=True):
            half.values = values
            half.codec, half.claimed_ms = self.codec, self.claimed_ms
            half.place, half.topic_id, half.attempts = self.place, self.topic_id, self.attempts
        return halves


class Recipe:
    """How one client's batches look."""

    def __init__(self, options: ClientOptions, random: Random, lies: Random, name: str) -> None:
        """`records=3` at most per batch, `size=20` bytes of padding at most per value,
        `large=5` per cent of the batches with `large-size=5000` bytes, `compressed=20` per cent,
        `keys=0` different keys (none: no keys), `tombstones=0` per cent of the batches end with
        one, `strange-times=2` per cent, `misdated=10` per cent with another largest timestamp in
        their header, which a broker must put right. `lies` draws those, so that all else stays."""
        self._random = random
        self._lies = lies
        self._misdated = _per_cent(options, "misdated", 10)
        self._name = name
        self._records_max = options.number("records", 3, least=1)
        self._size_max = options.number("size", 20)
        self._large = _per_cent(options, "large", 2)
        self._large_size = options.number("large-size", 5_000)
        self._compressed = _per_cent(options, "compressed", 20)
        self._keys = options.number("keys", 0)
        self._tombstones = _per_cent(options, "tombstones", 0) if self._keys else 0
        self._strange = _per_cent(options, "strange-times", 1)
        self._made = 0

    def batch(self, at: TopicPartition, now_us: int, *, produce_version: int) -> RecordedBatch:
        """A new batch of values that no producer has sent yet."""
        random = self._random
        padding = random.randint(0, self._size_max)
        if random.randrange(_PER_CENT) < self._large:
            padding = self._large_size
        timestamp = WALL_MS + (now_us - START_US) // 1000
        if random.randrange(_PER_CENT) < self._strange:
            timestamp += random.choice(_STRANGE_MS)
        codec = Codec.NONE
        if random.randrange(_PER_CENT) < self._compressed:
            codec = random.choice(_CODECS)
            if codec is Codec.ZSTD and produce_version < _ZSTD_SINCE:
                codec = Codec.GZIP
        values = tuple(self._value() for _ in range(random.randint(1, self._records_max)))
        records = tuple(
            Record(NO_OFFSET, timestamp, self._key(), _padded(value, padding)) for value in values
        )
        if self._tombstones and random.randrange(_PER_CENT) < self._tombstones:
            records += (Record(NO_OFFSET, timestamp, self._key(), None),)
        claimed_ms = None
        if self._lies.randrange(_PER_CENT) < self._misdated:
            claimed_ms = self._lies.choice((-1, 1, timestamp - 1, timestamp + 60_000))
        batch = RecordedBatch(at, now_us // 1000)
        batch.records.extend(records)
        batch.values, batch.codec, batch.claimed_ms = values, codec, claimed_ms
        return batch

    def _value(self) -> bytes:
        self._made += 1
        return f"{self._name}-{self._made}".encode()

    def _key(self) -> bytes | None:
        return b"k%d" % self._random.randrange(self._keys) if self._keys else None


@dataclass(slots=True, eq=False)
class ProducedPartition:
    """What a producer knows of one partition that it sends to."""

    writer: str
    """Under which name the history orders what is sent to this partition."""
    connection: Connection | None = None
    """Over which the last batch was sent."""
    start: StartSeen | None = None
    """Where the log began, as the last answer said."""
    written: dict[tuple[TopicId | None, Identity], int] = field(default_factory=dict)
    """The offset behind each acknowledged batch, by its topic's id, producer and number."""

    def written_before(self, batch: RecordedBatch) -> int:
        """The offset behind the batch with the number before, if that was acknowledged, or the one
        before that; 0 if none was."""
        identity = batch.identity
        if identity is None:
            return 0
        before = {
            other.base_sequence: offset
            for (topic_id, other), offset in self.written.items()
            if topic_id == batch.topic_id
            and (other.producer_id, other.epoch) == (identity.producer_id, identity.epoch)
            and other.base_sequence < identity.base_sequence
        }
        return before[max(before)] if before else 0


def encode(batch: RecordedBatch) -> bytes:
    """A batch's bytes; an identity gives it its sequence number."""
    identity = batch.identity or Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    encoded = build_batch(
        batch.records,
        codec=batch.codec,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=identity.base_sequence,
        is_transactional=identity.is_transactional,
    )
    if batch.claimed_ms is None:
        return encoded
    header = parse_header(encoded)._replace(max_timestamp=batch.claimed_ms)
    return bytes(join_batch(header, encoded[HEADER_BYTES:]))


def sends_of(
    batch: RecordedBatch, writer: str, transaction: str | None = None
) -> Iterator[Sent | Erased]:
    """What the history is told when a batch is sent for the first time."""
    for value, record in zip_longest(batch.values, batch.records):
        if value is None:
            yield Erased(batch.place, record.key)
        else:
            yield Sent(writer, batch.place, value, record.key, transaction)


def value_of(stored: bytes | None) -> bytes | None:
    """The name, in the history, of the value of a record that was read."""
    return None if stored is None else stored.partition(b":")[0]


def offsets_of(batch: RecordedBatch, base: Offset) -> list[int | None]:
    """Where the broker says that each value lies; None where it does not say."""
    return [None if base < 0 else base + place for place in range(len(batch.values))]


def _padded(value: bytes, padding: int) -> bytes:
    return value + b":" + b"x" * padding if padding else value


def _per_cent(options: ClientOptions, name: str, default: int) -> int:
    number = options.number(name, default)
    if number > _PER_CENT:
        raise BadScript(f"{name}={number} is more than 100 per cent.")
    return number
