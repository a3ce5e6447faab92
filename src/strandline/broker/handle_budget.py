"""The descriptors of one process and who gets them: a budget that all its brokers share.

    what the process may have (RLIMIT_NOFILE)
    ├── fixed     listeners, locks, the metadata journal, checkpoints, threads, what is open already
    ├── sockets   connections and links, up to all but the floor of the files
    └── files     logs and indexes: what is left, at least the floor, the longest idle closed first

Sockets and files move their border: as connections come, files are closed for them. A connection
for which nothing is left is refused, and those there are go on being served. The links of this
process's own brokers to each other are let in always. This file knows counts; it opens nothing.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from typing import TYPE_CHECKING, Any, Final

from strandline.storage.file_handles import FileHandles
from strandline.storage.real_files import RealFiles

if TYPE_CHECKING:
    from strandline.node.status.broker_document import Handles

log = logging.getLogger(__name__)

USEFUL_MAX: Final = 1 << 17
"""More descriptors than a broker of this kind has use for."""
_OPEN_MAX: Final = 10_240
"""macOS allows no more by setrlimit, though it may say that the hard limit is none (OPEN_MAX)."""
FILES_MAX: Final = 4096
_FLOOR_MAX: Final = 64
_FIXED: Final = 24
_FIXED_PER_BROKER: Final = 8
_RESERVE: Final = 4
"""For the moment in which there are none left, see `FileHandles`."""
_HEADROOM: Final = 8
_FILES_BESIDE_LINK: Final = 4
_TIGHT_BELOW: Final = 2048
_SWEEP_S: Final = 30.0


def raise_limit() -> None:
    """Allow this process as many descriptors as it may have and can use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = USEFUL_MAX if hard == resource.RLIM_INFINITY else min(hard, USEFUL_MAX)
    for limit in (wanted, min(wanted, _OPEN_MAX)):
        if soft != resource.RLIM_INFINITY and limit > soft:
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            except (ValueError, OSError) as error:
                log.debug("The limit of open files cannot be %d: %s", limit, error)
            else:
                return


class HandleBudget:
    """See the module. All methods belong to one event loop."""

    def __init__(self, limit: int, *, brokers: int, already_open: int = 0) -> None:
        self.limit = limit
        fixed = _FIXED + _FIXED_PER_BROKER * brokers + _RESERVE + already_open
        self._shared = max(limit - fixed, 8)
        self._floor = min(_FLOOR_MAX, self._shared // 4)
        self.sockets_max = self._shared - self._floor
        self.sockets = 0
        self.refused = 0
        self.handles = FileHandles(self._floor)
        self._own: set[Any] = set()
        self._sweeps: asyncio.TimerHandle | None = None
        self._servers = 0
        self._share()

    @classmethod
    def of_process(cls, brokers: int = 1) -> HandleBudget:
        """What this process may have now."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = USEFUL_MAX if soft == resource.RLIM_INFINITY else min(soft, USEFUL_MAX)
        return cls(limit, brokers=brokers, already_open=_open_now())

    def files(self) -> RealFiles:
        """A file system whose files are within the budget."""
        return RealFiles(handles=self.handles)

    @property
    def is_tight(self) -> bool:
        """Whether there are so few that files are opened again and again."""
        return self.limit < _TIGHT_BELOW

    @property
    def use(self) -> Handles:
        """Who has how many now."""
        # A broker starts without the document, which is asked for later, if at all.
        from strandline.node.status.broker_document import Handles

        files = self.handles
        return Handles(
            limit=self.limit,
            files=files.count,
            files_max=files.limit,
            sockets=self.sockets,
            sockets_max=self.sockets_max,
            opened=files.opened,
            refused_files=files.refused,
            refused_connections=self.refused,
        )

    @property
    def warning(self) -> str | None:
        """What to tell an operator if there are few."""
        if not self.is_tight:
            return None
        return (
            f"This process may have {self.limit} open files (ulimit -n): that is enough for "
            f"{self.sockets_max} connections, and log files are opened and closed in turn."
        )

    # -- Sockets -----------------------------------------------------------------------------

    def may_accept(self, peer: Any) -> bool:
        """Whether one more connection can be served; `peer` is its address."""
        if self.sockets < self.sockets_max or peer in self._own:
            return True
        self.refused += 1
        return False

    def opened(self) -> None:
        """There is one more socket."""
        self.sockets += 1
        self._share()

    def closed(self) -> None:
        """There is one less."""
        self.sockets -= 1
        self._share()

    def dialled(self, address: Any) -> None:
        """A link goes out from this address: the broker it reaches may be one of ours."""
        self._own.add(address)

    def hung_up(self, address: Any) -> None:
        """That link has ended."""
        self._own.discard(address)

    def make_room(self, *, for_link: bool = False) -> bool:
        """The operating system has no descriptor for a socket: close idle files; whether any.

        Those that serve the connections there are stay open for a new one; a link comes first.
        """
        left = self.handles.count - (_FILES_BESIDE_LINK if for_link else self._floor)
        return left > 0 and self.handles.give_way(min(_HEADROOM, left)) > 0

    def _share(self) -> None:
        """Files may have what sockets leave, of which these keep a third in any case."""
        left = self._shared - max(self.sockets + _HEADROOM, self._shared // 3)
        files = self.handles
        files.limit = min(max(left, self._floor), FILES_MAX)
        if files.count > files.limit:
            files.give_way(files.count - files.limit)

    # -- Idle files --------------------------------------------------------------------------

    def attach(self) -> None:
        """A server begins: from the first on, idle files are closed."""
        self._servers += 1
        if self._sweeps is None:
            self.handles.hold_reserve(_RESERVE)
            self._sweeps = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def detach(self) -> None:
        """A server has ended; with the last the reserve goes."""
        self._servers -= 1
        if self._servers == 0 and self._sweeps is not None:
            self._sweeps.cancel()
            self._sweeps = None
            self.handles.hold_reserve(0)

    def _sweep(self) -> None:
        self._sweeps = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)
        self.handles.close_idle()


def _open_now() -> int:
    """How many descriptors this process has open."""
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:  # none are left to look with, or there is no such directory
        return 0
