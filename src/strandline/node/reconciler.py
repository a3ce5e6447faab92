"""Keeping something true in the metadata: look, write what is missing, look again.

A reconciler is level-triggered: it does not matter which event made it necessary, or whether
an event was missed, because every look is at the whole image. At most one of its writes is under
way. A write that was refused was decided from an old image: the newer one is looked at. One that
is too large is decided again for less. A store that cannot write is asked again after a pause.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from strandline.cluster.controller import Decision
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import MultiRefused, MultiTooLarge, StoreError, Zxid
from strandline.errors import InvariantViolated
from strandline.node.metadata import Metadata
from strandline.node.timers import Timer, Timers
from strandline.types import Instant

log = logging.getLogger(__name__)

_PAUSE_MIN_MS: Final = 50
_PAUSE_MAX_MS: Final = 2000

Result = TypeVar("Result")


def _cannot() -> bool:
    return False


def _ignore(results: tuple[object, ...]) -> None:
    del results


class Reconciler(Generic[Result]):
    """One thing that this node sees to. `wake` it when it may be needed, `act` once per turn."""

    def __init__(
        self,
        metadata: Metadata,
        timers: Timers,
        purpose: str,
        decide: Callable[[ClusterImage, Instant], Decision[Result]],
        done: Callable[[tuple[Result, ...], Instant], None],
        *,
        lessen: Callable[[], bool] = _cannot,
        refused: Callable[[tuple[Result, ...]], None] = _ignore,
    ) -> None:
        """`purpose` completes "could not ..." in the log; no operations mean: nothing to do.

        `lessen` is to make `decide` write less at once; it tells whether that is possible.
        `refused` is told the results of what was refused although the image was up to date.
        """
        self._metadata = metadata
        self._timers = timers
        self._purpose = purpose
        self._decide = decide
        self._done = done
        self._lessen = lessen
        self._refused = refused
        self._is_due = False
        self._is_writing = False
        self._failures = 0
        self._pause: Timer | None = None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is under way and nothing is to be looked at."""
        return not (self._is_due or self._is_writing or self._is_pausing)

    @property
    def _is_pausing(self) -> bool:
        return self._pause is not None and self._pause.callback is not None

    def check(self) -> None:
        """Raise `InvariantViolated` if what could not be written is not tried again (I-51)."""
        if self._failures and self.is_at_rest:
            raise InvariantViolated(
                f"It could not {self._purpose}, and that is not tried again.", invariant="I-51"
            )

    def wake(self) -> None:
        """Look at the image again, at the end of this turn."""
        self._is_due = True

    def act(self, now: Instant) -> None:
        """Look, if there is a reason to, and begin to write what is missing."""
        if not self._is_due or self._is_writing:
            return
        self._is_due = False
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        image = self._metadata.image
        try:
            decision = self._decide(image, now)
        except Exception:
            # A bug of ours in one decision: the turn serves the rest of the node, too.
            log.exception("A bug: it could not be decided how to %s", self._purpose)
            self._retry(now)
            return
        if not decision.operations:
            self._failures = 0
            return
        self._is_writing = True

        def written(error: StoreError | None, at: Instant) -> None:
            self._written(decision, image.zxid, error, at)

        self._metadata.write(decision.operations, written, now)

    def _written(
        self, decision: Decision[Result], seen: Zxid, error: StoreError | None, now: Instant
    ) -> None:
        self._is_writing = False
        if error is None:
            self._failures = 0
            self._is_due = True
            self._done(decision.results, now)
        elif self._can_go_on(error, seen):
            self._is_due = True
        else:
            if isinstance(error, MultiRefused):
                self._refused(decision.results)
            if not self._failures:
                log.warning("Could not %s, and will try again: %s", self._purpose, error)
            self._retry(now)

    def _can_go_on(self, error: StoreError, seen: Zxid) -> bool:
        """Whether the next decision is another one."""
        if isinstance(error, MultiTooLarge):
            return self._lessen()
        return isinstance(error, MultiRefused) and self._metadata.image.zxid > seen

    def _retry(self, now: Instant) -> None:
        pause_ms = min(_PAUSE_MAX_MS, _PAUSE_MIN_MS << min(self._failures, 10))
        self._failures += 1
        self._pause = self._timers.schedule(now.monotonic_ms + pause_ms, self._resume)

    def _resume(self, now: Instant) -> None:
        del now
        self._is_due = True
