"""The transaction coordinator of one broker: routes requests to shards, loads and gives them up.

Transactional ids are spread over the partitions of `__transaction_state`; this broker coordinates
those of the partitions that it leads. A part that decides: events and the time come in, effects
come out (`effects`), in order. After each event ask `next_deadline`, and `tick` then.

A partition is served once everything that was found in it is committed: a decision that could still
be lost with the leadership must not reach a partition as a marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError
from strandline.protocol.coordinator_log import CoordinatorRecord, partition_for
from strandline.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from strandline.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from strandline.protocol.messages.describe_transactions import (
    TransactionState as DescribedState,
)
from strandline.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from strandline.transactions.certainty import FINAL, refuse
from strandline.transactions.effects import Call, Effect, TakeProducerId, Token
from strandline.transactions.ending import NeedsProducerId, end, fence
from strandline.transactions.joining import Joining, join
from strandline.transactions.listing import described, listed
from strandline.transactions.producing import Joins, initialize, refused
from strandline.transactions.settings import TransactionSettings
from strandline.transactions.shard import Change, Entry, Shard, Surroundings
from strandline.transactions.transaction import OPEN, VERSION_2, TransactionState
from strandline.types import Instant, LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition

_NEXT_TURN_MS = 1

_Taken = Callable[[ProducerId | ErrorCode, Instant], None]


@dataclass(frozen=True, slots=True)
class _Owned:
    shard: Shard
    is_loading: bool


class TransactionCoordinator:
    """All transactional ids that one broker coordinates."""

    def __init__(
        self,
        settings: TransactionSettings,
        *,
        partition_count: Callable[[], int],
        version: Callable[[], int] = lambda: VERSION_2,
    ) -> None:
        """`partition_count` tells how many partitions `__transaction_state` has now, `version` that
        of transactions in the cluster (`transaction.version`)."""
        self._settings = settings
        self._surroundings = Surroundings(settings, version)
        self._outbox = self._surroundings.outbox
        self._partition_count = partition_count
        self._version = version
        self._owned: dict[int, _Owned] = {}
        self._newest_epochs: dict[int, LeaderEpoch] = {}
        """The newest epoch heard of, for every partition that was owned or given up since its topic
        was made."""
        self._waiting: dict[int, _Taken] = {}
        """What goes on with a producer id."""
        self._requests = 0
        self._abort_at_ms: int | None = None
        self._expire_at_ms: int | None = None

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` in which an id lives."""
        return partition_for(transactional_id, self._partition_count())

    # Requests.

    def handle(self, call: Call, now: Instant) -> list[Effect]:
        """Handle a request; its one answer is among these or some later effects."""
        self._outbox.expect(call.token)
        self._handle(call, None, now)
        return self._outbox.drain()

    def _handle(self, call: Call, fresh: ProducerId | None, now: Instant) -> None:
        reply = partial(self._outbox.reply, call.token)
        try:
            match call.body:
                case InitProducerIdRequest() as request:
                    shard = self._served(request.transactional_id)
                    initialize(shard, request, fresh, self._version(), now, reply)
                case EndTxnRequest() as request:
                    shard = self._served(request.transactional_id)
                    end(shard, request, call.version, fresh, now, reply)
                case AddPartitionsToTxnRequest() as request:
                    Joining(request, call.version, reply).begin(self._served, now)
                case DescribeTransactionsRequest() as request:
                    states = [self._describe(each) for each in request.transactional_ids]
                    reply(DescribeTransactionsResponse(transaction_states=states))
                case ListTransactionsRequest() as request:
                    reply(self._list(request, now))
                case request:
                    raise InvariantViolated(f"{request!r} is no request to this coordinator.")
        except NeedsProducerId:
            self._take_producer_id(partial(self._handle_with_id, call))
        except ProtocolError as refusal:
            self._refuse(call, refusal.code, now)

    def _refuse(self, call: Call, code: ErrorCode, now: Instant) -> None:
        def answer(error: ErrorCode) -> None:
            self._outbox.reply(call.token, _refused(call, error))

        request = call.body
        if code not in FINAL or not isinstance(request, InitProducerIdRequest | EndTxnRequest):
            answer(code)
            return
        shard = self._served(request.transactional_id)
        producer = request.producer_id, request.producer_epoch
        refuse(shard, request.transactional_id or "", code, producer, now, answer)

    def join(
        self, token: Token, asked: Joins, partitions: frozenset[TopicPartition], now: Instant
    ) -> list[Effect]:
        """As AddPartitionsToTxn, for a partition's leader on this broker; the answer is the outcome
        for each partition."""
        self._outbox.expect(token)
        reply = partial(self._outbox.reply, token)
        join(self._served, asked, partitions, VERSION_2, now, reply, may_wait=True)
        return self._outbox.drain()

    def confirms(
        self,
        transactional_id: str,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        partitions: Set[TopicPartition],
    ) -> bool:
        """Whether the partitions are all part of the producer's open transaction, and nothing is
        being changed: a question about them would be answered so at once."""
        owned = self._owned.get(self.partition_for(transactional_id))
        entry = None if owned is None else owned.shard.entries.get(transactional_id)
        if owned is None or owned.is_loading or entry is None or entry.is_pending:
            return False
        current = entry.current
        return (
            current.state is TransactionState.ONGOING
            and current.producer_id == producer_id
            and current.producer_epoch == producer_epoch
            and partitions <= current.partitions
        )

    def producer_id_taken(
        self, request_id: int, taken: ProducerId | ErrorCode, now: Instant
    ) -> list[Effect]:
        """A `TakeProducerId` was carried out, or refused."""
        self._waiting.pop(request_id)(taken, now)
        return self._outbox.drain()

    def _take_producer_id(self, taken: _Taken) -> None:
        self._requests += 1
        self._waiting[self._requests] = taken
        self._outbox.add(TakeProducerId(self._requests))

    def _handle_with_id(self, call: Call, taken: ProducerId | ErrorCode, now: Instant) -> None:
        if isinstance(taken, ErrorCode):
            self._outbox.reply(call.token, _refused(call, taken))
        else:
            self._handle(call, taken, now)

    def _describe(self, transactional_id: str) -> DescribedState:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        try:
            entry = self._served(transactional_id).entries.get(transactional_id)
            if entry is not None:
                return described(entry)
        except ProtocolError as refusal:
            code = refusal.code
        return DescribedState(transactional_id=transactional_id, error_code=code)

    def _list(self, request: ListTransactionsRequest, now: Instant) -> ListTransactionsResponse:
        if any(owned.is_loading for owned in self._owned.values()):
            return ListTransactionsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        entries = [e for owned in self._owned.values() for e in owned.shard.entries.values()]
        return listed(entries, request, now)

    def _served(self, transactional_id: str | None) -> Shard:
        if not transactional_id:
            raise ProtocolError(ErrorCode.INVALID_REQUEST)
        owned = self._owned.get(self.partition_for(transactional_id))
        if owned is None:
            raise ProtocolError(ErrorCode.NOT_COORDINATOR)
        if owned.is_loading:
            raise ProtocolError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return owned.shard

    # Events.

    def appended(self, append_id: int, error: ErrorCode | None, now: Instant) -> list[Effect]:
        """An append has ended; see `GroupCoordinator.appended` for what errors mean."""
        shard = self._surroundings.appending.get(append_id)
        if shard is not None:
            shard.appended(append_id, error, now)
        return self._outbox.drain()

    def markers_written(self, send_id: int, now: Instant) -> list[Effect]:
        """Every partition of a `SendMarkers` has its marker, or is gone."""
        shard = self._surroundings.sending.get(send_id)
        if shard is not None:
            shard.markers_written(send_id, now)
        return self._outbox.drain()

    def next_deadline(self) -> int | None:
        """The monotonic time at which to call `tick`, or None: nothing is waiting for time."""
        surroundings = self._surroundings
        times: list[int | None] = [surroundings.next_deadline()]
        if self._owned:
            times += [self._abort_at_ms, self._expire_at_ms]
        if surroundings.retrying:
            times += [shard.next_retry() for shard in surroundings.retrying]
        return min([at for at in times if at is not None], default=None)

    def tick(self, now: Instant) -> list[Effect]:
        """Time has passed."""
        self._surroundings.answer_late(now)
        for shard in list(self._surroundings.retrying):
            shard.retry(now)
        if self._abort_at_ms is not None and self._abort_at_ms <= now.monotonic_ms:
            is_done = self._abort_overdue(now)
            pause_ms = self._settings.abort_interval_ms if is_done else _NEXT_TURN_MS
            self._abort_at_ms = now.monotonic_ms + pause_ms
        if self._expire_at_ms is not None and self._expire_at_ms <= now.monotonic_ms:
            is_done = self._expire(now)
            pause_ms = self._settings.expiry_interval_ms if is_done else _NEXT_TURN_MS
            self._expire_at_ms = now.monotonic_ms + pause_ms
        return self._outbox.drain()

    def _abort_overdue(self, now: Instant) -> bool:
        """End what takes too long; False: there is more, for the next turn."""
        overdue = (
            (shard, entry)
            for shard, entry in self._entries()
            if entry.current.is_overdue(now.wall_ms) and not entry.is_pending
        )
        found = list(islice(overdue, self._settings.aborted_per_turn))
        fenced = 0
        for shard, entry in found:
            try:
                fence(shard, entry, self._version(), None, now)
                fenced += 1
            except NeedsProducerId:
                self._take_producer_id(partial(self._fence_with_id, shard, entry))
        return fenced < self._settings.aborted_per_turn

    def _fence_with_id(
        self, shard: Shard, entry: Entry, taken: ProducerId | ErrorCode, now: Instant
    ) -> None:
        owned = self._owned.get(shard.partition)
        is_served = owned is not None and owned.shard is shard
        if (
            is_served
            and not isinstance(taken, ErrorCode)
            and not entry.is_pending
            and entry.current.is_overdue(now.wall_ms)
        ):
            fence(shard, entry, self._version(), taken, now)

    def _expire(self, now: Instant) -> bool:
        """Forget ids that are idle for long; False: there are more, for the next turn."""
        expired = (
            (shard, entry)
            for shard, entry in self._entries()
            if not entry.is_pending
            and entry.current.is_expired(now.wall_ms, self._settings.id_expiration_ms)
        )
        changes: dict[Shard, list[Change]] = {}
        for shard, entry in islice(expired, self._settings.expired_per_turn):
            changes.setdefault(shard, []).append(Change(entry, None))
        for shard, forgotten in changes.items():
            shard.change(forgotten, now)
        return sum(map(len, changes.values())) < self._settings.expired_per_turn

    def _loaded(self) -> Iterator[Shard]:
        """Of a partition that is loading it is not known yet what is the state of which id: what
        looks overdue may be committed in the next record."""
        return (owned.shard for owned in self._owned.values() if not owned.is_loading)

    def _entries(self) -> Iterator[tuple[Shard, Entry]]:
        """All ids that are served."""
        return ((shard, entry) for shard in self._loaded() for entry in shard.entries.values())

    # Partitions.

    def start_loading(self, partition: int, epoch: LeaderEpoch, now: Instant) -> list[Effect]:
        """This broker leads a partition now; it answers "loading" until its records are in."""
        owned = self._owned.get(partition)
        is_known = owned is not None and owned.shard.leader_epoch == epoch
        if epoch < self._newest_epochs.get(partition, epoch) or is_known:
            return []
        self._give_up(partition)
        self._newest_epochs[partition] = epoch
        self._owned[partition] = _Owned(Shard(partition, epoch, self._surroundings), True)
        if self._abort_at_ms is None:
            self._abort_at_ms = now.monotonic_ms + self._settings.abort_interval_ms
            self._expire_at_ms = now.monotonic_ms + self._settings.expiry_interval_ms
        return self._outbox.drain()

    def replay(
        self, partition: int, epoch: LeaderEpoch, records: Iterable[CoordinatorRecord]
    ) -> int:
        """The next records of a partition that is loading; ignored for any other epoch.

        Returns how many were skipped. Raises `CorruptRecords`.
        """
        owned = self._loading(partition, epoch)
        return 0 if owned is None else owned.shard.replay(records)

    def finish_loading(self, partition: int, epoch: LeaderEpoch) -> list[Effect]:
        """All records are in, and committed: serve the partition."""
        owned = self._loading(partition, epoch)
        if owned is not None:
            self._owned[partition] = replace(owned, is_loading=False)
            owned.shard.start()
        return self._outbox.drain()

    def unload_partition(self, partition: int, epoch: LeaderEpoch | None) -> list[Effect]:
        """Another broker leads this partition, since `epoch`. Late news is ignored. None: its topic
        was deleted, and the epochs of one that is made again begin at 0."""
        if epoch is None:
            self._newest_epochs.pop(partition, None)
        elif epoch < self._newest_epochs.get(partition, epoch):
            return []
        else:
            self._newest_epochs[partition] = epoch
        self._give_up(partition)
        return self._outbox.drain()

    def _give_up(self, partition: int) -> None:
        owned = self._owned.pop(partition, None)
        if owned is not None:
            owned.shard.stop()

    def _loading(self, partition: int, epoch: LeaderEpoch) -> _Owned | None:
        owned = self._owned.get(partition)
        if owned is None or owned.shard.leader_epoch != epoch or not owned.is_loading:
            return None
        return owned

    def open_transactions(self) -> list[tuple[int, Entry]]:
        """The transactions that have not ended on all of their partitions, with the partition of
        the state in which they are; the oldest first."""
        found = [
            (shard.partition, entry)
            for shard, entry in self._entries()
            if entry.current.state in OPEN
        ]
        return sorted(found, key=lambda each: each[1].current.started_ms)

    @property
    def is_deciding(self) -> bool:
        """Whether a transaction here is being ended: its decision is being written, or its markers
        are."""
        return any(
            entry.is_busy
            for owned in self._owned.values()
            for entry in owned.shard.entries.values()
        )

    def check(self) -> None:
        """Verify every invariant; for tests and simulators, after each event."""
        for shard in self._loaded():
            shard.check()

    @property
    def unanswered(self) -> frozenset[Token]:
        """Requests that wait for an answer."""
        return frozenset(self._outbox.unanswered)


def _refused(call: Call, code: ErrorCode) -> object:
    match call.body:
        case InitProducerIdRequest():
            return refused(code)
        case EndTxnRequest():
            return EndTxnResponse(error_code=code)
        case ListTransactionsRequest():
            return ListTransactionsResponse(error_code=code)
        case body:
            raise InvariantViolated(f"{body!r} is not refused as a whole.")
