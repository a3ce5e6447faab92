"""Looks of a controller at its image, none of them at more than has to be looked at.

`reconcile` needs no memory, but a look at all of 10,000 partitions takes milliseconds. After one
that found nothing to do, it is enough to look at what has changed since. One that found something
is followed by looks at the next few partitions that it would find, and by another one at all when
these are done: one step may make another one possible anywhere, or may be refused.
"""

from __future__ import annotations

from typing import Final

from strandline.cluster.controller.decision import Decision
from strandline.cluster.controller.events import Event
from strandline.cluster.controller.policy import ControllerPolicy
from strandline.cluster.controller.reconciliation import (
    partitions_to_repair,
    reconcile,
    touched_by,
)
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.types import TopicPartition

_AHEAD_MAX: Final = 250
"""Ten multis. To find out whether a partition is to be repaired takes some 20 us."""


class Looks:
    """See the module. The first one is at all."""

    def __init__(self) -> None:
        self._touched: set[TopicPartition] | None = None
        """The partitions to look at; None: all."""
        self._is_ahead = False
        """Whether they are a part of those that a look at all has found."""

    def at_all(self) -> None:
        """The next look is at all: there is another controller."""
        self._touched = None

    def follow(self, delta: ImageDelta) -> None:
        """The image has changed."""
        if self._touched is not None:
            touched = touched_by(delta)
            self._touched = None if touched is None else self._touched | set(touched)

    def decide(self, image: ClusterImage, policy: ControllerPolicy) -> Decision[Event]:
        """What `reconcile` decides, step by step until there is nothing to do."""
        while True:
            decision = reconcile(image, policy, self._touched)
            if decision.operations:
                if self._touched is None:
                    self._touched = set(partitions_to_repair(image, policy, _AHEAD_MAX))
                    self._is_ahead = True
                elif not self._is_ahead:
                    self._touched = None
                return decision
            if not self._is_ahead:
                self._touched = set()
                return decision
            self._is_ahead = False
            self._touched = None
