"""Frames and headers: how messages lie in the stream of a connection.

    frame     int32 size, then `size` bytes: a header and a body

    request header v1     int16 api key, int16 version, int32 correlation id,
                          nullable string client id
    request header v2     the same, then tagged fields; the client id keeps its old encoding
    response header v0    int32 correlation id
    response header v1    int32 correlation id, then tagged fields

The version of a header follows from the API and its version, see `apis`.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final, NamedTuple

from strandline.errors import MalformedFrame
from strandline.protocol.apis import Api, find_api
from strandline.protocol.schema import encode_onto
from strandline.protocol.wire import Buffer, Chunk, records_size, skip_tagged_fields

SIZE_BYTES: Final = 4
FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's default of `socket.request.max.bytes`."""
REQUEST_ELEMENTS_MAX: Final = 250_000
"""What all arrays of one request may hold together. Requests about 100,000 partitions have room;
reading so many elements takes half a second."""
_HEADER_TAGS_MAX: Final = 1000

_SIZE: Final = Struct(">i")
_PEEK: Final = Struct(">hhi")
_REQUEST: Final = Struct(">hhih")
_RESPONSE: Final = Struct(">ii")


class RequestHeader(NamedTuple):
    """What precedes the body of every request. A null client id is read as an empty one."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str


def frame_size(buffer: Buffer, position: int = 0, frame_bytes_max: int = FRAME_BYTES_MAX) -> int:
    """Read the 4 bytes in front of a frame; raises MalformedFrame for a size not allowed."""
    (size,) = _SIZE.unpack_from(buffer, position)
    if not 0 <= size <= frame_bytes_max:
        raise MalformedFrame(
            f"A frame announces {size} bytes; 0 to {frame_bytes_max} are allowed here."
        )
    return int(size)


def split_frames(
    buffer: memoryview, start: int = 0, frame_bytes_max: int = FRAME_BYTES_MAX
) -> tuple[list[memoryview], int]:
    """Cut all complete frames out of what has been received so far.

    Returns them without their size, as views of the buffer, and the position of the first byte
    that belongs to none of them. Raises MalformedFrame as soon as a size is not allowed, even if
    the frame itself has not arrived.
    """
    frames: list[memoryview] = []
    end = len(buffer)
    while end - start >= SIZE_BYTES:
        size = frame_size(buffer, start, frame_bytes_max)
        behind = start + SIZE_BYTES + size
        if behind > end:
            break
        frames.append(buffer[start + SIZE_BYTES : behind])
        start = behind
    return frames, start


def peek(frame: Buffer) -> tuple[int, int, int]:
    """API key, version and correlation id of a request, without a look at the rest."""
    try:
        api_key, api_version, correlation_id = _PEEK.unpack_from(frame)
    except error:
        raise MalformedFrame("A request is shorter than its header.") from None
    return api_key, api_version, correlation_id


def parse_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Read a request's header; returns it and the position of the body.

    A version that is not known of an API that is gets its header read as the newest would be: the
    answer to ApiVersions must be possible for any. A key that is not known closes the connection,
    since nothing can be said about the bytes that follow.
    """
    try:
        api_key, api_version, correlation_id, size = _REQUEST.unpack_from(frame)
    except error:
        raise MalformedFrame("A request is shorter than its header.") from None
    api = find_api(api_key)
    if api is None:
        raise MalformedFrame(f"A request has the API key {api_key}, which is not known.")
    position = _REQUEST.size
    client_id, position = _client_id(frame, position, size)
    if api.is_flexible(api_version):
        position = _skip_tags(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def parse_response_header(frame: memoryview, api: Api, version: int) -> tuple[int, int]:
    """Read a response's header; returns the correlation id and the position of the body."""
    try:
        (correlation_id,) = _SIZE.unpack_from(frame)
    except error:
        raise MalformedFrame("A response is shorter than its header.") from None
    position = SIZE_BYTES
    if api.response_header_version(version):
        position = _skip_tags(frame, position)
    return int(correlation_id), position


def request_frame(
    api: Api, version: int, correlation_id: int, client_id: str | None, message: object
) -> list[Chunk]:
    """A whole request as it is sent, size included."""
    named = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(named)
    out = bytearray(SIZE_BYTES)
    out += _REQUEST.pack(api.key, version, correlation_id, size)
    out += named
    if api.is_flexible(version):
        out.append(0)
    return _finish(out, message, version)


def response_frame(api: Api, version: int, correlation_id: int, message: object) -> list[Chunk]:
    """A whole response as it is sent, size included.

    One chunk, unless the message carries large records or ranges of log files: then these are
    chunks of their own between the bytes around them.
    """
    out = bytearray(_RESPONSE.pack(0, correlation_id))
    if api.response_header_version(version):
        out.append(0)
    return _finish(out, message, version)


def _finish(out: bytearray, message: object, version: int) -> list[Chunk]:
    """Append the body and put the size of everything into the first four bytes."""
    chunks: list[Chunk] = []
    last = encode_onto(out, message, version, chunks)
    if last:
        chunks.append(last)
    is_one = len(chunks) == 1 and last
    size = len(last) if is_one else sum(records_size(chunk) for chunk in chunks)
    _SIZE.pack_into(out, 0, size - SIZE_BYTES)
    return chunks


def _client_id(frame: memoryview, position: int, size: int) -> tuple[str, int]:
    if size == -1:
        return "", position
    end = position + size
    if size < 0 or end > len(frame):
        raise MalformedFrame("The client id of a request has an impossible length.")
    try:
        return str(frame[position:end], "utf-8"), end
    except UnicodeDecodeError:
        raise MalformedFrame("The client id of a request is not UTF-8.") from None


def _skip_tags(frame: memoryview, position: int) -> int:
    try:
        return skip_tagged_fields(
            frame, position + 1, len(frame), frame[position], _HEADER_TAGS_MAX
        )[0]
    except IndexError:
        raise MalformedFrame("A header ends inside its tagged fields.") from None
