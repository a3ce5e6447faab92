"""Messages to bytes and back, for every version of every declared class.

Codecs are generated when a (class, version) pair is first used, see `decoder` and `encoder`, and
kept on the class. Reading never trusts the frame: whatever is wrong with it, `MalformedFrame` is
raised and nothing else. Writing raises `ProtocolError` (UNSUPPORTED_VERSION) for values that the
version has no place for, and `InvariantViolated` for values that no version could express.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from strandline.errors import ErrorCode, InvariantViolated, MalformedFrame, ProtocolError
from strandline.protocol import apis
from strandline.protocol.declare import Shape, shape_of
from strandline.protocol.decoder import Decoder, build_decoder, decoder_source
from strandline.protocol.encoder import Encoder, build_encoder, encoder_source
from strandline.protocol.wire import ANY_NUMBER, Buffer, Chunk

__all__ = [
    "decode",
    "decode_from",
    "encode",
    "encode_onto",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
    "decode_versioned",
    "encode_versioned",
    "codec_source",
]

T = TypeVar("T")


def decode(declared: type[T], version: int, buffer: Buffer, position: int = 0) -> T:
    """Read a message that extends from `position` to the end of the buffer.

    Raises MalformedFrame if the bytes do not follow the schema or go on behind the message.
    """
    message, end = decode_from(declared, version, buffer, position)
    if end != len(buffer):
        raise MalformedFrame(
            f"{declared.__name__} version {version} ends at byte {end} of a frame of {len(buffer)}."
        )
    return message


def decode_from(
    declared: type[T],
    version: int,
    buffer: Buffer,
    position: int = 0,
    elements_max: int = ANY_NUMBER,
) -> tuple[T, int]:
    """Read a message that something else may follow; returns it and the position behind it.

    `elements_max` limits the elements of all its arrays together; more are a `MalformedFrame`.
    """
    view = buffer if type(buffer) is memoryview else memoryview(buffer)
    shape: Shape = declared.__shape__  # type: ignore[attr-defined]  # put there by @message
    decoder = shape.decoders.get(version) or _decoder(declared, version)
    limit = len(view)
    try:
        message, end = decoder(view, position, limit, elements_max)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedFrame(f"{shape.name} version {version} cannot be read: {error}.") from error
    if end > limit:
        raise MalformedFrame(f"{shape.name} version {version} is cut off.")
    return message, end


def encode(message: object, version: int) -> bytes:
    """The message's bytes. Records must be at hand, not ranges of files."""
    return _encode_behind(bytearray(), message, version)


def _encode_behind(out: bytearray, message: object, version: int) -> bytes:
    chunks: list[Chunk] = []
    last = encode_onto(out, message, version, chunks)
    if not chunks:
        return bytes(last)
    parts: list[Buffer] = []
    for chunk in (*chunks, last):
        if not isinstance(chunk, (bytes, bytearray, memoryview)):
            raise InvariantViolated(f"{chunk!r} cannot be joined into a message: use encode_onto.")
        parts.append(chunk)
    return b"".join(parts)


def encode_onto(out: bytearray, message: object, version: int, chunks: list[Chunk]) -> bytearray:
    """Append the message to `out`; returns the buffer in which it ended.

    If the message carries large records or ranges of files, `out` as it was up to there and the
    records themselves are moved to `chunks`, and the rest goes into a new buffer, the one that is
    returned. The whole message is `chunks` followed by that buffer.
    """
    shape: Shape = message.__class__.__shape__  # type: ignore[attr-defined]  # put there by @message
    encoder = shape.encoders.get(version) or _encoder(message.__class__, version)
    try:
        return encoder(message, out, chunks)
    except (struct.error, UnicodeEncodeError) as error:
        raise InvariantViolated(
            f"{shape.name} version {version} cannot be written: {error}."
        ) from error


def decode_request(api_key: int, version: int, buffer: Buffer, position: int = 0) -> object:
    """Read the body of a request, which must fill the rest of the buffer."""
    return decode(apis.api_of(api_key).request_class, version, buffer, position)


def decode_response(api_key: int, version: int, buffer: Buffer, position: int = 0) -> object:
    """Read the body of a response, which must fill the rest of the buffer."""
    return decode(apis.api_of(api_key).response_class, version, buffer, position)


encode_request = encode
encode_response = encode


def encode_versioned(message: object, version: int) -> bytes:
    """A message behind its version as int16: the form of keys and values in internal topics."""
    return _encode_behind(bytearray(version.to_bytes(2, "big", signed=True)), message, version)


def decode_versioned(declared: type[T], buffer: Buffer) -> T:
    """Read what `encode_versioned` wrote. Raises MalformedFrame for versions not known here."""
    if len(buffer) < 2:
        raise MalformedFrame(f"{declared.__name__} has no version in front of it.")
    version = int.from_bytes(buffer[:2], "big", signed=True)
    if not shape_of(declared).versions.covers(version):
        raise MalformedFrame(f"{declared.__name__} has no version {version}.")
    return decode(declared, version, buffer, 2)


def codec_source(declared: type, version: int) -> str:
    """The generated decoder and encoder as text, for people who debug or measure them."""
    flexible = _flexible(declared, version)
    return (
        decoder_source(declared, version, flexible)
        + "\n"
        + encoder_source(declared, version, flexible)
    )


def _decoder(declared: type, version: int) -> Decoder:
    decoder = build_decoder(declared, version, _flexible(declared, version))
    shape_of(declared).decoders[version] = decoder
    return decoder


def _encoder(declared: type, version: int) -> Encoder:
    encoder = build_encoder(declared, version, _flexible(declared, version))
    shape_of(declared).encoders[version] = encoder
    return encoder


def _flexible(declared: type, version: int) -> bool:
    """Whether the version is a flexible one; refuses versions that the message does not have."""
    shape = shape_of(declared)
    if not shape.top_level:
        raise InvariantViolated(f"{shape.name} occurs inside messages only.")
    if not shape.versions.covers(version):
        raise ProtocolError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{shape.name} has no version {version}, only {shape.versions}.",
        )
    return shape.flexible.covers(version)
