"""Buffers for frames that are too large for the shared one.

A frame of which much has arrived gets a buffer of its own. It grows as the bytes really come: a
client that announces a hundred megabytes has to send them before they are allocated. Buffers of
the usual size are used again, because zeroing a new one costs as much as filling it.
"""

from __future__ import annotations

from typing import Final

from strandline.broker.frame_memory import FrameMemory

LARGE_BUFFER_BYTES: Final = 2 * 1024 * 1024


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
