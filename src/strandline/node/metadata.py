"""The node's view of cluster metadata, and the way to change it.

A change is decided as a list of store operations, written by the driver, and comes back first as
changes (which advance the image) and then as the outcome, which runs what waits for it. Nothing
here assumes that this is quick: with ZooKeeper it is a network round trip.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import count

from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.cluster.store import Changes, MalformedNode, Operation, StoreError
from strandline.errors import InvariantViolated
from strandline.node.effects import WriteMetadata
from strandline.node.outbox import Outbox
from strandline.types import Instant

log = logging.getLogger(__name__)

Outcome = Callable[[StoreError | None, Instant], None]
"""Told whether the operations were applied; the image already shows them if they were."""


class Metadata:
    """The current image and the metadata writes under way."""

    def __init__(self, image: ClusterImage, outbox: Outbox) -> None:
        self.image = image
        self._outbox = outbox
        self._tokens = count(1)
        self._waiting: dict[int, Outcome] = {}

    @property
    def undecided(self) -> int:
        """Writes whose outcome is not known yet."""
        return len(self._waiting)

    def partition_count(self, internal_topic: str, wanted: int) -> int:
        """How many partitions a topic of coordinators has now, or will have when it is made. All
        brokers must agree on it, whatever their settings say; it may be deleted, and made again
        with another number, at any time."""
        topic = self.image.topics.get(internal_topic)
        return wanted if topic is None else len(topic.partitions)

    def write(self, operations: Sequence[Operation], outcome: Outcome, now: Instant) -> None:
        """Have the operations applied, all or none, and be told."""
        if not operations:
            outcome(None, now)
            return
        token = next(self._tokens)
        self._waiting[token] = outcome
        self._outbox.add(WriteMetadata(token, operations))

    def advance(self, changes: Changes) -> ImageDelta:
        """Take over what changed in the store, and tell of what cannot be read."""
        self.image, delta = self.image.apply(changes)
        tell_unreadable(self.image, delta.unreadable_changed)
        return delta

    def written(self, token: int, error: StoreError | None, now: Instant) -> None:
        """The driver carried out a `WriteMetadata`."""
        outcome = self._waiting.pop(token, None)
        if outcome is None:
            raise InvariantViolated(f"No metadata write has the token {token}.")
        outcome(error, now)


def tell_unreadable(image: ClusterImage, paths: Iterable[str]) -> None:
    """Log which of these nodes cannot be read, and what to do."""
    for path in paths:
        if path in image.unreadable:
            log.error(
                "%s What it said before counts, where that is known, and nothing is written to it. "
                "Set its content right, for example with zkCli.sh of ZooKeeper.",
                MalformedNode(path, image.unreadable[path]),
            )
