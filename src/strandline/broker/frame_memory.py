"""How much memory large requests may take while they arrive, and which of them wait.

    limit      a quarter of what the process may have (cgroup, RLIMIT_AS, the machine), shared by
               all its brokers, or `queued.max.request.bytes`
    beyond it  one frame goes on, of whatever size; the others are not read until there is room

A client announces a hundred megabytes with four bytes, and a thousand clients may do so. What is
not read stays in the client. A frame is let go of as soon as it is handled, so only those that are
still arriving count. A holder that sends nothing while others wait is closed, and so is one that
sends too little for what it holds: it could keep them waiting for ever. The links to other brokers
are counted and never wait; they may be slow.

This file knows sizes and who holds them; it allocates nothing and reads nothing.
"""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

_SHARE: Final = 4
_LIMIT_MIN: Final = 16 << 20
STALLED_S: Final = 5.0
_PROGRESS_SHARE: Final = 20
"""While others wait, this part of what is held has to come within `STALLED_S`: a buffer that has
been doubled is full after fifty seconds, or given back."""
_CGROUP_LIMITS: Final = (
    "/sys/fs/cgroup/{path}/memory.max",
    "/sys/fs/cgroup/memory/{path}/memory.limit_in_bytes",
)


class Reader(Protocol):
    """A connection whose request is arriving."""

    def close(self, reason: str | None) -> None: ...
    def read_on(self) -> None:
        """Ask for the memory again that there was none of."""


@dataclass(slots=True)
class _Held:
    bytes: int
    since_s: float
    """When something came last."""
    is_link: bool
    is_waiting: bool = False
    came: int = 0
    """Bytes that have come since it holds something."""
    came_before: int | None = None
    """As many there were when it was looked at last, if others have been waiting since then."""


class FrameMemory:
    """See the module. All methods belong to one event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._held: dict[Reader, _Held] = {}
        self._waiting: deque[Reader] = deque()
        self._check: asyncio.TimerHandle | None = None

    @classmethod
    def of_process(cls, queued_max_request_bytes: int = -1, *, processes: int = 1) -> FrameMemory:
        """As much as this process may use for it, if so many share the machine; a setting wins."""
        if queued_max_request_bytes > 0:
            return cls(queued_max_request_bytes)
        return cls(max(_LIMIT_MIN, available_bytes() // _SHARE // processes))

    def may_take(self, reader: Reader, more: int, *, always: bool = False) -> bool:
        """Whether a reader may have so many bytes more; else its `read_on` is called later."""
        held = self._held.get(reader)
        if held is None:
            held = self._held[reader] = _Held(0, time.monotonic(), always)
        if held.is_waiting:
            held.is_waiting, held.came_before = False, None
        if not always and self.used + more > self.limit and self._is_another_going_on(reader):
            held.is_waiting = True
            self._waiting.append(reader)
            self._watch()
            return False
        held.bytes += more
        held.since_s = time.monotonic()
        self.used += more
        return True

    def progressed(self, reader: Reader, count: int) -> None:
        """So many bytes have come for what a reader holds."""
        held = self._held[reader]
        held.since_s = time.monotonic()
        held.came += count

    def give_back(self, reader: Reader) -> None:
        """The reader's frame was handled, or will not come. Idempotent."""
        held = self._held.pop(reader, None)
        if held is None:
            return
        self.used -= held.bytes
        if self._waiting:
            waiting, self._waiting = self._waiting, deque()
            for each in waiting:
                if each in self._held:
                    asyncio.get_running_loop().call_soon(each.read_on)

    def _is_another_going_on(self, reader: Reader) -> bool:
        return any(
            each is not reader and held.bytes and not held.is_waiting
            for each, held in self._held.items()
        )

    def _watch(self) -> None:
        if self._check is None:
            for held in self._held.values():
                held.came_before = held.came
            self._check = asyncio.get_running_loop().call_later(STALLED_S, self._close_stalled)

    def _close_stalled(self) -> None:
        self._check = None
        if not self._waiting:
            return
        before_s = time.monotonic() - STALLED_S
        for reader, held in list(self._held.items()):
            if not held.is_waiting and held.bytes and (held.since_s < before_s or _is_slow(held)):
                reader.close("its request did not go on arriving while others wait for memory")
        self._watch()


def _is_slow(held: _Held) -> bool:
    """Whether too little came since the last look for what is kept from others."""
    if held.is_link or held.came_before is None:
        return False
    return (held.came - held.came_before) * _PROGRESS_SHARE < held.bytes


def available_bytes() -> int:
    """What this process may use: the least of its cgroup, its address space and the machine."""
    found = [machine_bytes()]
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(soft)
    found += _cgroup_limits()
    return min(found)


def machine_bytes() -> int:
    """The memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_limits() -> list[int]:
    """Of both versions; there are none outside Linux."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        # In a container the path may be that of the host, and the limit at the root.
        for place in (path.strip("/"), "."):
            for name in _CGROUP_LIMITS:
                try:
                    text = Path(name.format(path=place)).read_text(encoding="utf-8").strip()
                except OSError:
                    continue
                if text.isdigit():
                    found.append(int(text))
    return found
