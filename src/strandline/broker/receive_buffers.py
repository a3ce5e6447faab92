"""Buffers for what is received.

All connections share one. A large frame of which all has come is read to its end there, and so is
not copied. A frame of which only a part has come, but much of it, gets a buffer of its own. It
grows as the bytes really come: a client that announces a hundred megabytes has to send them before
they are allocated. Buffers of the usual size are used again, because zeroing a new one costs as
much as filling it.
"""

from __future__ import annotations

from typing import Final

from strandline.broker.frame_memory import FrameMemory

RECEIVE_BUFFER_BYTES: Final = 256 * 1024
LARGE_BUFFER_BYTES: Final = 2 * 1024 * 1024
_SHARED_BYTES: Final = 1536 * 1024
"""Room for what is read first, and for a request of Kafka's default `message.max.bytes`."""


class SharedBuffer:
    """Where the input of all connections is received, one at a time.

    - `first`: what is read of a connection at once, and so the most that may have to be kept of it.
    - `whole`: for the rest of a large frame that begins in `first`.
    """

    __slots__ = ("first", "whole")

    def __init__(self) -> None:
        self.whole = memoryview(bytearray(_SHARED_BYTES))
        self.first = self.whole[:RECEIVE_BUFFER_BYTES]


class BufferPool:
    """Large receive buffers for reuse: allocating and zeroing a megabyte per request is slow."""

    def __init__(self, keep: int, memory: FrameMemory) -> None:
        self.memory = memory
        self._keep = keep
        self._free: list[bytearray] = []

    def take(self) -> bytearray:
        """A buffer of `LARGE_BUFFER_BYTES`."""
        return self._free.pop() if self._free else bytearray(LARGE_BUFFER_BYTES)

    def give_back(self, buffer: bytearray) -> None:
        """Offer a buffer for reuse; the caller must not keep views of it."""
        if len(buffer) == LARGE_BUFFER_BYTES and len(self._free) < self._keep:
            self._free.append(buffer)


class LargeFrame:
    """A frame that is still arriving; `size` counts its payload."""

    __slots__ = ("_filled", "_pool", "buffer", "size")

    def __init__(self, part: memoryview, size: int, pool: BufferPool) -> None:
        """`part` is what has arrived of it."""
        self.size = size
        self.buffer = pool.take()
        self.buffer[: len(part)] = part
        self._filled = len(part)
        self._pool = pool

    @property
    def wanted(self) -> int:
        """How many bytes more are needed before more can be read."""
        if self._filled < len(self.buffer):
            return 0
        return min(self.size, 2 * len(self.buffer)) - len(self.buffer)

    @property
    def missing(self) -> int:
        """How many bytes are still to come."""
        return self.size - self._filled

    def room(self) -> memoryview:
        """Where more of it goes."""
        if wanted := self.wanted:
            # The announced bytes are really coming. In place: two of them may be too much.
            self.buffer += bytes(wanted)
        return memoryview(self.buffer)[self._filled : min(self.size, len(self.buffer))]

    def received(self, count: int) -> bool:
        """So many bytes were put there; whether the frame is whole."""
        self._filled += count
        return self._filled == self.size

    def let_go(self) -> None:
        """It was handled: the buffer may be used again."""
        self._pool.give_back(self.buffer)
