"""The observer of a world: it is called at each event, and must not change anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias, TypeVar

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.errors import StrandlineError
from strandline.node.effects import Chunk, ConnectionId
from strandline.storage.compaction.plan import CleaningResult
from strandline.types import BrokerId

Ending: TypeAlias = Literal["kill", "power", "stop", "swap", "bug", "failed"]
"""How a process ended: killed, by a power cut, stopped cleanly, by a power cut with a new disk, by
an exception that came out of the node, or by itself because its start failed."""


Observed = TypeVar("Observed", contravariant=True)
"""A machine (`machine.Machine`, which imports this)."""


class Observer(Protocol[Observed]):
    """Every method is called synchronously, at the moment at which it is true."""

    def node_acted(self, machine: Observed) -> None:
        """A live node has handled an event, or ended a turn."""

    def started(self, machine: Observed) -> None:
        """A process has made its node; it has not been started yet."""

    def ended(self, machine: Observed, how: Ending, *, lossy: bool) -> None:
        """A process is over. `lossy`: something that it had written is lost. During this call
        `machine.last_node` is what was its node, None if it never had one; its files are gone."""

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        """The store's truth moved to `image`."""

    def sent(self, machine: Observed, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        """A node answers a CLIENT's connection (not another broker's). Called before anything of
        the ranges of logs in it is read."""

    def cleaned(self, machine: Observed, result: CleaningResult) -> None:
        """A node was given a compacted segment, and may have put it into the log. Called in front
        of `node_acted`."""

    def round_ended(self, machine: Observed, error: StrandlineError | None) -> None:
        """A node has heard that a round of compaction is over."""

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        """A node logged a traceback, or an exception came out of it."""
