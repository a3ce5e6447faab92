"""The fast path of a consumer's fetch that looks like one before it.

A consumer that reads on sends the same request again and again; only the correlation id and the
offsets change. The path remembers such requests on one connection: what is constant in them is
compared instead of decoded, and the head of the answer is patched into bytes that were encoded once
(`handlers.fetch` decides what may be remembered).

    api key, version │ correlation id │ ... │ offset │ ... │ offset │ ...
    └──── compared ──┘                └ cmp ┘        └ cmp ┘        └ compared

Where there is not enough to read, or something to refuse, the general way goes on from the fields
of the request (`FetchService.go_on`): it is the definition of what is right, and a differential
test sends the same bytes both ways. Requests with a session change more than that and are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from struct import Struct
from typing import Any, Final, Protocol

from strandline.errors import ProtocolError, StorageError
from strandline.node.connection import Connection
from strandline.node.effects import Chunk
from strandline.node.fetch_answer import FetchAnswer, PartitionAnswer, encode_fetch_answer
from strandline.node.fetch_reading import ConsumerReader, read_range
from strandline.node.fetch_sessions import FetchContext, Fetched
from strandline.node.general_fetch import GeneralFetch
from strandline.node.outbox import Outbox
from strandline.node.replica import READ_COMMITTED, Replica
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.schema import encode
from strandline.types import NO_EPOCH, Instant, Offset

SINCE: Final = 7
"""Older versions have no place for an error and a session in front of the topics."""
_FLEXIBLE_SINCE: Final = 12
_PREFERRED_REPLICA_SINCE: Final = 11
_PARTITIONS_MAX: Final = 100
_SHAPES_MAX: Final = 64
_LAYOUTS_MAX: Final = 8
_PART_BYTES: Final = 1024
_BYTES_MAX: Final = 6 * 1024 * 1024
"""What all shapes of one connection take: their bytes, and about `_PART_BYTES` per partition. A
client that names 64 partitions in each order that begins with another of them stays below."""
_CREDIT_MAX: Final = 64
"""Requests that are learnt beyond those that come again: learning costs more than decoding does,
and some clients ask for other partitions each time."""
# No UTF-8 holds these bytes, so that no name in a message can be taken for them.
_MARK: Final = 0x71F1_E2D3_C4B5_A697
_MARKED: Final = _MARK.to_bytes(8, "big")
_MARKED_OFFSETS: Final = 3 * _MARKED
_TOP: Final = Struct(">ii").pack
_INT: Final = Struct(">i").pack


class FetchService(GeneralFetch, Protocol):
    """What the general way does for a consumer's fetch."""

    @property
    def bytes_max(self) -> int:
        """What one answer may have at most, whatever a client asks for (`fetch.max.bytes`)."""


class _Part:
    """One partition of a request, and the bytes around its offsets in the answer."""

    __slots__ = ("after", "before", "bytes_max", "fetched", "leader_epoch", "pack", "replica")

    def __init__(self, fetched: Fetched, replica: Replica, before: bytes, after: bytes) -> None:
        self.fetched = fetched
        self.replica = replica
        self.bytes_max = max(0, fetched.max_bytes)
        self.leader_epoch = fetched.current_leader_epoch
        self.before = before
        self.after = after
        self.pack = Struct(f">{len(before)}sqqq{len(after)}s").pack


class _Shape:
    """What is constant in a request and its answer."""

    __slots__ = (
        "is_flexible",
        "isolation_level",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "parts",
        "reader",
        "size",
        "tail",
        "version",
    )

    def __init__(
        self,
        request: Request[FetchRequest],
        wanted: Sequence[tuple[Fetched, Replica]],
        reader: ConsumerReader,
    ) -> None:
        body = request.body
        self.version = request.version
        self.is_flexible = request.version >= _FLEXIBLE_SINCE
        self.isolation_level = body.isolation_level
        self.max_wait_ms = body.max_wait_ms
        self.min_bytes = body.min_bytes
        self.max_bytes = body.max_bytes
        self.reader = reader
        heads, self.tail = _heads(request, [fetched for fetched, _ in wanted])
        self.parts = [
            _Part(fetched, replica, *head)
            for (fetched, replica), head in zip(wanted, heads, strict=True)
        ]
        length_bytes = 0 if self.is_flexible else 4 * len(heads)
        # Behind the size and the correlation id, which are packed by themselves.
        self.size = sum(len(before) + 24 + len(after) for before, after in heads)
        self.size += 4 + length_bytes + len(self.tail)

    @property
    def is_stale(self) -> bool:
        """Whether a partition is another one by now."""
        return any(part.replica.is_retired for part in self.parts)

    def answer(self, numbers: Sequence[int], bytes_max: int) -> list[Chunk] | None:
        """The whole frame for a correlation id and the offsets; None if it is not the plain case.

        Nothing has happened then.
        """
        budget = bytes_max = max(0, min(self.max_bytes, bytes_max))
        is_committed = self.isolation_level == READ_COMMITTED
        size, total, is_full = self.size, 0, False
        head = b""
        chunks: list[Chunk] = []
        sent: list[tuple[Replica, int]] = []
        for part, number in zip(self.parts, numbers[1:], strict=True):
            offset = Offset(number)
            replica = part.replica
            epoch = part.leader_epoch
            if replica.leading is None or epoch not in (NO_EPOCH, replica.leader_epoch):
                return None
            log = replica.log
            offsets = log.offsets
            stable = log.last_stable_offset
            end = stable if is_committed else offsets.high_watermark
            try:
                records, has_more = read_range(
                    log, offset, part.bytes_max, budget, end=end, is_first=total == 0
                )
                if (
                    is_committed
                    and records is not None
                    and log.reader.aborted_transactions(offset, records.upper_offset)
                ):
                    return None
            except (ProtocolError, StorageError):
                return None
            is_full = is_full or has_more
            length = 0 if records is None else records.length
            head += part.pack(
                part.before, offsets.high_watermark, stable, offsets.log_start_offset, part.after
            )
            if self.is_flexible:
                prefix = _compact(length)
                size += len(prefix)
                head += prefix
            else:
                head += _INT(length)
            if records is not None:
                sent.append((replica, length))
                total += length
                budget = max(0, budget - length)
                chunks += (head, records)
                head = b""
        if total < min(self.min_bytes, bytes_max) and not is_full and self.max_wait_ms > 0:
            return None
        if head or self.tail:
            chunks.append(head + self.tail)
        chunks.insert(0, _TOP(size + total, numbers[0]))
        for replica, length in sent:
            replica.traffic.bytes_out += length
        return chunks


class _Layout:
    """Where the changing fields of requests of one size are, and the requests that were seen."""

    __slots__ = ("form", "memory", "shapes", "unpack")

    def __init__(self, form: str) -> None:
        self.form = form
        self.memory = 0
        """Bytes that its shapes take."""
        self.unpack = Struct(form).unpack
        self.shapes: dict[tuple[bytes, ...], _Shape] = {}


class ConsumerFastPath:
    """The fast path on one connection. Knows at most `_LAYOUTS_MAX` times `_SHAPES_MAX` shapes, of
    `_BYTES_MAX`."""

    __slots__ = (
        "_client_id",
        "_connection",
        "_credit",
        "_handler",
        "_layouts",
        "_may_go_on",
        "_outbox",
    )

    def __init__(self, request: Request[Any], handler: FetchService, *, may_go_on: bool) -> None:
        """`may_go_on`: what waits needs nothing else of the request (with ACLs, the client)."""
        self._connection: Connection = request.connection
        self._outbox: Outbox = request.outbox
        self._client_id = request.client_id
        self._handler = handler
        self._may_go_on = may_go_on
        self._layouts: dict[int, _Layout] = {}
        self._credit = _CREDIT_MAX

    def wants(self, frame: memoryview) -> bool:
        """Whether a request is to be learnt: it is of no known shape, and requests come again."""
        if self._credit <= 0:
            return False
        layout = self._layouts.get(len(frame))
        return layout is None or layout.unpack(frame)[::2] not in layout.shapes

    def learn(
        self,
        frame: memoryview,
        request: Request[FetchRequest],
        wanted: Sequence[tuple[Fetched, Replica]],
        reader: ConsumerReader,
    ) -> None:
        """Remember a request without a session for partitions that are led here."""
        self._credit -= 1
        if not 0 < len(wanted) <= _PARTITIONS_MAX:
            return
        form = _form(frame, request)
        if form is None:
            return
        size = len(frame)
        memory = size + _PART_BYTES * len(wanted)
        if (size not in self._layouts and len(self._layouts) >= _LAYOUTS_MAX) or (
            memory + sum(each.memory for each in self._layouts.values()) > _BYTES_MAX
        ):
            self._layouts.clear()
        layout = self._layouts.get(size)
        if layout is None or len(layout.shapes) >= _SHAPES_MAX or layout.form != form:
            layout = self._layouts[size] = _Layout(form)
        fields = layout.unpack(frame)
        if [*fields[3::2]] == [fetched.fetch_offset for fetched, _ in wanted]:
            layout.shapes[fields[::2]] = _Shape(request, wanted, reader)
            layout.memory += memory

    def maybe_handle(self, frame: memoryview, now: Instant) -> bool:
        """Answer, or have the general way read and park, if the request is of a known shape."""
        layout = self._layouts.get(len(frame))
        if layout is None:
            return False
        fields = layout.unpack(frame)
        constant = fields[::2]
        shape = layout.shapes.get(constant)
        if shape is None:
            return False
        if self._credit < _CREDIT_MAX:
            self._credit += 1
        numbers: tuple[int, ...] = fields[1::2]
        chunks = shape.answer(numbers, self._handler.bytes_max)
        if chunks is None:
            if shape.is_stale:
                del layout.shapes[constant]
                return False
            if not self._may_go_on:
                return False
            self._go_on(shape, numbers, now)
            return True
        self._outbox.fetched_at_once += 1
        connection = self._connection
        if connection.slots:
            connection.fill(connection.open_slot(), chunks)
        else:
            connection.outgoing += chunks
        self._outbox.flush_later(connection)
        return True

    def _go_on(self, shape: _Shape, numbers: Sequence[int], now: Instant) -> None:
        request: Request[FetchRequest | None] = Request(
            self._connection,
            self._outbox,
            ApiKey.FETCH,
            shape.version,
            numbers[0],
            self._client_id,
            None,
            now.monotonic_ms,
        )
        wanted = [
            replace(part.fetched, fetch_offset=offset)
            for part, offset in zip(shape.parts, numbers[1:], strict=True)
        ]
        self._handler.go_on(
            request,
            FetchContext(wanted, session=None, incremental=False),
            shape.reader,
            max_wait_ms=shape.max_wait_ms,
            min_bytes=shape.min_bytes,
            max_bytes=shape.max_bytes,
            now=now,
        )


def _form(frame: memoryview, request: Request[FetchRequest]) -> str | None:
    """How `struct` reads a frame with the same fields at the same places: in turns what is
    constant and what changes. None if the frame is not what its fields are encoded to."""
    body = request.body
    plain = encode(body, request.version)
    start = len(frame) - len(plain)
    if start < _HEADER_BYTES_MIN or frame[start:] != plain:
        return None
    partitions = [partition for topic in body.topics for partition in topic.partitions]
    offsets = [partition.fetch_offset for partition in partitions]
    for partition in partitions:
        partition.fetch_offset = _MARK
    try:
        marked = encode(body, request.version)
    finally:
        for partition, offset in zip(partitions, offsets, strict=True):
            partition.fetch_offset = offset
    form, at, behind = [">4si"], 8 - start, marked.find(_MARKED)
    while behind >= 0:
        form.append(f"{behind - at}sq")
        at = behind + 8
        behind = marked.find(_MARKED, at)
    form.append(f"{len(marked) - at}s")
    return "".join(form) if len(form) == len(partitions) + 2 else None


def _heads(
    request: Request[Any], wanted: Sequence[Fetched]
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """What stands before and after the three offsets of each partition in an answer without
    records, up to their length, and behind all: an answer of the general way, cut apart."""
    version = request.version
    is_committed = request.body.isolation_level == READ_COMMITTED
    answer = FetchAnswer()
    for fetched in wanted:
        partition = PartitionAnswer(fetched.key.partition)
        partition.high_watermark = partition.last_stable_offset = _MARK
        partition.log_start_offset = _MARK
        partition.aborted_transactions = [] if is_committed else None
        answer.add(fetched.key.topic or fetched.key.topic_id, partition)
    frame = b"".join(encode_fetch_answer(request, answer))  # type: ignore[arg-type]  # no ranges
    is_flexible = version >= _FLEXIBLE_SINCE
    after = (1 if is_flexible else 4) + (4 if version >= _PREFERRED_REPLICA_SINCE else 0)
    length_bytes = 1 if is_flexible else 4
    heads, at = [], 8
    for _ in wanted:
        offsets_at = frame.index(_MARKED_OFFSETS, at)
        end = offsets_at + len(_MARKED_OFFSETS)
        heads.append((frame[at:offsets_at], frame[end : end + after]))
        at = end + after + length_bytes
    return heads, frame[at:]


def _compact(length: int) -> bytes:
    """A length as flexible versions write it."""
    if length < 0x7F:
        return _SMALL[length]
    rest, out = length + 1, bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


_SMALL: Final = tuple(bytes([length + 1]) for length in range(0x7F))
_HEADER_BYTES_MIN: Final = 8
