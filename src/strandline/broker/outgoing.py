"""What one socket is sent: at once if it takes it, the rest as soon as it does.

Log ranges go out with `sendfile`; small ones are read and joined with their neighbours to save
system calls. This file must not know connections, nor what becomes of one that fails.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from strandline.broker.streams import Stream
from strandline.node.effects import Chunk
from strandline.storage.files import File
from strandline.storage.log_reader import LogSlice

_COPIED_SLICE_BYTES: Final = 16 * 1024
_MORE_FOLLOWS: Final = getattr(socket, "MSG_MORE", 0)
"""Where the system has it: do not send a head in a packet of its own."""
_SEND_AT_ONCE_BYTES: Final = 1024 * 1024


@dataclass(slots=True)
class FileRange:
    """The unsent part of a log range.

    It has no descriptor of its own: a client that asks for much and reads nothing could use up the
    process's. If the log gives the file up first, the connection is closed, as by Kafka. It is
    closed as well if the file was cut since (`cuts`): other records, perhaps not committed, may
    have taken the place of those that were answered.
    """

    file: File
    position: int
    length: int
    cuts: int


class BrokenRange(Exception):
    """Bytes that were promised in a length field are not there any more: without them the stream
    makes no sense."""


class Outgoing:
    """See the module.

    - `pending`: what the socket has not taken yet, in its order.
    """

    __slots__ = ("_stream", "pending")

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.pending: deque[bytes | memoryview | FileRange] = deque()

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send the chunks behind what is pending. Raises `OSError` and `StorageError`."""
        if len(chunks) == 1 and not isinstance(only := chunks[0], LogSlice):
            self._send_bytes(only)  # most answers
            return
        small: list[bytes | bytearray | memoryview] = []
        copied = 0
        for chunk in chunks:
            if not isinstance(chunk, LogSlice):
                small.append(chunk)
            elif chunk.length <= _COPIED_SLICE_BYTES and not self.pending:
                small.append(chunk.read())
                copied += chunk.length
                if copied > _SEND_AT_ONCE_BYTES:
                    self._send_bytes(b"".join(small))
                    small, copied = [], 0
            else:
                if small:
                    self._send_bytes(b"".join(small), _MORE_FOLLOWS)
                    small = []
                self._send_range(chunk)
        if small:
            self._send_bytes(b"".join(small))

    def hold(self, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
        """Keep the chunks, which may change afterwards, until `go_on`."""
        self.pending.extend(bytes(chunk) for chunk in chunks)

    def _send_bytes(self, data: bytes | bytearray | memoryview, flags: int = 0) -> None:
        if self.pending:
            self.pending.append(bytes(data))
            return
        try:
            sent = self._stream.send(data, flags)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            self.pending.append(memoryview(data)[sent:])

    def _send_range(self, chunk: LogSlice) -> None:
        position, length, cuts = chunk.position, chunk.length, chunk.file.cuts
        if not self.pending:
            try:
                sent = self._stream.send_range(chunk.file, position, length)
            except BlockingIOError:
                sent = 0
            position += sent
            length -= sent
        if length:
            self.pending.append(FileRange(chunk.file, position, length, cuts))

    def go_on(self) -> None:
        """The socket takes more: send what is pending, not all of much at once.

        Raises `BrokenRange`, `OSError` and `StorageError`.
        """
        pending, budget = self.pending, _SEND_AT_ONCE_BYTES
        try:
            while pending and budget > 0:
                head = pending[0]
                if isinstance(head, FileRange):
                    sent = self._continue_range(head)
                    is_finished = head.length == 0
                else:
                    sent = self._stream.send(head, 0)
                    is_finished = sent == len(head)
                    if not is_finished:
                        pending[0] = memoryview(head)[sent:]
                budget -= sent
                if is_finished:
                    pending.popleft()
        except BlockingIOError:
            pass  # The socket is full again; the loop tells us when it is not.

    def _continue_range(self, head: FileRange) -> int:
        if head.file.cuts != head.cuts:
            raise BrokenRange("a log range was cut while it was being sent")
        sent = self._stream.send_range(head.file, head.position, head.length)
        if sent == 0:
            raise BrokenRange("a log range was truncated while it was being sent")
        head.position += sent
        head.length -= sent
        return sent
