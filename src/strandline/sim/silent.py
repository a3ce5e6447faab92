"""An observer that ignores all events: a base for those of a few kinds."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.errors import StrandlineError
from strandline.node.effects import Chunk, ConnectionId
from strandline.sim.machine import Machine
from strandline.sim.observer import Ending
from strandline.storage.compaction.plan import CleaningResult
from strandline.types import BrokerId


class Silent:
    """See the module."""

    def node_acted(self, machine: Machine) -> None:
        """See `Observer`."""

    def started(self, machine: Machine) -> None:
        """See `Observer`."""

    def ended(self, machine: Machine, how: Ending, *, lossy: bool) -> None:
        """See `Observer`."""

    def metadata_changed(self, changes: Changes, image: ClusterImage) -> None:
        """See `Observer`."""

    def sent(self, machine: Machine, connection: ConnectionId, chunks: Sequence[Chunk]) -> None:
        """See `Observer`."""

    def cleaned(self, machine: Machine, result: CleaningResult) -> None:
        """See `Observer`."""

    def round_ended(self, machine: Machine, error: StrandlineError | None) -> None:
        """See `Observer`."""

    def bug(self, broker_id: BrokerId | None, sentence: str) -> None:
        """See `Observer`."""
