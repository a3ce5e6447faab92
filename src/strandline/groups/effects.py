"""What the coordinator wants done, and the box in which one event's effects collect.

Knows the effects (`Reply` and appends) and which requests are still unanswered. Every request is
answered exactly once: answering twice is a bug of ours and raises; a request whose connection has
gone (`forget`) is answered into the void.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.errors import InvariantViolated
from strandline.groups.requests import Response, Token
from strandline.protocol.coordinator_log import CoordinatorRecord
from strandline.protocol.messages.write_txn_markers import WritableTxnMarker
from strandline.types import LeaderEpoch, ProducerEpoch, ProducerId, TopicId


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request that came with `token`."""

    token: Token
    response: Response


@dataclass(frozen=True, slots=True)
class TransactionalProducer:
    """Who commits offsets as part of a transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    guard: int = 0
    """What the log wants to see of a producer whose transaction was verified."""


@dataclass(frozen=True, slots=True)
class AppendRecords:
    """Append these records, as one batch, to a partition of `__consumer_offsets`.

    Only the leader of `leader_epoch` may do so, with acks=-1. Its end is told with
    `GroupCoordinator.appended(append_id, ...)`.
    """

    append_id: int
    partition: int
    leader_epoch: LeaderEpoch
    records: tuple[CoordinatorRecord, ...]
    producer: TransactionalProducer | None = None
    """Whose transaction the records are part of."""


@dataclass(frozen=True, slots=True)
class AppendMarker:
    """Append the end of a transaction to a partition of `__consumer_offsets`.

    As `AppendRecords`; `marker` says whose transaction ends, and how.
    """

    append_id: int
    partition: int
    leader_epoch: LeaderEpoch
    marker: WritableTxnMarker


@dataclass(frozen=True, slots=True)
class AskStates:
    """Have share coordinators begin, or end, their states of a share group's partitions.

    What becomes of each partition is told with `GroupCoordinator.states_answered`.
    """

    question_id: int
    partition: int
    """That of `__consumer_offsets` whose coordinator asks."""
    kind: str
    """`initialize` or `delete`."""
    group_id: str
    partitions: tuple[tuple[TopicId, int], ...]
    state_epoch: int
    """Of states that begin."""
    starts: Mapping[tuple[TopicId, int], int]
    """Where partitions start, if that is not for their leaders to say."""


Effect = Reply | AppendRecords | AppendMarker | AskStates


class Outbox:
    """Collects the effects of one event, in order, and knows which requests are unanswered."""

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self._unanswered: set[Token] = set()
        self._forgotten: set[Token] = set()

    @property
    def unanswered(self) -> frozenset[Token]:
        """Requests that wait for an answer, those with a lost connection included."""
        return frozenset(self._unanswered | self._forgotten)

    def expect(self, token: Token) -> None:
        """A request has come in and will be answered."""
        if token in self._unanswered or token in self._forgotten:
            raise InvariantViolated(f"The token {token!r} is in use by an unanswered request.")
        self._unanswered.add(token)

    def forget(self, token: Token) -> None:
        """This answer is not waited for any more. Harmless for a token that is answered already."""
        if token in self._unanswered:
            self._unanswered.remove(token)
            self._forgotten.add(token)

    def reply(self, token: Token, response: Response) -> None:
        """Answer a request."""
        if token in self._forgotten:
            self._forgotten.remove(token)
            return
        if token not in self._unanswered:
            raise InvariantViolated(f"The request {token!r} is answered a second time.")
        self._unanswered.remove(token)
        self._effects.append(Reply(token, response))

    def append(self, effect: AppendRecords | AppendMarker) -> None:
        """Ask for an append."""
        self._effects.append(effect)

    def ask(self, effect: AskStates) -> None:
        """Ask share coordinators."""
        self._effects.append(effect)

    def drain(self) -> list[Effect]:
        """Hand out what has collected."""
        effects, self._effects = self._effects, []
        return effects
