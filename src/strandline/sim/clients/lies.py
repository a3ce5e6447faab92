"""Batches with a good header and a right checksum that a broker must not take (F-72).

Each is one thing that a client can lie about: what is behind the header, how many records there
are, which offsets they have, how they are compressed, and that they belong to a transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import Final

from strandline.records.batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    parse_header,
)
from strandline.records.builder import build_batch, join_batch
from strandline.records.codec import Codec
from strandline.records.compression import compress
from strandline.records.record import Record
from strandline.types import NO_OFFSET

Lie = Callable[[Random], bytes]

_TIME_MS: Final = 1_700_000_000_000
_BOMB_BYTES: Final = 40 * 1024 * 1024
_OFFSET_DELTA_AT: Final = 3
"""Of a record: behind its length, its attributes and its timestamp, one byte each."""
_CODECS: Final = tuple(Codec)
_PACKED: Final = tuple(codec for codec in Codec if codec is not Codec.NONE)


def _batch(count: int = 3) -> bytes:
    return build_batch([Record(NO_OFFSET, _TIME_MS, b"k", b"a lie")] * count)


def _packed(batch: bytes, payload: bytes, codec: Codec) -> bytes:
    """The batch with other records behind its header."""
    header = parse_header(batch)._replace(attributes=int(codec))
    return bytes(join_batch(header, compress(codec, payload)))


def _nonsense(random: Random) -> bytes:
    payload = random.choice((b"\xff" * 12, b"\x7f\0", random.randbytes(80), b"", bytes(80)))
    return _packed(_batch(), payload, random.choice(_CODECS))


def _another_count(random: Random) -> bytes:
    """Header and offsets agree, and there are more records, or fewer."""
    count = random.choice((1, 2, 4, 5, 0x7FFF_FFFF))
    batch = _batch()
    header = parse_header(batch)._replace(record_count=count, last_offset_delta=count - 1)
    return bytes(join_batch(header, batch[HEADER_BYTES:]))


def _other_offsets(random: Random) -> bytes:
    """The first record has another offset than the first of its batch."""
    batch = _batch()
    payload = bytearray(batch[HEADER_BYTES:])
    payload[_OFFSET_DELTA_AT] = random.choice((1, 2, 4, 6, 8))
    return _packed(batch, bytes(payload), random.choice(_CODECS))


def _trailing_bytes(random: Random) -> bytes:
    batch = _batch()
    payload = batch[HEADER_BYTES:] + random.choice((b"\0", batch[HEADER_BYTES:]))
    return _packed(batch, payload, random.choice(_CODECS))


def _cut_off(random: Random) -> bytes:
    batch = _batch()
    payload = batch[HEADER_BYTES : len(batch) - random.randint(1, 20)]
    return _packed(batch, payload, random.choice(_CODECS))


def _compressed_noise(random: Random) -> bytes:
    header = parse_header(_batch())._replace(attributes=int(random.choice(_PACKED)))
    return bytes(join_batch(header, random.randbytes(random.randint(1, 90))))


@lru_cache(maxsize=1)
def _bomb() -> bytes:
    batch = _batch(1)
    return _packed(batch, bytes(_BOMB_BYTES), Codec.ZSTD)


def _compressed_bomb(random: Random) -> bytes:
    """A few kilobytes that claim to be one record, and are megabytes of zeros."""
    del random
    return _bomb()


def _transaction(random: Random) -> bytes:
    """A batch of a transaction that no coordinator knows, or its end."""
    producer_id, epoch, sequence = random.choice(((-1, -1, -1), (900_000, 0, 0)))
    batch = _batch()
    header = parse_header(batch)._replace(
        attributes=random.choice((TRANSACTIONAL_BIT, TRANSACTIONAL_BIT | CONTROL_BIT)),
        producer_id=producer_id,  # type: ignore[arg-type]
        producer_epoch=epoch,  # type: ignore[arg-type]
        base_sequence=sequence,
    )
    return bytes(join_batch(header, batch[HEADER_BYTES:]))


def _control(random: Random) -> bytes:
    del random
    batch = _batch()
    header = parse_header(batch)._replace(attributes=CONTROL_BIT)
    return bytes(join_batch(header, batch[HEADER_BYTES:]))


LIES: Final[dict[str, Lie]] = {
    "nonsense": _nonsense,
    "another count": _another_count,
    "other offsets": _other_offsets,
    "trailing bytes": _trailing_bytes,
    "cut off": _cut_off,
    "compressed noise": _compressed_noise,
    "compressed bomb": _compressed_bomb,
    "a transaction": _transaction,
    "a control batch": _control,
}
