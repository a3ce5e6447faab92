"""A selector of an event loop that calls back for some sockets by itself.

asyncio makes an object of each socket that is ready, puts it into a queue, and takes it out to run
it in a context of its own. For a broker's small requests that costs as much as receiving them. The
sockets of clients and links are therefore watched by the loop's selector, but are unknown to the
loop: when one of them is ready, `select` calls what was asked for, and asyncio hears of the others.

    epoll_wait ─┬─ sockets with a callback here: called at once, within `select`
                └─ all others (pipes, listening sockets, tasks): the loop's, as ever

What they ask the loop to do soon is done in the same round, without another look at the sockets.
It is made for epoll. Elsewhere the loop calls back for all sockets (`event_loop`).
"""

from __future__ import annotations

import logging
import math
import select
from collections.abc import Callable, Iterator, Mapping
from selectors import EVENT_READ, EVENT_WRITE, BaseSelector, SelectorKey
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.broker.loop_rounds import LoopRounds
from strandline.broker.socket_calls import Callback, SocketCalls

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

log = logging.getLogger(__name__)

_EVENTS_MAX: Final = 1024
"""Of one look: room for them is allocated each time."""
_READ: Final = getattr(select, "EPOLLIN", 0)
_WRITE: Final = getattr(select, "EPOLLOUT", 0)


class _Epoll(Protocol):
    """What `select.epoll` makes. Other systems than Linux, and type checkers for them, lack it."""

    def register(self, fd: int, eventmask: int) -> None: ...

    def modify(self, fd: int, eventmask: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]: ...

    def close(self) -> None: ...


_EPOLL: Final[Callable[[], _Epoll] | None] = getattr(select, "epoll", None)


class DirectSelector(SocketCalls, BaseSelector):
    """See the module. A selector for its loop, and a `Readiness` for the brokers on it.

    Raises `OSError` where there is no epoll, and where no descriptor is left."""

    def __init__(self) -> None:
        if _EPOLL is None:
            raise OSError("This system has no epoll.")
        self.rounds = LoopRounds()
        self._epoll = _EPOLL()
        self._keys: dict[int, SelectorKey] = {}
        self._map = _KeyMap(self._keys)
        self._readers: dict[int, Callback] = {}
        self._writers: dict[int, Callback] = {}
        """What is called for the sockets of brokers, by their descriptors."""

    # -- The loop's ---------------------------------------------------------------------------

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> SelectorKey:
        """As of every selector."""
        fd = _descriptor(fileobj)
        if fd in self._keys or fd in self._readers or fd in self._writers:
            raise KeyError(f"Descriptor {fd} is watched already.")
        key = SelectorKey(fileobj, fd, events, data)
        self._epoll.register(fd, _mask(events))
        self._keys[fd] = key
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        """As of every selector."""
        key = self._keys.pop(_descriptor(fileobj))
        self._forget(key.fd)
        return key

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> SelectorKey:
        """As of every selector."""
        key = self._keys[_descriptor(fileobj)]
        if events != key.events:
            self._epoll.modify(key.fd, _mask(events))
        changed = self._keys[key.fd] = key._replace(events=events, data=data)
        return changed

    def get_map(self) -> Mapping[FileDescriptorLike, SelectorKey]:
        """What the loop watches."""
        return self._map

    def close(self) -> None:
        """As of every selector."""
        self._epoll.close()
        self._keys.clear()
        self._readers.clear()
        self._writers.clear()

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Wait for sockets and call back for those of brokers. What the loop watches is returned:
        it is called afterwards."""
        self.rounds.end()
        # Of a finer time the rest would be waited for with a busy loop.
        seconds = -1 if timeout is None else math.ceil(timeout * 1e3) * 1e-3 if timeout > 0 else 0
        try:
            found = self._epoll.poll(seconds, _EVENTS_MAX)
        except InterruptedError:
            found = []
        self.rounds.begin()
        ready = []
        keys, readers, writers = self._keys, self._readers, self._writers
        for fd, event in found:
            key = keys.get(fd)
            if key is not None:
                ready.append((key, _events(event) & key.events))
                continue
            try:
                if event & ~_WRITE and (reader := readers.get(fd)) is not None:
                    reader()
                if event & ~_READ and (writer := writers.get(fd)) is not None:
                    writer()
            except Exception:
                log.exception("A socket could not be served")
        return ready

    # -- The brokers' -------------------------------------------------------------------------

    def _watch(self, fd: int, event: int, callback: Callback | None) -> None:
        calls, others = self._readers, self._writers
        if event == EVENT_WRITE:
            calls, others = others, calls
        if callback is None:
            if calls.pop(fd, None) is None:
                return
            if fd in others:
                self._epoll.modify(fd, _WRITE if event == EVENT_READ else _READ)
            else:
                self._forget(fd)
        elif fd in calls or fd in others:
            calls[fd] = callback
            self._epoll.modify(fd, _READ | _WRITE if fd in others else _mask(event))
        else:
            if fd in self._keys:
                raise KeyError(f"Descriptor {fd} is watched by the loop.")
            self._epoll.register(fd, _mask(event))
            calls[fd] = callback

    def _forget(self, fd: int) -> None:
        try:
            self._epoll.unregister(fd)
        except OSError:  # it was closed: the system has forgotten it
            log.debug("Descriptor %d was closed while it was watched", fd)


class _KeyMap(Mapping["FileDescriptorLike", SelectorKey]):
    """What the loop watches, by descriptor or by what has one."""

    def __init__(self, keys: dict[int, SelectorKey]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, fileobj: FileDescriptorLike) -> SelectorKey:
        return self._keys[_descriptor(fileobj)]

    def __iter__(self) -> Iterator[FileDescriptorLike]:
        return iter(self._keys)


def _descriptor(fileobj: FileDescriptorLike) -> int:
    fd = fileobj if isinstance(fileobj, int) else fileobj.fileno()
    if fd < 0:
        raise ValueError(f"{fd} is no descriptor.")
    return fd


def _mask(events: int) -> int:
    return (_READ if events & EVENT_READ else 0) | (_WRITE if events & EVENT_WRITE else 0)


def _events(event: int) -> int:
    """An error or the end of a connection is both: whichever is waited for hears of it."""
    return (EVENT_WRITE if event & ~_READ else 0) | (EVENT_READ if event & ~_WRITE else 0)
