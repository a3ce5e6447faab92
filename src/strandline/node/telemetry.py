"""Telemetry of a node: history, refusals, meters; see `status` and `why`. Decides nothing.

Everything here is bounded, is noted once per turn or per change of the metadata, and is forgotten
with the process. No decision of the node may depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.node.metadata import Metadata
from strandline.node.outbox import Outbox
from strandline.node.replicas import Replicas
from strandline.node.status.history import History
from strandline.node.status.meters import Meters
from strandline.node.why.refusals import Refusal, Refusals
from strandline.types import Instant

_FAST_PATHS_MAX: Final = 1000
"""Times of fast paths that are kept before they are counted."""


class Telemetry:
    """See the module."""

    def __init__(
        self,
        outbox: Outbox,
        metadata: Metadata,
        replicas: Replicas,
        explain: Callable[[Refusal], str],
    ) -> None:
        """`explain` says why something was refused, in a sentence for the log."""
        self.history = History(replicas)
        self.refusals = Refusals(metadata, replicas, explain)
        self.meters = Meters()
        self._outbox = outbox

    def metadata_changed(
        self, before: ClusterImage, after: ClusterImage, delta: ImageDelta, now: Instant
    ) -> None:
        """The image has moved on, and nothing has followed from it yet."""
        self.history.follow(before, after, delta, now)

    def finish_turn(self, now: Instant) -> None:
        """Look at what was answered in this turn."""
        outbox = self._outbox
        if len(outbox.produced_after_ms) > _FAST_PATHS_MAX:
            self.meters.take_fast_paths(outbox)
        if not outbox.has_records:
            return
        outbox.has_records = False
        answered, refused = outbox.take_answered(), outbox.take_refused()
        if refused:
            self.refusals.note_refused(refused, now)
        if answered:
            self.refusals.note_answers(answered, now)
            self.meters.take(answered, now)

    def settled_meters(self) -> Meters:
        """The meters, with all that was only noted so far."""
        self.meters.take_fast_paths(self._outbox)
        return self.meters
