"""What is to be called when sockets are ready, as asyncio's loops are asked for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any, Protocol, TypeAlias

Callback: TypeAlias = Callable[[], object]
Calls: TypeAlias = dict[int, Callback]
"""Of one socket: what is to be called, by the event of `selectors`."""


class Readiness(Protocol):
    """Calls back for sockets that are ready: a loop, its selector, or the newcomers of one."""

    def add_reader(self, fd: Any, callback: Callable[..., Any], /, *args: Any) -> Any: ...
    def remove_reader(self, fd: Any, /) -> Any: ...
    def add_writer(self, fd: Any, callback: Callable[..., Any], /, *args: Any) -> Any: ...
    def remove_writer(self, fd: Any, /) -> Any: ...


class SocketCalls(ABC):
    """A `Readiness` that is no loop."""

    def add_reader(self, fd: Any, callback: Callable[..., Any], /, *args: Any) -> None:
        """As of an event loop."""
        self._watch(fd, EVENT_READ, (lambda: callback(*args)) if args else callback)

    def add_writer(self, fd: Any, callback: Callable[..., Any], /, *args: Any) -> None:
        """As of an event loop."""
        self._watch(fd, EVENT_WRITE, (lambda: callback(*args)) if args else callback)

    def remove_reader(self, fd: Any, /) -> None:
        """As of an event loop."""
        self._watch(fd, EVENT_READ, None)

    def remove_writer(self, fd: Any, /) -> None:
        """As of an event loop."""
        self._watch(fd, EVENT_WRITE, None)

    @abstractmethod
    def _watch(self, fd: Any, event: int, callback: Callback | None) -> None:
        """Call that from now on for the event; None: nothing."""
