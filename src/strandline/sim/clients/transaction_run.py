"""One producer of a transactional id, from its beginning until it dies, is fenced or is done.

What is decided is decided as for users, by `client.transaction_manager` and `produce_queues`; this
file drives both on the simulated network, and writes down what the history must know: records when
they may be at a broker, the commit when it is asked for, its answer. A run may fall asleep: then
nothing happens to it, as to a process that is stopped, and what came meanwhile is there when it
wakes up, perhaps as a zombie.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final, Protocol

from strandline.client.channel import RequestFailed
from strandline.client.coordinator_client import Ask, Outcome
from strandline.client.group_requests import Committed, Membership
from strandline.client.produce_messages import highest_version, produce_request
from strandline.client.produce_policy import ProducePolicy
from strandline.client.produce_queues import ProduceQueues
from strandline.client.transaction_manager import TransactionManager
from strandline.client.transaction_settings import TransactionSettings
from strandline.client.transaction_state import State
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from strandline.sim.clients.batches import RecordedBatch, encode, offsets_of, sends_of
from strandline.sim.clients.client import place_of
from strandline.sim.clients.cluster import Cluster
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import (
    Acknowledged,
    CommitAsked,
    OffsetsSent,
    TransactionBegan,
    TransactionEnded,
    WriterBegan,
)
from strandline.types import BrokerId, Offset, TopicId, TopicPartition

APPEND_TIMEOUT_MS: Final = 3_000
_REQUEST_TIMEOUT_MS: Final = 5_000
_PATIENT_MS: Final = 10**9
_EPOCH: Final = 2**40


class RunOwner(Protocol):
    """The client whose program a run is: what it wants, its clock, and where it counts.

    - `topic`: which it writes to; `source`: whose offset it stores for `group`.
    - `version`: of the transaction protocol.
    """

    name: str
    random: Random
    transactional_id: str
    topic: str
    source: TopicPartition
    group: str
    version: int
    timeout_ms: int
    in_flight_max: int
    world: ClientWorld

    @property
    def counters(self) -> Counter[str]: ...

    @property
    def now_ms(self) -> int: ...

    @property
    def now_us(self) -> int: ...

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Let something happen after so long."""


class TransactionRun:
    """See the module. It is the `ProduceWatcher` of its queues."""

    def __init__(self, owner: RunOwner, writer: int, cluster: Cluster) -> None:
        self.writer = writer
        self.cluster = cluster
        self.is_over = False
        self.is_asleep = False
        self.changed: Callable[[], None] = lambda: None
        """Called when something has happened: a call of its program may be done."""
        self._owner = owner
        self._name = f"{owner.name}.{writer}"
        self._missed: list[Callable[[], None]] = []
        settings = TransactionSettings(
            transactional_id=owner.transactional_id,
            timeout_ms=owner.timeout_ms,
            request_timeout_ms=_REQUEST_TIMEOUT_MS,
        )
        cluster.router.learn_features(_EPOCH, {"transaction.version": owner.version})
        self.manager = TransactionManager(settings, cluster.router, owner.random)
        policy = ProducePolicy(
            batches_in_flight_max=owner.in_flight_max,
            delivery_timeout_ms=_PATIENT_MS,
            topic_wait_ms=_PATIENT_MS,
        )
        self._queues: ProduceQueues[RecordedBatch] = ProduceQueues(
            policy, owner.random, encode, self, self.manager.identity
        )
        self._queues.join_transactions(self.manager)
        self._count = 0
        self._transaction = ""
        self._written: list[tuple[RecordedBatch, Offset]] = []
        self._woken_at_ms: int | None = None
        self._was_initialized = False
        cluster.topics = sorted({owner.topic, owner.source.topic})
        cluster.changed = self.happened(self.pump)

    # -- What its program does ---------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a call of the program is not done."""
        return self.manager.is_busy

    @property
    def has_batches(self) -> bool:
        """Whether a batch has no outcome."""
        return self._queues.has_work

    def begin(self) -> None:
        """Begin a transaction."""
        self.manager.begin()
        self._count += 1
        self._transaction = f"{self._name}/{self._count}"
        self._written = []
        self._owner.world.history.append(
            TransactionBegan(self._transaction, self._owner.transactional_id, self.writer)
        )

    def send(self, batch: RecordedBatch) -> None:
        """Send a batch in the transaction."""
        self._queues.add(batch)
        self.pump()

    def send_offset(self, offset: int, *, group: str = "", rises: bool = True) -> None:
        """Store an offset of the source with the transaction, for that group or the usual one.
        `rises`: each is higher than all before, so that it says which transaction has stored it."""
        owner = self._owner
        if rises:
            owner.world.history.append(OffsetsSent(self._transaction, offset))
        stored = {owner.source: Committed(Offset(offset))}
        self.manager.send_offsets(stored, Membership(group or owner.group, None))
        self.pump()

    def commit(self) -> None:
        """Commit; done when not busy."""
        self.manager.commit()
        self.pump()

    def abort(self) -> None:
        """Abort; done when not busy."""
        self.manager.abort()
        self.pump()

    def end(self) -> None:
        """The process is gone."""
        self.is_over = True
        self.cluster.close()

    def sleep(self) -> None:
        """Stop the process."""
        self.is_asleep = True

    def wake(self) -> None:
        """Let it go on."""
        self.is_asleep = False
        missed, self._missed = self._missed, []
        for each in missed:
            each()
        self.pump()

    def happened(self, action: Callable[..., None]) -> Callable[..., None]:
        """The action, unless it is over; put off while it sleeps."""

        def told(*arguments: Any) -> None:
            if self.is_over:
                return
            if self.is_asleep:
                self._missed.append(partial(told, *arguments))
            else:
                action(*arguments)

        return told

    # -- Driving the core --------------------------------------------------------------------

    def pump(self) -> None:
        """Send what can be sent, and see whether a call is done."""
        if self.is_over or self.is_asleep:
            return
        now_ms = self._owner.now_ms
        self._queues.give_up_old(now_ms)
        for queue in self._queues.busy:
            topic_id = self.cluster.topic_id(queue.topic_partition.topic)
            self._queues.give_up_former(queue, topic_id)
        self._send_batches()
        state = self.manager.state
        for ask in self.manager.step(now_ms):
            self._ask(ask)
        self._note(state)
        self._wake_for(self.manager.wake_ms)
        self._wake_for(self._queues.next_ms(now_ms))
        if not self.is_busy:
            self.changed()

    def _note(self, before: State) -> None:
        """Write down what a change of the state means."""
        state, history = self.manager.state, self._owner.world.history
        if state is not State.READY or before is state:
            return
        if before is State.INITIALIZING:
            history.append(WriterBegan(self._owner.transactional_id, self.writer))
        elif before in (State.COMMITTING, State.ABORTING):
            is_committed = before is State.COMMITTING
            history.append(TransactionEnded(self._transaction, is_committed))
            self._owner.counters[f"transaction {'committed' if is_committed else 'aborted'}"] += 1
            for batch, base in self._written if is_committed else ():
                history.extend(
                    Acknowledged(batch.place, value, offset)
                    for value, offset in zip(batch.values, offsets_of(batch, base), strict=True)
                )

    def _send_batches(self) -> None:
        wanted: dict[BrokerId, dict[TopicPartition, RecordedBatch]] = {}
        again = has_sent = False
        for queue in self._queues.busy:
            at = queue.topic_partition
            leader = self.cluster.leader(at)
            if leader is None or self.cluster.view(at.topic) is None:
                continue
            for batch in self._queues.sendable(queue, self._owner.now_ms):
                # One batch per partition and request: a broker takes no more.
                again |= at in wanted.get(leader.broker_id, {})
                wanted.setdefault(leader.broker_id, {}).setdefault(at, batch)
        for broker_id, batches in wanted.items():
            connection = self.cluster.connection(broker_id)
            if connection is None:
                self._wake_for(self.cluster.closed_until_us(broker_id) // 1000 + 1)
                continue
            for batch in batches.values():
                self._note_sent(batch)
            ids = {at.topic: self.cluster.topic_id(at.topic) for at in batches}
            request = produce_request(
                [(at, self._queues.prepare(batch)) for at, batch in batches.items()],
                ids,
                acks=-1,
                timeout_ms=APPEND_TIMEOUT_MS,
                transactional_id=self._owner.transactional_id,
            )
            self._queues.sent(batches.values(), ids)
            highest = highest_version(ids, self._queues.highest_produce)
            version = self.cluster.versions.of(ApiKey.PRODUCE)
            then = self.happened(partial(self._told, batches, ids))
            self.cluster.ask(
                connection,
                ApiKey.PRODUCE,
                request,
                then,
                version=version if highest is None else min(version, highest),
            )
            has_sent = True
        if again and has_sent:
            self._send_batches()

    def _note_sent(self, batch: RecordedBatch) -> None:
        batch.attempts += 1
        if batch.attempts > 1:
            self._owner.counters["transactional batch sent again"] += 1
        if batch.place:
            return
        at = batch.topic_partition
        batch.place = place_of(at, self.cluster.topic_id(at.topic))
        self._owner.world.history.extend(sends_of(batch, self._name, self._transaction))

    def _told(
        self,
        batches: dict[TopicPartition, RecordedBatch],
        ids: dict[str, TopicId],
        outcome: Outcome,
    ) -> None:
        now_ms = self._owner.now_ms
        if isinstance(outcome, RequestFailed):
            self.cluster.stale()
            error = ProtocolError(ErrorCode.NETWORK_EXCEPTION, outcome.reason)
            self._queues.lost(batches.values(), error, now_ms, was_sent=outcome.was_sent)
        else:
            self._queues.answered(batches, ids, outcome, now_ms)
        self.pump()

    def _ask(self, ask: Ask) -> None:
        if ask.to is None:
            connection = self.cluster.any_connection()
        else:
            connection = self.cluster.connection(ask.to, "coordinator")
        then = self.happened(partial(self._answered, ask))
        if connection is None:
            failed = RequestFailed("left alone", was_sent=False)
            self._owner.world.schedule.after(0, partial(then, failed))
            return
        if ask.key is ApiKey.END_TXN and self.manager.state is State.COMMITTING:
            self._owner.world.history.append(CommitAsked(self._transaction))
        version = self.cluster.versions.of(ask.key)
        if ask.highest is not None:
            version = min(version, ask.highest)
        self.cluster.ask(
            connection,
            ask.key,
            ask.request(version),
            then,
            version=version,
            timeout_us=1000 * ask.timeout_ms,
        )

    def _answered(self, ask: Ask, outcome: Outcome) -> None:
        state = self.manager.state
        self.manager.answered(ask, outcome, self._owner.now_ms)
        self._note(state)
        self.pump()

    def _wake_for(self, wake_ms: int | None) -> None:
        now_ms = self._owner.now_ms
        if wake_ms is None or (
            self._woken_at_ms is not None and now_ms < self._woken_at_ms <= wake_ms
        ):
            return
        self._woken_at_ms = wake_ms = max(wake_ms, now_ms + 1)

        def due() -> None:
            if self._woken_at_ms == wake_ms:
                self._woken_at_ms = None
                self.pump()

        self._owner.after(1000 * wake_ms - self._owner.now_us, self.happened(due))

    # -- What the queues tell (`ProduceWatcher`) ---------------------------------------------

    def answered(
        self,
        batch: RecordedBatch,
        topic_id: TopicId,
        answer: PartitionProduceResponse,
        response: ProduceResponse,
    ) -> None:
        """See `ProduceWatcher`."""
        at = batch.topic_partition
        self.cluster.hint(at, topic_id, answer.current_leader, response.node_endpoints)
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self._owner.counters[f"transactional produce {code.name}"] += 1

    def failed(self, batch: RecordedBatch, error: ProtocolError) -> None:
        """See `ProduceWatcher`."""
        del batch, error
        self.cluster.stale()

    def number_refused(self, batch: RecordedBatch, error: ProtocolError) -> None:
        """See `ProduceWatcher`: a transaction is aborted for that."""

    def finished(
        self, batch: RecordedBatch, base_offset: Offset, error: ProtocolError | None
    ) -> None:
        """See `ProduceWatcher`."""
        if error is None:
            # The batch lets its contents go; the values stay.
            self._written.append((batch, base_offset))
