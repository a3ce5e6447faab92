"""Multis on their way to ZooKeeper and back: when may their callers go on?

A multi that was answered ends when the round of reading that covers its changes has been told; one
whose answer was lost ends when the store is up to date again. Knows no connection and no clock:
the caller that waits for an outcome sets the limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from strandline.broker.zookeeper_requests import Multi
from strandline.cluster.store import MultiResult, OutcomeUnknown, StoreError
from strandline.errors import InvariantViolated

_LOST = "The connection to ZooKeeper was lost during a write."


@dataclass(slots=True, eq=False)
class Write:
    """A multi under way."""

    request: Multi
    outcome: asyncio.Future[MultiResult]
    result: MultiResult | StoreError | None = field(default=None)
    """What it came to; None until it was answered."""
    published_with: int = 0
    """The round of reading that its caller waits for, once it has a result."""
    is_lost: bool = False

    def end(self) -> None:
        """Let the caller go on with the result."""
        if self.outcome.done():
            return
        match self.result:
            case None:
                raise InvariantViolated("A multi ends before it was answered.")
            case StoreError() as error:
                self.outcome.set_exception(error)
            case results:
                self.outcome.set_result(results)


class Writes:
    """All multis under way, in the order in which they were begun."""

    def __init__(self) -> None:
        self._under_way: dict[Write, None] = {}

    def begin(self, request: Multi) -> Write:
        """A multi is about to be sent. To be forgotten when its caller goes on."""
        write = Write(request, asyncio.get_running_loop().create_future())
        self._under_way[write] = None
        return write

    def forget(self, write: Write) -> None:
        """Drop a write whose caller has stopped waiting for the outcome."""
        self._under_way.pop(write, None)

    def answered(self, write: Write, results: Sequence[object], *, published_with: int) -> None:
        """The server did the multi, or refused it; the caller waits for that round to be told."""
        try:
            write.result = write.request.outcome(results)
        except StoreError as refusal:
            write.result = refusal
        write.published_with = published_with

    def failed(self, write: Write, error: StoreError) -> None:
        """The multi was certainly not done, for a reason that no change of nodes explains."""
        write.result = error
        write.end()

    def lost(self, write: Write) -> None:
        """The answer will not come."""
        write.is_lost = True

    def published(self, published_round: int) -> None:
        """Everything that was read up to this round has been told."""
        for write in tuple(self._under_way):
            if write.result is not None and write.published_with <= published_round:
                write.end()

    def up_to_date(self) -> None:
        """The listener is about to hear everything that happened while answers were lost."""
        for write in self._under_way:
            if write.is_lost:
                write.result = OutcomeUnknown(_LOST)

    def give_up(self, reason: str) -> None:
        """Nothing will come any more."""
        for write in self._under_way:
            if write.result is None:
                write.result = OutcomeUnknown(reason)
            write.end()
