"""The open descriptors of files: at most so many, the longest idle given up first.

A log directory holds far more files than a process may have open, so the descriptor of a file
comes and goes. `FileHandles` keeps a bounded number of them and gives up the one that was idle
longest ("second chance": a file used since the last sweep is passed over once), which costs the hot
path one attribute store instead of a reordering. Files that nothing uses any more have none after
two rounds of `close_idle`.

The bound is a share of what the process may have (`broker.handle_budget`), but other parts of the
process open descriptors too, and other processes use up the machine's. So a call that the operating
system refuses for want of a descriptor (EMFILE, ENFILE) is made again after one was given up: that
of an idle file, or one of a few that are held in reserve for this. What is then still refused is
`OutOfHandles`: nothing is broken by it.

Threads: only the node's thread opens, gives up and closes descriptors of files. Other threads sync
duplicates taken under the lock, so a descriptor can never be closed, or its number reused, while
it is being synced; what they find refused only the reserve can mend.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

NO_DESCRIPTOR: Final = -1
_USED_UP: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC


class Holder(Protocol):
    """A file that may hold a descriptor, which is `NO_DESCRIPTOR` while it has none."""

    path: str
    descriptor: int
    recently_used: bool
    is_pinned: bool
    """Whether the descriptor is never given up."""


class FileHandles:
    """See the module. `limit` may be changed at any time; it counts from the next opening on."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.lock = threading.Lock()
        self.count = 0
        self.opened = 0
        """How often a file was opened; what goes beyond the number of files is the price of the
        limit."""
        self.refused = 0
        """How often the operating system had no descriptor."""
        self._clock: deque[Holder] = deque()
        self._thread: int | None = None
        self._reserve_wanted = 0
        self._reserve: list[int] = []

    def give(self, file: Holder) -> int:
        """Open the file, and remember its descriptor. In the node's thread. Raises `OSError`."""
        self._thread = threading.get_ident()
        while self.count >= self.limit and self._give_up_one():
            pass
        descriptor = file.descriptor = self.call(lambda: os.open(file.path, _FLAGS))
        self.count += 1
        self.opened += 1
        self._clock.append(file)
        if len(self._clock) > 2 * max(self.limit, self.count):
            # Closed files leave the clock only when the hand passes them.
            self._clock = deque({id(f): f for f in self._clock if f.descriptor >= 0}.values())
        return descriptor

    def take_back(self, file: Holder) -> None:
        """Close the file's descriptor, if it has one."""
        with self.lock:
            descriptor, file.descriptor = file.descriptor, NO_DESCRIPTOR
            if descriptor >= 0:
                self.count -= 1
                os.close(descriptor)

    def duplicate(self, file: Holder) -> int:
        """A descriptor of the file that is the caller's own. In any thread. Raises `OSError`."""

        def duplicate() -> int:
            with self.lock:
                if file.descriptor >= 0:
                    return os.dup(file.descriptor)
                return os.open(file.path, _FLAGS)

        return self.call(duplicate)

    def call(self, function: Callable[[], T]) -> T:
        """Do what needs a descriptor for a moment. In any thread. Raises `OSError`."""
        while True:
            try:
                return function()
            except OSError as error:
                if error.errno not in _USED_UP:
                    raise
                self.refused += 1
                if not self._free_one():
                    raise

    def give_way(self, count: int) -> int:
        """Give up to `count` descriptors back to the process; how many. In the node's thread."""
        return sum(1 for _ in range(count) if self._give_up_one())

    def close_idle(self) -> int:
        """Close what was not used since the last call; how many. In the node's thread."""
        closed = 0
        for _ in range(len(self._clock)):
            file = self._clock.popleft()
            if file.descriptor < 0:
                continue
            if file.recently_used or file.is_pinned:
                file.recently_used = False
                self._clock.append(file)
            else:
                self.take_back(file)
                closed += 1
        self._restock()
        return closed

    def hold_reserve(self, count: int) -> None:
        """Hold so many descriptors for the moment when the process has none; 0 gives them back."""
        with self.lock:
            self._reserve_wanted = count
            while len(self._reserve) > count:
                os.close(self._reserve.pop())
        self._restock()

    def _free_one(self) -> bool:
        """Give one descriptor back to the process, after it had none."""
        if self._thread in (None, threading.get_ident()) and self._give_up_one():
            return True
        with self.lock:
            if not self._reserve:
                return False
            os.close(self._reserve.pop())
            return True

    def _give_up_one(self) -> bool:
        """Close the descriptor that was idle longest."""
        clock = self._clock
        for _ in range(2 * len(clock)):
            file = clock.popleft()
            if file.descriptor < 0:
                continue
            if file.recently_used or file.is_pinned:
                file.recently_used = False
                clock.append(file)
            else:
                self.take_back(file)
                return True
        return False

    def _restock(self) -> None:
        with self.lock:
            while len(self._reserve) < self._reserve_wanted:
                try:
                    self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    return  # the next round tries again
