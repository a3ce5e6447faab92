"""A connected socket with TLS on it: OpenSSL works in memory, this file moves the bytes.

OpenSSL on a socket of its own asks the system twice for every record, and clients send small ones:
librdkafka one for each of its buffers. Here a read brings as many records as have come, and many
leave in one write.

    socket ── receive, a lot at a time ──> incoming, a piece at a time ──> OpenSSL ──> bytes
    socket <── send, all of it together ── unsent <── outgoing <── OpenSSL <── bytes

What OpenSSL holds in memory for a connection is bounded by the pieces that it is given: its buffers
grow and never shrink. A socket that does not block is expected.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from struct import Struct
from typing import Final, TypeAlias

Data: TypeAlias = bytes | bytearray | memoryview

RECORD_BYTES: Final = 16 * 1024
"""The most that a record of TLS carries."""
_HEAD_BYTES: Final = 5
_SIZE: Final = Struct(">H")
"""The last two of them: how many bytes follow."""
_SEALED_BYTES: Final = RECORD_BYTES + 512
"""The most that such a record takes, and a little."""
_PIECE_BYTES: Final = 2 * RECORD_BYTES
_SCRATCH_BYTES: Final = 256 * 1024
_UNASKED_BYTES_MAX: Final = 64 * 1024
"""How much may wait for the socket that answers nothing but the other side's TLS."""


class _Scratch(threading.local):
    """Where a thread puts what it has just received, before it goes to OpenSSL."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_SCRATCH_BYTES))


_scratch = _Scratch()


class _RecordEnds:
    """Where the records of a stream end: each begins with its type, its version and its size."""

    __slots__ = ("_head", "_missing", "unfinished")

    def __init__(self) -> None:
        self._head = b""
        """What has come of the last record, if that is less than its size."""
        self._missing = 0
        """How much is still to come of the last record."""
        self.unfinished = 0
        """How much has come of it; 0 if it is whole."""

    def follow(self, data: Data) -> None:
        """So much more has come."""
        if self._head:
            data, self._head = self._head + bytes(data), b""
        count, end = len(data), self._missing
        if end > count:
            self._missing = end - count
            self.unfinished += count
            return
        begin, last_head, size_at = end, count - _HEAD_BYTES, _SIZE.unpack_from
        while end <= last_head:  # for each kilobyte that librdkafka sends: it is to be fast
            begin = end
            (size,) = size_at(data, end + 3)
            end += size + _HEAD_BYTES
        if end > count:
            self._missing = end - count
            self.unfinished = count - begin
        else:
            self._missing = 0
            self.unfinished = count - end
            self._head = bytes(data[end:])


class TlsSocket:
    """See the module. One thread at a time may use it."""

    __slots__ = (
        "_has_ended",
        "_incoming",
        "_outgoing",
        "_records",
        "_taken",
        "_unsent",
        "is_buffering",
        "raw",
        "tls",
    )

    def __init__(
        self,
        raw: socket.socket,
        context: ssl.SSLContext,
        *,
        server_side: bool = False,
        server_hostname: str | None = None,
    ) -> None:
        """Raises `OSError` and `ValueError` for a name that cannot be asked for."""
        self.raw = raw
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
        )
        self._unsent: list[Data] = []
        """What OpenSSL has made of what is to be sent."""
        self._taken = 0
        """Bytes that OpenSSL has and that have not left: they come again with the next call."""
        self.is_buffering = False
        """Whether there may be more to read than the socket tells."""
        self._has_ended = False
        self._records = _RecordEnds()

    def fileno(self) -> int:
        """The socket's."""
        return self.raw.fileno()

    # -- Handshake ---------------------------------------------------------------------------

    def do_handshake(self) -> None:
        """As much of it as can be done now. Raises `SSLWantReadError` and `SSLWantWriteError` when
        it has to wait for the socket, and other `OSError`s when it has failed."""
        self._flush_handshake()
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush_handshake()
                self._receive_handshake()
            except OSError:
                with suppress(OSError):  # the alert that says why: as far as it can be sent
                    self._flush()
                raise
            else:
                self._flush_handshake()
                self.is_buffering = self._incoming.pending > 0
                return

    def _flush_handshake(self) -> None:
        try:
            self._flush()
        except BlockingIOError:
            raise ssl.SSLWantWriteError from None

    def _receive_handshake(self) -> None:
        try:
            data = self.raw.recv(RECORD_BYTES)
        except BlockingIOError:
            raise ssl.SSLWantReadError from None
        if not data:
            raise ConnectionError("the other side has closed the connection")
        self._take_in(data)

    def _take_in(self, data: Data) -> None:
        self._records.follow(data)
        self._incoming.write(data)

    # -- Receiving ---------------------------------------------------------------------------

    @property
    def unfinished_bytes(self) -> int:
        """How much has come of a record that is not whole, of which nothing can be read."""
        return self._records.unfinished

    def recv_into(self, view: memoryview) -> int:
        """Put what has come there; how much, 0 at the end. Raises `BlockingIOError`."""
        if self._has_ended:
            return 0
        filled = self._decrypt(view, 0) if self.is_buffering else 0
        if self.is_buffering:
            return filled
        scratch = _scratch.view
        # More than the room: what is in a record comes out when all of it is there.
        wanted = max(_SEALED_BYTES, len(view) - filled)
        try:
            count = self.raw.recv_into(scratch, min(wanted, _SCRATCH_BYTES))
        except BlockingIOError:
            if filled:
                return filled
            raise
        if not count:
            self._has_ended = self.is_buffering = True  # to be told of it once more
            return filled
        for at in range(0, count, _PIECE_BYTES):
            self._take_in(scratch[at : min(at + _PIECE_BYTES, count)])
            filled = self._decrypt(view, filled)
        if self._outgoing.pending:
            self._answer()
        if not filled and not self._has_ended:
            raise BlockingIOError
        return filled

    def _decrypt(self, view: memoryview, filled: int) -> int:
        # With a buffer it returns how much came, which its types do not say.
        read: Callable[[int, memoryview], int] = self.tls.read  # type: ignore[assignment]
        size = len(view)
        try:
            while filled < size:
                count = read(size - filled, view[filled:])
                if not count:
                    self._has_ended = self.is_buffering = True
                    return filled
                filled += count
        except ssl.SSLWantReadError:
            self.is_buffering = False
        except OSError:
            with suppress(OSError):
                self._flush()
            raise
        else:
            self.is_buffering = self.tls.pending() > 0 or self._incoming.pending > 0
        return filled

    def _answer(self) -> None:
        """What the other side's TLS has asked for: new keys. Raises `OSError` if it asks on and on
        and takes no answers."""
        with suppress(BlockingIOError):
            self._flush()
        if not self._taken and sum(map(len, self._unsent)) > _UNASKED_BYTES_MAX:
            raise ConnectionError("it asks for new keys and takes none")

    # -- Sending -----------------------------------------------------------------------------

    @property
    def is_sending(self) -> bool:
        """Whether bytes that were taken have not left: they must come again with the next call."""
        return self._taken > 0

    def send(self, data: Data) -> int:
        """Send all of it. Raises `BlockingIOError` if it has not left yet: call again with the
        same, which is not looked at then."""
        if not self._taken:
            write, view = self.tls.write, memoryview(data)
            for at in range(0, len(view), RECORD_BYTES):
                write(view[at : at + RECORD_BYTES])
                self._unsent.append(self._outgoing.read())
            self._taken = len(view)
        self._flush()
        taken, self._taken = self._taken, 0
        return taken

    def _flush(self) -> None:
        """Send everything. Raises `BlockingIOError` if the socket does not take it."""
        unsent = self._unsent
        if self._outgoing.pending:
            unsent.append(self._outgoing.read())
        while unsent:
            sent = self.raw.send(unsent[0]) if len(unsent) == 1 else self.raw.sendmsg(unsent)
            whole = 0
            while whole < len(unsent) and sent >= len(unsent[whole]):
                sent -= len(unsent[whole])
                whole += 1
            del unsent[:whole]
            if sent:
                unsent[0] = memoryview(unsent[0])[sent:]

    # -- The end -----------------------------------------------------------------------------

    def say_goodbye(self) -> None:
        """Tell the other side that this is the end, as far as it can be told at once."""
        with suppress(OSError, ValueError):  # it has said so itself, or there is still no TLS
            self.tls.unwrap()
        with suppress(OSError):
            self._flush()

    def close(self) -> None:
        """Close the socket."""
        self.raw.close()
