"""What the transaction coordinator wants done, and the box in which one event's effects collect.

Every request is answered exactly once; answering twice is a bug of ours and raises.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple, TypeAlias

from strandline.errors import InvariantViolated
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.types import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition

Token: TypeAlias = Hashable


class Call(NamedTuple):
    """One request: a message of the protocol, and what comes back with its one answer."""

    token: Token
    version: int
    body: Any


class Reply(NamedTuple):
    """Answer the request that came with `token`."""

    token: Token
    response: Any


class AppendRecords(NamedTuple):
    """Append these records, as one batch, to a partition of `__transaction_state`.

    Only the leader of `leader_epoch` may do so, with acks=-1. Its end is told with
    `TransactionCoordinator.appended(append_id, ...)`.
    """

    append_id: int
    partition: int
    leader_epoch: LeaderEpoch
    records: tuple[CoordinatorRecord, ...]


class TakeProducerId(NamedTuple):
    """Get a producer id that was never given before; `producer_id_taken` hands it over."""

    request_id: int


class SendMarkers(NamedTuple):
    """End a transaction on every one of its partitions that still exists.

    `markers_written(send_id)` when all have their marker; never, if a newer coordinator has
    fenced this one. Given up by `CancelMarkers` for its partition of `__transaction_state`.
    """

    send_id: int
    partition: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commits: bool
    coordinator_epoch: LeaderEpoch
    transaction_version: int
    partitions: frozenset[TopicPartition]


class CancelMarkers(NamedTuple):
    """Another broker coordinates the transactions of this partition now."""

    partition: int


Effect: TypeAlias = Reply | AppendRecords | TakeProducerId | SendMarkers | CancelMarkers


class Outbox:
    """Collects the effects of one event, in order, and knows which requests are unanswered."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self.unanswered: set[Token] = set()

    def expect(self, token: Token) -> None:
        """A request has come in and will be answered."""
        if token in self.unanswered:
            raise InvariantViolated(f"The token {token!r} is in use by an unanswered request.")
        self.unanswered.add(token)

    def reply(self, token: Token, response: Any) -> None:
        """Answer a request."""
        if token not in self.unanswered:
            raise InvariantViolated(f"The request {token!r} is answered a second time.")
        self.unanswered.remove(token)
        self._effects.append(Reply(token, response))

    def add(self, effect: Effect) -> None:
        """Ask for something else."""
        self._effects.append(effect)

    def drain(self) -> list[Effect]:
        """Hand out what has collected."""
        effects, self._effects = self._effects, []
        return effects
