"""Batches that lie about what is in them, under a right checksum.

Each is made for one record format rule; `LIES` are those that no reader gets through, `ODDITIES`
are unusual and can be read. Kafka's answer to each was seen of version 4.3.1 (`tests/java`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from strandline.records.batch import BatchHeader
from strandline.records.builder import join_batch
from strandline.records.codec import Codec
from strandline.records.compression import compress
from strandline.records.varint import write_varint
from strandline.types import (
    NO_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Offset,
)


@dataclass(frozen=True)
class Claim:
    """The records of a batch before they are compressed, and what the header says of them."""

    payload: bytes
    count: int = 3
    fields: dict[str, int] = field(default_factory=dict)
    shift_ms: int = 0
    """The header's largest timestamp, seen from the records' own."""

    def batch(self, now_ms: int, codec: Codec = Codec.NONE) -> bytes:
        """The batch, its records at `now_ms`."""
        return batch_of(compress(codec, self.payload), self, now_ms, codec)


def batch_of(packed: bytes, claim: Claim, now_ms: int, codec: Codec) -> bytes:
    """A batch with these bytes behind its header."""
    header = BatchHeader(
        base_offset=Offset(0),
        length=0,
        leader_epoch=NO_EPOCH,
        magic=2,
        crc=0,
        attributes=codec,
        last_offset_delta=claim.count - 1,
        base_timestamp=now_ms,
        max_timestamp=now_ms + claim.shift_ms,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=claim.count,
    )
    return bytes(join_batch(header._replace(**claim.fields), packed))  # type: ignore[arg-type]


def number(value: int) -> bytes:
    """A signed number as a record has it."""
    out = bytearray()
    write_varint(out, value)
    return bytes(out)


def body(
    offset: int = 0,
    *,
    key: bytes = number(1) + b"k",
    value: bytes = number(1) + b"v",
    headers: bytes = number(0),
    timestamp: bytes = number(0),
    attributes: int = 0,
) -> bytes:
    """A record without its length."""
    return bytes([attributes]) + timestamp + number(offset) + key + value + headers


def sized(content: bytes) -> bytes:
    """A record."""
    return number(len(content)) + content


GOOD: Final = b"".join(sized(body(n)) for n in range(3))

LIES: Final[dict[str, Claim]] = {
    "noise": Claim(b"\xff" * 12 + bytes(range(68))),
    "zeros": Claim(bytes(80)),
    "nothing": Claim(b"", 5),
    "fewer records than there are": Claim(GOOD, 2),
    "more records than there are": Claim(GOOD, 4),
    "more records than fit": Claim(GOOD, 2**31 - 1),
    "a byte behind the last record": Claim(GOOD + b"\0"),
    "a record behind the last record": Claim(GOOD + sized(body(3))),
    "cut off": Claim(GOOD[:-2]),
    "a negative count of headers": Claim(sized(body(headers=number(-1))), 1),
    "headers that are not there": Claim(sized(body(headers=number(5))), 1),
    "a header without a key": Claim(sized(body(headers=number(1) + number(-1) + number(0))), 1),
    "a header's key beyond its record": Claim(
        sized(body(headers=number(1) + number(100) + b"h" + number(-1))), 1
    ),
    "bytes behind the headers": Claim(sized(body(headers=number(0) + b"\0\0")), 1),
    "a key beyond its record": Claim(sized(body(key=number(1000) + b"k")), 1),
    "a value beyond its record": Claim(sized(body(value=number(2**31 - 1) + b"v")), 1),
    "a record without a length": Claim(number(0) + GOOD, 1),
    "a record of a negative length": Claim(number(-1) + GOOD, 1),
    "a length of six bytes": Claim(b"\x8e\x80\x80\x80\x80\x00" + body(), 1),
    "no records": Claim(b"", 0),
    "a negative count": Claim(GOOD, -1),
    "another range of offsets": Claim(GOOD, fields={"last_offset_delta": 7}),
}
"""Refused here and by Kafka."""

LOOSE_LIES: Final[dict[str, Claim]] = {
    "the same offset again": Claim(sized(body(0)) * 3),
    "offsets out of order": Claim(sized(body(0)) + sized(body(2)) + sized(body(1))),
    "offsets that begin with 1": Claim(b"".join(sized(body(n)) for n in (1, 2, 3))),
    "an offset beyond the batch": Claim(b"".join(sized(body(n)) for n in (0, 1, 9))),
    "a negative offset": Claim(b"".join(sized(body(n)) for n in (0, -1, 2))),
    "a record longer than what is in it": Claim(number(len(body()) + 3) + body(), 1),
    "a record shorter than what is in it": Claim(number(len(body()) - 1) + body(), 1),
    "an offset of more than 32 bits": Claim(
        sized(b"\0\0" + b"\x80\x80\x80\x80\x70" + number(1) + b"k" + number(1) + b"v\0"), 1
    ),
}
"""Refused here; Kafka 4.3.1 takes some of them, depending on the codec."""

ODDITIES: Final[dict[str, Claim]] = {
    "nothing odd": Claim(GOOD),
    "a largest timestamp that is too small": Claim(GOOD, shift_ms=-1_000_000_000),
    "a largest timestamp that is too large": Claim(GOOD, shift_ms=1000),
    "a largest timestamp far in the future": Claim(GOOD, shift_ms=1_000_000_000),
    "no largest timestamp": Claim(GOOD, fields={"max_timestamp": -1}),
    "attributes of a record": Claim(sized(body(attributes=0x5A)), 1),
    "a length in more bytes than needed": Claim(bytes([len(body()) * 2 | 0x80, 0]) + body(), 1),
    "a null that is not -1": Claim(sized(body(value=number(-7))), 1),
    "a header that is not UTF-8": Claim(
        sized(body(headers=number(1) + number(1) + b"\xff" + number(-1))), 1
    ),
}
"""Taken here and by Kafka, with the largest timestamp put right."""


def broken_streams(codec: Codec) -> dict[str, bytes]:
    """Compressed bytes that do not decompress, where the header says `codec`; none of no codec."""
    if codec is Codec.NONE:
        return {}
    packed = compress(codec, GOOD)
    return {
        "noise": bytes(range(7, 90)),
        "nothing": b"",
        "cut off": packed[:-3],
        "twice": packed * 2,
    }
