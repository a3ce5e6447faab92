"""What a world tells those who watch it. They look, count and judge; they change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.node.effects import ConnectionId

if TYPE_CHECKING:
    from strandline.sim.machine import Machine

Ending: TypeAlias = Literal["kill", "power", "stop", "swap", "bug", "failed"]
"""How a process ended: killed, by a power cut, stopped cleanly, by a power cut with a new disk, by
an exception that came out of the node, or by itself because its start failed."""


class Observer(Protocol):
    """Every method is called synchronously, at the moment at which it is true."""

    def node_acted(self, machine: Machine) -> None:
        """A live node has handled an event, or ended a turn."""

    def started(self, machine: Machine) -> None:
        """A process has made its node; nothing has happened to it yet."""

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """A process is over. `lossy`: something that it had written is lost. Its node can still be
        looked at during this call (None if it never got so far)."""

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        """The store's truth moved to `image`."""

    def sent(self, machine: Machine, connection: ConnectionId, frames: bytes) -> None:
        """A node answered a CLIENT's connection (not another broker's): bytes with sizes."""

    def bug(self, machine: Machine | None, sentence: str) -> None:
        """Somebody logged a traceback, or an exception came out of a node."""


class Silent:
    """Watches nothing: a base for those who want to hear of some things only."""

    def node_acted(self, machine: Machine) -> None:
        """See `Observer`."""

    def started(self, machine: Machine) -> None:
        """See `Observer`."""

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """See `Observer`."""

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        """See `Observer`."""

    def sent(self, machine: Machine, connection: ConnectionId, frames: bytes) -> None:
        """See `Observer`."""

    def bug(self, machine: Machine | None, sentence: str) -> None:
        """See `Observer`."""


Observers: TypeAlias = Sequence[Observer]
