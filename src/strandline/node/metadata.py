"""The node's view of cluster metadata, and the way to change it.

A change is decided as a list of store operations, written by the driver, and comes back first as
changes (which advance the image) and then as the outcome, which runs what waits for it. Nothing
here assumes that this is quick: with ZooKeeper it is a network round trip.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count

from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.cluster.store import Changes, MalformedNode, NodeChange, Operation, StoreError
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
        """How many partitions a topic of coordinators has, or will have when it is made. All
        brokers must agree on it, whatever their settings say now."""
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
        """Take over what changed in the store.

        A node that cannot be read is left as it was: another program wrote it, and this broker has
        to go on following the rest.
        """
        try:
            self.image, delta = self.image.apply(changes)
        except MalformedNode:
            readable = tuple(each for each in changes.changes if self._can_read(each))
            self.image, delta = self.image.apply(Changes(changes.zxid, readable))
        return delta

    def _can_read(self, change: NodeChange) -> bool:
        try:
            self.image.apply(Changes(self.image.zxid, (change,)))
        except MalformedNode as error:
            log.error("A change of the metadata is ignored. %s", error)
            return False
        return True

    def written(self, token: int, error: StoreError | None, now: Instant) -> None:
        """The driver carried out a `WriteMetadata`."""
        outcome = self._waiting.pop(token, None)
        if outcome is None:
            raise InvariantViolated(f"No metadata write has the token {token}.")
        outcome(error, now)
