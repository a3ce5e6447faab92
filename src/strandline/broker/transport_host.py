"""What a transport needs of those around it: whom it connects with, and who owns it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from strandline.types import Instant


class Party(Protocol):
    """Whom a transport connects with, as the node knows it."""

    @property
    def client_host(self) -> str:
        """For the log."""

    @property
    def frame_bytes_max(self) -> int:
        """The largest frame that it may send now."""

    @property
    def wants_input(self) -> bool:
        """Whether another frame may be handed to the node."""


PartyT = TypeVar("PartyT", bound=Party)


class Host(Protocol):
    """What a transport needs of its owner."""

    @property
    def receive(self) -> Callable[[Any, memoryview, Instant], None]:
        """Handle one whole frame (without its size) of a party."""

    def begin(self) -> Instant:
        """Something has come in: the present, and a turn that ends when all of it is handled."""

    def end(self) -> None:
        """What came in is handled; more may come from other sockets in the same turn."""

    def end_soon(self) -> None:
        """Something that had come in before was handled, perhaps in the middle of a turn."""

    def disconnected(self, transport: Any, reason: str | None) -> None:
        """The socket is closed; `reason` says why if it was not the other side's wish."""

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call that in the next round of the loop."""

    def call_in_turn(self, callback: Callable[[], None]) -> None:
        """Call that when it is a newcomer's turn."""

    def watch(self, transport: Watched, *, read: bool, write: bool) -> None:
        """Call `on_readable` / `on_writable` from now on when the socket is ready."""


class Watched(Protocol):
    """What the loop watches for a transport."""

    socket: socket.socket
    is_newcomer: bool
    """Whether it waits for its turn among others that are new."""

    def on_readable(self) -> None: ...
    def on_writable(self) -> None: ...
