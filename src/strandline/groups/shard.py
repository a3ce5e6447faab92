"""One partition of `__consumer_offsets` as its coordinator holds it: groups, offsets, appends.

Knows how records become durable and what that does to the state. The theory: a record is
*appended* (an effect), then either refused (it is not in the log and never will be) or *durable*
(replicated; a new coordinator would find it). Requests that depend on it wait for the first of:
durable, refused, or overdue; being overdue answers the request, and says nothing about the record,
which stays in flight. Must not know what joins, commits and rebalances are; those use `append` and
`when_settled`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Final

from strandline.errors import ErrorCode, InvariantViolated
from strandline.groups.consumer.cluster_view import ClusterView, NoCluster
from strandline.groups.consumer.group import ConsumerGroup
from strandline.groups.counts import add
from strandline.groups.effects import (
    AppendMarker,
    AppendRecords,
    AskStates,
    Outbox,
    TransactionalProducer,
)
from strandline.groups.offset_records import (
    OffsetRecord,
    StateRecord,
    encode_record,
)
from strandline.groups.requests import Response, Token
from strandline.groups.settings import GroupSettings
from strandline.groups.shard_state import ShardState
from strandline.groups.timers import Action, Timers
from strandline.protocol.coordinator_log import APPEND_ERRORS, APPEND_UNDECIDED
from strandline.protocol.messages.write_txn_markers import WritableTxnMarker
from strandline.types import (
    NO_TOPIC_ID,
    Instant,
    LeaderEpoch,
    ProducerId,
    TopicId,
)

Outcome = Callable[[ErrorCode | None, Instant], None]
"""Told once how an append ended: None for durable, or why it is not, or not yet."""

StatesTold = Callable[[Mapping[tuple[TopicId, int], ErrorCode], Instant], None]
"""Told once what became of each share partition that share coordinators were asked about."""

_STEP_DISTANCE_MS: Final = 10

_COORDINATOR_ERRORS: Final = {
    **APPEND_ERRORS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """What a group's client is told if an append ended with `error`."""
    return _COORDINATOR_ERRORS.get(error, error)


@dataclass(slots=True)
class Surroundings:
    """What all shards of a coordinator share."""

    settings: GroupSettings
    random: Random
    cluster: ClusterView = field(default_factory=NoCluster)
    outbox: Outbox = field(default_factory=Outbox)
    timers: Timers = field(default_factory=Timers)
    appends: int = 0
    """How many appends there have been; the newest one's id."""
    questions: int = 0
    """The newest `AskStates`."""
    next_step_ms: int = 0
    """Before this monotonic time no other step of long work is due."""
    asking: dict[int, tuple[Shard, StatesTold]] = field(default_factory=dict)
    """Whose questions share coordinators have not answered."""


@dataclass(slots=True)
class _PendingAppend:
    records: tuple[StateRecord, ...]
    outcomes: list[Outcome]
    producer_id: ProducerId | None = None
    """Of the transaction that the records are part of."""
    marker: WritableTxnMarker | None = None


NO_STARTS: Final[Mapping[tuple[TopicId, int], int]] = MappingProxyType({})
MOVED: Final[Mapping[tuple[TopicId, int], ErrorCode]] = MappingProxyType(
    {(NO_TOPIC_ID, 0): ErrorCode.NOT_COORDINATOR}
)
"""In place of all answers, if there is another coordinator."""


class Shard:
    """The state of one partition, under one leader epoch."""

    def __init__(
        self, partition: int, leader_epoch: LeaderEpoch, surroundings: Surroundings
    ) -> None:
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.settings = surroundings.settings
        self.cluster = surroundings.cluster
        self.random = surroundings.random
        self._state = ShardState(self._undecided, self.is_writing, self.cancel)
        self.groups = self._state.groups
        self.consumer_groups = self._state.consumer_groups
        self.share_groups = self._state.share_groups
        self.offsets = self._state.offsets
        self._surroundings = surroundings
        self._pending: dict[int, _PendingAppend] = {}
        """Appends that are neither durable nor refused, in the order of the log."""
        self._loaded: int | None = None
        self._writing: Counter[str] = Counter()
        """How many pending appends hold a record of each group; no zeros."""

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The consumer group of that name, if there is one."""
        group = self.consumer_groups.get(group_id)
        return group if group is not None and group.image.exists else None

    # Answers and timers.

    def reply(self, token: Token, response: Response) -> None:
        """Answer a request."""
        self._surroundings.outbox.reply(token, response)

    def schedule(self, kind: str, *ids: object, now: Instant, delay_ms: int, do: Action) -> None:
        """Do something later. Never at once: a delay of zero must not run in a circle."""
        deadline_ms = now.monotonic_ms + max(delay_ms, 1)
        self._surroundings.timers.schedule((self.partition, kind, *ids), deadline_ms, do)

    def schedule_step(self, kind: str, *ids: object, now: Instant, do: Action) -> None:
        """Do a step of work that takes long, soon. All such steps, of whatever shard, keep a
        distance, in which other clients are served."""
        around = self._surroundings
        at_ms = max(now.monotonic_ms + 1, around.next_step_ms)
        around.next_step_ms = at_ms + _STEP_DISTANCE_MS
        self.schedule(kind, *ids, now=now, delay_ms=at_ms - now.monotonic_ms, do=do)

    def cancel(self, kind: str, *ids: object) -> None:
        """Do not do it."""
        self._surroundings.timers.cancel((self.partition, kind, *ids))

    def is_scheduled(self, kind: str, *ids: object) -> bool:
        """Whether it is going to be done."""
        return (self.partition, kind, *ids) in self._surroundings.timers

    # Appends.

    def append(
        self,
        records: Sequence[StateRecord],
        now: Instant,
        outcome: Outcome | None = None,
        *,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Write records as one batch, maybe of a transaction; returns the append's id. Raises
        `InvariantViolated` for records that cannot be encoded, and then nothing has happened."""
        # First of all: an append that is pending and never handed out would hold up all others.
        encoded = tuple(encode_record(record) for record in records)
        append_id = self._next_append_id()
        outcomes = [] if outcome is None else [outcome]
        pending = self._pending[append_id] = _PendingAppend(tuple(records), outcomes)
        self._writing.update({record.group_id for record in records})
        offsets = [record for record in records if isinstance(record, OffsetRecord)]
        if producer is None:
            self.offsets.begin(append_id, offsets)
        else:
            pending.producer_id = producer.producer_id
            self.offsets.begin_pending(append_id, producer.producer_id, offsets)
        self._surroundings.outbox.append(
            AppendRecords(append_id, self.partition, self.leader_epoch, encoded, producer)
        )
        self._expect_end(append_id, now)
        return append_id

    def append_marker(self, marker: WritableTxnMarker, now: Instant, outcome: Outcome) -> None:
        """Write the end of a transaction, with which its offsets become committed, or vanish."""
        append_id = self._next_append_id()
        self._pending[append_id] = _PendingAppend((), [outcome], marker=marker)
        self._surroundings.outbox.append(
            AppendMarker(append_id, self.partition, self.leader_epoch, marker)
        )
        self._expect_end(append_id, now)

    def expect_loaded(self) -> int:
        """What was read from the log is not committed to its end yet: an append without records
        stands for it, before all others; returns its id."""
        append_id = self._loaded = self._next_append_id()
        self._pending[append_id] = _PendingAppend((), [])
        return append_id

    def found_open(self, producer_id: ProducerId, record: OffsetRecord) -> None:
        """An offset of an open transaction was read from the log, behind the one before."""
        self.offsets.begin_pending(self._next_append_id(), producer_id, [record])

    def _next_append_id(self) -> int:
        self._surroundings.appends += 1
        return self._surroundings.appends

    @property
    def unsettled_load(self) -> int | None:
        """The append that stands for what was loaded, while that may still be lost."""
        return self._loaded if self._loaded in self._pending else None

    def is_pending(self, append_id: int | None) -> bool:
        """Whether an append is neither durable nor refused."""
        return append_id in self._pending

    def when_settled(self, append_id: int, now: Instant, outcome: Outcome) -> None:
        """Be told the end of an append that is under way, within the time for a new one."""
        self._pending[append_id].outcomes.append(outcome)
        if not self.is_scheduled("append", append_id):
            self._expect_end(append_id, now)

    def is_writing(self, group_id: str) -> bool:
        """Whether records of this group are under way."""
        return group_id in self._writing

    def appended(self, append_id: int, error: ErrorCode | None, now: Instant) -> bool:
        """An append has ended; False if it only takes longer than it should."""
        if error in APPEND_UNDECIDED:
            self._tell_outcomes(append_id, error, now)
            return False
        if error is None and append_id != next(iter(self._pending)):
            raise InvariantViolated(
                f"Append {append_id} to partition {self.partition} is durable before earlier ones."
            )
        pending = self._pending.pop(append_id)
        add(self._writing, {record.group_id for record in pending.records}, -1)
        durable = error is None
        if pending.marker is not None and durable:
            self._state.end_transaction(pending.marker)
        self._state.settle(append_id, pending.records, pending.producer_id, durable=durable)
        self.cancel("append", append_id)
        for outcome in pending.outcomes:
            outcome(error, now)
        return True

    def ask_states(
        self,
        kind: str,
        group_id: str,
        partitions: Mapping[TopicId, Iterable[int]],
        told: StatesTold,
        *,
        now: Instant,
        state_epoch: int = 0,
        starts: Mapping[tuple[TopicId, int], int] = NO_STARTS,
    ) -> None:
        """Have share coordinators begin, or end, their states of a group's partitions."""
        asked = tuple(
            (topic_id, number) for topic_id, each in partitions.items() for number in sorted(each)
        )
        if not asked:
            told({}, now)
            return
        around = self._surroundings
        around.questions += 1
        around.asking[around.questions] = (self, told)
        around.outbox.ask(
            AskStates(around.questions, self.partition, kind, group_id, asked, state_epoch, starts)
        )

    def close(self, now: Instant) -> None:
        """Give up the partition: requests that still wait for an append, or for an answer of share
        coordinators, are answered."""
        asking = self._surroundings.asking
        for question_id in [each for each, asked in asking.items() if asked[0] is self]:
            asking.pop(question_id)[1](MOVED, now)
        for append_id in list(self._pending):
            self._tell_outcomes(append_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, now)
        self._pending.clear()
        timers = self._surroundings.timers
        for key in [key for key in timers if isinstance(key, tuple) and key[0] == self.partition]:
            timers.cancel(key)

    def check(self) -> None:
        """Verify that no request waits for an append for ever."""
        for append_id, pending in self._pending.items():
            if pending.outcomes and not self.is_scheduled("append", append_id):
                raise InvariantViolated(
                    f"Append {append_id} is waited for without a limit.", invariant="I-50"
                )

    def _undecided(self) -> Iterator[StateRecord]:
        for pending in self._pending.values():
            yield from pending.records

    def _expect_end(self, append_id: int, now: Instant) -> None:
        self.schedule(
            "append",
            append_id,
            now=now,
            delay_ms=self.settings.offset_commit_timeout_ms,
            do=lambda late: self._tell_outcomes(append_id, ErrorCode.REQUEST_TIMED_OUT, late),
        )

    def _tell_outcomes(self, append_id: int, error: ErrorCode, now: Instant) -> None:
        self.cancel("append", append_id)
        pending = self._pending[append_id]
        outcomes, pending.outcomes = pending.outcomes, []
        for outcome in outcomes:
            outcome(error, now)
