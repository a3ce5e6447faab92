"""Carrying out what the controller decides: decide, write, and decide again if another was faster.

The decisions are pure functions in `cluster.controller`. A multi that the store refuses was decided
from an image that was out of date; the changes that made it so arrive before the refusal does, so
the same decision is simply made again. After a few rounds the client is told to try again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from strandline.cluster.controller import Decision
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import (
    InvalidPath,
    MalformedNode,
    MultiRefused,
    MultiTooLarge,
    OutcomeUnknown,
    StoreError,
)
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.metadata import Metadata
from strandline.node.timers import Timers
from strandline.types import Instant

log = logging.getLogger(__name__)

_ROUNDS_MAX: Final = 10

Result = TypeVar("Result")
Decide = Callable[[ClusterImage], Decision[Result]]
Done = Callable[[tuple[Result, ...], Instant], None]
Failed = Callable[[ProtocolError, Instant], None]


class NotToBeWritten(ProtocolError):
    """The metadata store does not take what was decided, for what it is: too large, or about a node
    that cannot be read or named. Nothing was written; another decision may be."""


class Controller:
    """The way from a decision to its outcome."""

    def __init__(self, metadata: Metadata, timers: Timers) -> None:
        self._metadata = metadata
        self._timers = timers

    def carry_out(
        self, decide: Decide[Result], *, done: Done[Result], failed: Failed, now: Instant
    ) -> None:
        """Make the decision true and tell its results, or why that was not possible."""
        self._round(decide, done, failed, _ROUNDS_MAX, now)

    def in_another_turn(self, work: Callable[[Instant], None], now: Instant) -> None:
        """Go on with a long request; see `Timers.in_another_turn`."""
        self._timers.in_another_turn(work, now)

    def _round(
        self,
        decide: Decide[Any],
        done: Done[Any],
        failed: Failed,
        rounds_left: int,
        now: Instant,
    ) -> None:
        try:
            decision = decide(self._metadata.image)
        except ProtocolError as error:
            failed(error, now)
            return

        def written(error: StoreError | None, at: Instant) -> None:
            unreadable = self._unreadable(error)
            if error is None:
                done(decision.results, at)
            elif unreadable is not None:
                failed(NotToBeWritten(ErrorCode.KAFKA_STORAGE_ERROR, str(unreadable)), at)
            elif _was_out_of_date(error) and rounds_left > 1:
                self._round(decide, done, failed, rounds_left - 1, at)
            else:
                log.warning("A metadata write failed: %s", error)
                failed(_for_clients(error), at)

        self._metadata.write(decision.operations, written, now)

    def _unreadable(self, error: StoreError | None) -> MalformedNode | None:
        """Why the same would be refused for ever: the version of such a node is not known."""
        unreadable = self._metadata.image.unreadable
        if not isinstance(error, MultiRefused) or error.path not in unreadable:
            return None
        return MalformedNode(error.path, unreadable[error.path])


def _was_out_of_date(error: StoreError) -> bool:
    """Whether another decision may be written: a path that cannot be is wrong in any."""
    return isinstance(error, MultiRefused) and not isinstance(error, InvalidPath)


def _for_clients(error: StoreError) -> ProtocolError:
    if isinstance(error, OutcomeUnknown):
        return ProtocolError(
            ErrorCode.REQUEST_TIMED_OUT,
            "The metadata store did not say whether it wrote the change.",
        )
    if isinstance(error, InvalidPath):
        return NotToBeWritten(
            ErrorCode.INVALID_REQUEST,
            f"The metadata store can have no node {error.path!r} for what the request names.",
        )
    if isinstance(error, MultiRefused):
        return ProtocolError(
            ErrorCode.NOT_CONTROLLER, "The metadata kept changing under the request: try again."
        )
    if isinstance(error, MultiTooLarge):
        return NotToBeWritten(
            ErrorCode.INVALID_REQUEST,
            "The request changes more at once than the metadata store takes.",
        )
    return ProtocolError(
        ErrorCode.KAFKA_STORAGE_ERROR,
        f"The metadata store cannot be written at the moment. {error}",
    )
