"""One connected socket: bytes in, whole frames to the node, answers (or requests) out.

This file knows sockets and frame sizes. It does not know what a frame means, except that the
first four bytes say how long it is. It reads with raw non-blocking sockets instead of asyncio
transports, because a broker's small requests are dominated by what a transport adds to each.

Reading. All connections share one receive buffer, so that a thousand idle clients cost nothing.
Frames that arrive whole are handed on as slices of it; the node is done with a frame when
`receive` returns. What is left over is kept by the connection. The rest of a large frame is read at
once if it is there; a frame of which `_LARGE_PART_BYTES` have arrived, and the rest not, gets a
buffer of its own (`receive_buffers`).

A stream (`streams`) carries the bytes, as they are or within TLS. Of what OpenSSL has decrypted and
not handed over yet the loop knows nothing: the transport looks again by itself. The stream is told
how much of a frame is missing, so that the loop need not wake for each piece.

One read may hold thousands of small frames. After `slice_ns` those that are left wait for the next
round of the loop, so that others are served and answers leave. Nothing is read meanwhile.

Writing (`outgoing`). Answers are sent at once if the socket takes them. While a rest waits, nothing
is read or handed on; `wants_input` bounds what collects before anything is sent.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from struct import Struct
from time import monotonic_ns
from typing import Final, Generic

from strandline.broker.outgoing import BrokenRange, Outgoing
from strandline.broker.receive_buffers import (
    LARGE_BUFFER_BYTES,
    RECEIVE_BUFFER_BYTES,
    BufferPool,
    LargeFrame,
    SharedBuffer,
)
from strandline.broker.streams import Stream, drain
from strandline.broker.transport_host import Host, PartyT
from strandline.errors import StorageError
from strandline.node.effects import Chunk

log = logging.getLogger(__name__)

_SIZE: Final = Struct(">i")
_READING: Final = (True, False)
"""What is watched for nearly always."""
_LARGE_PART_BYTES: Final = RECEIVE_BUFFER_BYTES // 2


class Transport(Generic[PartyT]):
    """One connected socket and its unfinished input and output.

    `watching` is what the loop was asked to watch for: reading, writing.
    """

    never_waits = False
    """Whether its large frames are read even beyond the memory for them."""
    slice_ns = 2_000_000
    """After so long it hands on no further frame in one round; a newcomer after each."""

    __slots__ = (
        "_has_turn",
        "_host",
        "_is_held_back",
        "_is_partial",
        "_is_starved",
        "_large",
        "_leftover",
        "_outgoing",
        "_pool",
        "_shared",
        "_stream",
        "closed",
        "connection",
        "is_newcomer",
        "is_turned_out",
        "last_active_ms",
        "socket",
        "watching",
    )

    def __init__(
        self,
        host: Host,
        connection: PartyT,
        stream: Stream,
        *,
        shared: SharedBuffer,
        pool: BufferPool,
    ) -> None:
        self._host = host
        self.connection = connection
        self.socket = stream.socket
        self._stream = stream
        self.closed = False
        self.is_newcomer = False
        self.is_turned_out = False
        """Whether it was closed for what it has sent."""
        self.last_active_ms = 0
        """When bytes came or went last. The owner, which knows the time, says so of answers."""
        self._shared = shared
        self._pool = pool
        self._large: LargeFrame | None = None
        self._leftover = b""
        self._is_held_back = False
        self._is_partial = False
        """Whether the stream was told that a frame has arrived in part."""
        self._has_turn = False
        """Whether frames that are here wait for their turn: nothing is read before."""
        self._is_starved = False
        """Whether the frame that arrives waits for memory."""
        self._outgoing = Outgoing(stream)
        self.watching = (False, False)

    # -- reading -----------------------------------------------------------------------------

    def on_readable(self) -> None:
        """Take what the socket has and hand every whole frame to the node."""
        try:
            if self._large is None:
                self._read_shared()
            else:
                self._read_large(self._large)
            self._host.end()
            if self._stream.is_buffering:
                self._read_again()
        except BlockingIOError:
            return
        except OSError as error:
            self.close(f"reading failed: {error.strerror or error}")
        except Exception as error:  # noqa: BLE001 -- a bug of ours ends one connection only
            self._fail(error)

    def _read_again(self) -> None:
        """There is more input than the loop knows of, for when it may be read."""
        if self.watching[0] and not self.closed:
            self._call_later(self._look_again)

    def _call_later(self, callback: Callable[[], None]) -> None:
        host = self._host
        (host.call_in_turn if self.is_newcomer else host.call_soon)(callback)

    def look_again(self) -> None:
        """The loop was not asked for a while, or by another way: it may not know of all input."""
        if self._has_turn:
            self._call_later(self._take_turn)
        elif self._stream.is_buffering:
            self._read_again()

    def _look_again(self) -> None:
        if self.watching[0] and not self.closed:
            self.on_readable()

    def _fail(self, error: Exception) -> None:
        """The boundary for bugs of ours: one connection ends, the broker goes on."""
        if isinstance(error, MemoryError):
            log.error("There is no memory to serve a connection of %s", self.connection.client_host)
            self.close(None)
        else:
            log.error("Serving %s failed", self.connection.client_host, exc_info=error)
            self.close("serving it failed")
        self._host.end_soon()

    def _read_shared(self) -> None:
        first = self._shared.first
        kept = len(self._leftover)
        if kept:
            first[:kept] = self._leftover
        count = self._stream.receive(first[kept:] if kept else first)
        if count == 0:
            self.close(None)
            return
        self._leftover = b""
        self._deliver(self._shared.whole, kept + count)

    def _deliver(self, view: memoryview, end: int) -> None:
        """Hand on the whole frames in `view[:end]` and keep the rest."""
        position = 0
        connection = self.connection
        receive = self._host.receive
        now = self._host.begin()
        self.last_active_ms = now.monotonic_ms
        missing = 0
        slice_end_ns = monotonic_ns() + (0 if self.is_newcomer else self.slice_ns)
        wants_input = connection.wants_input
        while end - position >= 4 and wants_input:
            (size,) = _SIZE.unpack_from(view, position)
            if size < 0 or size > connection.frame_bytes_max:
                allowed = connection.frame_bytes_max
                self.turn_out(f"a frame of {size} bytes was announced; {allowed} are allowed")
                return
            start = position + 4
            if end - start < size and size >= _LARGE_PART_BYTES and view is self._shared.whole:
                end = self._read_on_here(end, start + size)
            if end - start < size:
                if end - start >= _LARGE_PART_BYTES:
                    if self._may_take(LARGE_BUFFER_BYTES):
                        self._large = LargeFrame(view[start:end], size, self._pool)
                        self._stream.expect(self._large.missing)
                        self.update_watch()
                        return
                    self._is_starved = True
                missing = size - (end - start)
                break
            receive(connection, view[start : start + size], now)
            position = start + size
            if self.closed:
                return
            wants_input = connection.wants_input
            if position < end and monotonic_ns() >= slice_end_ns:
                self._has_turn = wants_input
                break
        if position < end:
            self._leftover = bytes(view[position:end])
        if missing or self._is_partial:
            self._is_partial = missing > 0
            self._stream.expect(missing)
        self._is_held_back = self._has_turn or not wants_input
        if self._has_turn:
            self._call_later(self._take_turn)
        if self._is_held_back or self._is_starved or self.watching != _READING:
            self.update_watch()

    def _read_on_here(self, end: int, wanted: int) -> int:
        """Read on in the shared buffer to the end of a large frame; returns where input ends."""
        whole, receive = self._shared.whole, self._stream.receive
        if wanted > len(whole) or self.is_newcomer:
            return end
        with suppress(BlockingIOError):
            while end < wanted and (count := receive(whole[end:wanted])):
                end += count
        return end

    def _may_take(self, more: int) -> bool:
        return self._pool.memory.may_take(self, more, always=self.never_waits)

    def read_on(self) -> None:
        """There may be memory again for the frame that arrives."""
        if self.closed or not self._is_starved:
            return
        self._is_starved = False
        self._is_held_back = self._large is None
        self.resume()

    def _read_large(self, large: LargeFrame) -> None:
        wanted = large.wanted
        if wanted and not self._may_take(wanted):
            self._is_starved = True
            self.update_watch()
            return
        count = self._stream.receive(large.room())
        if count == 0:
            self.close(None)
            return
        self._pool.memory.progressed(self, count)
        now = self._host.begin()
        self.last_active_ms = now.monotonic_ms
        is_whole = large.received(count)
        self._stream.expect(large.missing)
        if not is_whole:
            return
        self._large = None
        self._host.receive(self.connection, memoryview(large.buffer)[: large.size], now)
        large.let_go()
        self._pool.memory.give_back(self)
        self.update_watch()

    def resume(self) -> None:
        """Go on with frames that waited because too many requests were in flight."""
        if self.is_newcomer:
            self._wait_for_turn()
        else:
            self._go_on()
        self.update_watch()

    def _wait_for_turn(self) -> None:
        if self._is_held_back and not self._has_turn:
            self._has_turn = True
            self._call_later(self._take_turn)

    def _take_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._go_on()
            self.update_watch()

    def _go_on(self) -> None:
        is_due = self._is_held_back and not (self._has_turn or self._outgoing.pending)
        if is_due and self.connection.wants_input:
            leftover, self._leftover = self._leftover, b""
            # A copy of its own: handling a frame may patch it, and `bytes` cannot be written to.
            try:
                self._deliver(memoryview(bytearray(leftover)), len(leftover))
                self._host.end_soon()
            except Exception as error:  # noqa: BLE001 -- as above
                self._fail(error)

    # -- writing -----------------------------------------------------------------------------

    def send(self, chunks: Sequence[Chunk]) -> None:
        """Send the chunks now or as soon as the socket takes them."""
        if self.closed:
            return
        try:
            self._outgoing.send(chunks)
        except StorageError as error:
            self.close(f"reading a log failed: {error}")
        except OSError as error:
            self.close(f"writing failed: {error.strerror or error}")
        except MemoryError as error:
            self._fail(error)
        if self._is_held_back:
            self.resume()
        else:
            self.update_watch()

    def on_writable(self) -> None:
        """Go on with what the socket did not take before."""
        self.last_active_ms = self._host.begin().monotonic_ms  # the other side has read of it
        try:
            self._outgoing.go_on()
        except BrokenRange as error:
            self.close(str(error))
            return
        except StorageError as error:
            self.close(f"reading a log failed: {error}")
            return
        except OSError as error:
            self.close(f"writing failed: {error.strerror or error}")
            return
        except Exception as error:  # noqa: BLE001 -- as above
            self._fail(error)
            return
        self.resume()

    # -- both --------------------------------------------------------------------------------

    @property
    def has_unsent_output(self) -> bool:
        """Whether bytes wait for the socket."""
        return bool(self._outgoing.pending)

    def update_watch(self) -> None:
        """Tell the loop what this socket waits for, if that changed.

        A client that does not take its answers is not read either: that bounds what waits here.
        """
        if self.closed:
            return
        write = bool(self._outgoing.pending)
        read = not (write or self._has_turn or self._is_starved) and self.connection.wants_input
        if (read, write) != self.watching:
            self._watch(read=read, write=write)

    def _watch(self, *, read: bool, write: bool) -> None:
        was_read, _ = before = self.watching
        if (read, write) != before:
            self.watching = (read, write)
            self._host.watch(self, read=read, write=write)
            if read and not was_read and self._stream.is_buffering:
                self._read_again()

    def part(self) -> None:
        """Close, with the other side able to read to the end what the socket has taken.

        A socket that is closed with unread input is reset: the system drops what it has not sent
        yet, and some systems drop what was received but not read. So that input is read before.
        """
        if self.closed:
            return
        with suppress(OSError):  # also when there is no more input
            self._stream.say_goodbye()
            self.socket.shutdown(socket.SHUT_WR)
            drain(self.socket, self._shared.whole)
        self.close(None)

    def turn_out(self, reason: str) -> None:
        """Close it for what it has sent."""
        self.is_turned_out = True
        self.close(reason)

    def close(self, reason: str | None) -> None:
        """Close the socket and drop unfinished input and output. Idempotent."""
        if self.closed:
            return
        self.closed = True
        self._outgoing.pending.clear()
        self._large = None
        self._leftover = b""
        self._has_turn = self._is_held_back = False
        self._pool.memory.give_back(self)
        self._host.disconnected(self, reason)
        self._stream.say_goodbye()
        self.socket.close()
