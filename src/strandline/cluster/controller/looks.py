"""Looks of a controller at its image, none of them at more than has to be looked at.

`reconcile` needs no memory, but a look at all of 10,000 partitions takes milliseconds. After one
that found nothing to do, it is enough to look at what has changed since. One that found something
is followed by looks at the next few partitions that it would find, and by another one at all when
these are done: one step may make another one possible anywhere, or may be refused. Deletions come
last: once nothing else is to be done, a look at what has changed, which goes first, is enough for
each of their steps.
"""

from __future__ import annotations

from typing import Final

from strandline.cluster.controller.decision import Decision
from strandline.cluster.controller.events import DeletionDropped, Event, TopicRemoved
from strandline.cluster.controller.policy import ControllerPolicy
from strandline.cluster.controller.reconciliation import (
    LEADERS_PER_MULTI,
    reconcile,
    touched_by,
    work_ahead,
)
from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.types import TopicPartition

_REPAIRS_AHEAD: Final = 250
"""Ten multis. To find out whether a partition is to be repaired takes some 20 us."""
_STARTS_AHEAD: Final = 10
"""Topics."""


class Looks:
    """See the module. The first one is at all."""

    def __init__(self) -> None:
        self._touched: set[TopicPartition] | None = None
        """The partitions to look at; None: all."""
        self._is_ahead = False
        """Whether they are a part of those that a look at all has found."""
        self._repairs_max = LEADERS_PER_MULTI
        self._passed_over: set[str] = set()
        """Topics whose deletion the store refused: the others come first."""

    def at_all(self) -> None:
        """The next look is at all: there is another controller."""
        self._touched, self._is_ahead = None, False

    def lessen(self) -> bool:
        """Decide about half as many partitions at once, until all is done: the store found the last
        multi too large. False if it was about one."""
        can_lessen = self._repairs_max > 1
        self._repairs_max = max(1, self._repairs_max // 2)
        return can_lessen

    def refused(self, events: tuple[Event, ...]) -> None:
        """The store does not take what was decided. A deletion waits for all others."""
        self._passed_over |= {
            event.topic for event in events if isinstance(event, TopicRemoved | DeletionDropped)
        }

    def follow(self, delta: ImageDelta) -> None:
        """The image has changed."""
        touched = touched_by(delta)
        if self._touched is None or touched is None:
            self.at_all()
        elif not self._is_ahead:  # else the look at all that comes then finds it
            self._touched |= set(touched)

    def decide(self, image: ClusterImage, policy: ControllerPolicy) -> Decision[Event]:
        """What `reconcile` decides, step by step until there is nothing to do."""
        while True:
            decision = reconcile(
                image,
                policy,
                self._touched,
                is_ahead=self._is_ahead,
                repairs_max=self._repairs_max,
                passed_over=self._passed_over,
            )
            if decision.operations:
                if isinstance(decision.results[0], TopicRemoved | DeletionDropped):
                    self._touched = set()  # nothing else is to be done
                elif self._touched is None:
                    ahead = work_ahead(image, policy, repairs=_REPAIRS_AHEAD, starts=_STARTS_AHEAD)
                    self._touched = ahead or None
                    self._is_ahead = bool(ahead)
                elif not self._is_ahead:
                    self._touched = None
                return decision
            if not self._is_ahead and self._passed_over:
                self._passed_over.clear()
            elif not self._is_ahead:
                self._touched = set()
                self._repairs_max = LEADERS_PER_MULTI
                return decision
            self.at_all()
