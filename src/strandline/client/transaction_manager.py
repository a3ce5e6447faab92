"""The transactions of one producer: what it asks of coordinators, and what that means for it.

    UNINITIALIZED ── initialize ──> INITIALIZING ──> READY <────────────────────┐
                                                       │ begin                  │
                        send, send_offsets   ┌── IN_TRANSACTION ── commit ──> COMMITTING
                                             │         │ an error               │
                                             │     ABORTABLE <──────────────────┘
                                             └─ abort ─┴──> ABORTING ──> READY
    FAILED: from anywhere, for good

This file knows states, the order of requests and the two protocols. It has no socket, thread or
clock: a driver calls `step`, carries the requests, brings their outcomes to `answered`, and asks
`admits` before it sends a batch. Drivers are `sending` (blocking), `aio.sending` (asyncio) and the
simulator's producers. What becomes of batches is the affair of `produce_queues`.

Theory: in version 1 (KIP-98) a partition joins the transaction by AddPartitionsToTxn before the
first batch goes there, and a group by AddOffsetsToTxn. In version 2 (KIP-890) both join by being
written to, and each transaction has an epoch of its own, which EndTxn gives. One request is on its
way at a time. Nothing is ended while a batch or an offset has no outcome: it could be written
behind the end. What was asked for and may have been carried out is asked for until that is known,
also if the transaction is to be aborted meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any, Final

from strandline.client.coordinator_client import Ask, CoordinatorClient, Outcome
from strandline.client.group_requests import Committed, Membership
from strandline.client.producer_identity import ProducerIdentity
from strandline.client.refusal import refusal
from strandline.client.router import Router
from strandline.client.transaction_errors import (
    ID_FORGOTTEN,
    Verdict,
    batch_verdict,
    failed_producer,
    failed_transaction,
    not_now,
)
from strandline.client.transaction_offsets import TransactionOffsets
from strandline.client.transaction_requester import TransactionRequester
from strandline.client.transaction_requests import (
    FEATURE,
    LAST_OF_VERSION_1,
    LAST_PRODUCE_OF_VERSION_1,
    RENEWS_SINCE,
    VERSION_2,
    add_offsets_request,
    end_request,
    init_request,
)
from strandline.client.transaction_settings import TransactionSettings
from strandline.client.transaction_state import Batches, Delegation, JoinedPartitions, State
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.types import ProducerEpoch, ProducerId, TopicPartition

_ABORTED: Final = "The transaction of this record was aborted."
_WAITING: Final = frozenset({State.INITIALIZING, State.COMMITTING, State.ABORTING})
_TO_ABORT: Final = frozenset({State.ABORTABLE, State.ABORTING})


class TransactionManager:
    """See the module. Times are milliseconds of a clock that never goes back."""

    def __init__(self, settings: TransactionSettings, router: Router, random: Random) -> None:
        self.state = State.UNINITIALIZED
        self.error: ProtocolError | None = None
        """Why it is ABORTABLE or FAILED."""
        self.identity = ProducerIdentity(is_transactional=True)
        self.transactional_id = settings.transactional_id
        self.batches: Batches | None = None
        """Set by those batches' queues."""
        self._settings = settings
        self._router = router
        self._coordinator = coordinator = CoordinatorClient(settings, router, random)
        coordinator.failed = self._fail_for
        self._requester = TransactionRequester(coordinator, settings.backoff(random), self._refused)
        self._offsets = TransactionOffsets(settings, router, random)
        self._version = 0
        """Of the protocol, in the present transaction."""
        self._renews = False
        """Whether the next transaction needs another epoch, which no EndTxn gives."""
        self._is_id_forgotten = False
        self._partitions = JoinedPartitions()
        self._is_started = False
        """Whether the coordinator may know of the transaction, so that it is to be ended there."""

    # -- What the program wants --------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether something that the program waits for is under way."""
        return self.state in _WAITING or (
            self.state is State.IN_TRANSACTION and self._offsets.has_work
        )

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that the program may abort."""
        return self.state in (State.IN_TRANSACTION, State.ABORTABLE)

    @property
    def trouble(self) -> ProtocolError | None:
        """Why nothing goes on at the moment; it is tried again."""
        return self._coordinator.trouble or self._offsets.trouble

    def initialize(self) -> None:
        """Fence all producers before; done when not `is_busy`. Without effect later on."""
        self.raise_error()
        if self.state is State.UNINITIALIZED:
            self.state = State.INITIALIZING

    def begin(self) -> None:
        """Begin a transaction. Raises `ProtocolError` (INVALID_TXN_STATE) if there is one."""
        self._check("begin", State.READY)
        self._version = self._router.feature(FEATURE)
        self.state = State.IN_TRANSACTION

    def delegate(self) -> Delegation:
        """Let producers of other processes write in the open transaction, until it ends."""
        self._check("delegate", State.IN_TRANSACTION)
        self._is_started = True
        return Delegation(*self.identity.current, self._version)

    def join(self, delegation: Delegation) -> None:
        """Write in a transaction that another producer has begun, and will end."""
        if self.state is not State.UNINITIALIZED:
            raise not_now("A producer joins a transaction before it begins one of its own.")
        self._become(delegation.producer_id, delegation.producer_epoch)
        self._version = delegation.version
        self.state = State.IN_TRANSACTION

    def check_open(self) -> None:
        """Raise `ProtocolError` unless records may join a transaction now."""
        self._check("send", State.IN_TRANSACTION)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, Committed], membership: Membership
    ) -> None:
        """Have a group's offsets stored with the transaction; done when not `is_busy`."""
        self._check("send_offsets", State.IN_TRANSACTION)
        if offsets:
            self._offsets.add(offsets, membership)

    def commit(self) -> None:
        """Commit, once all batches are written; done when not `is_busy`. To be called again by a
        program whose patience ended before."""
        self._check("commit", State.IN_TRANSACTION, State.COMMITTING)
        self.state = State.COMMITTING

    def abort(self) -> None:
        """Abort; done when not `is_busy`. Batches that no broker was sent yet fail at once."""
        if self.state not in _TO_ABORT:
            self._check("abort", State.IN_TRANSACTION)
        self._partitions.abort()
        self._offsets.abort()
        self.state = State.ABORTING

    def raise_error(self) -> None:
        """Raise why a transaction, or the producer, has failed."""
        if self.error is not None:
            raise self.error

    def _check(self, call: str, *allowed: State) -> None:
        self.raise_error()
        if self.state not in allowed:
            raise not_now(f"The producer {self.state.value}: '{call}' is not possible now.")

    # -- What batches ask --------------------------------------------------------------------

    @property
    def highest_produce(self) -> int | None:
        """The newest version of Produce; None: any."""
        return None if self._version >= VERSION_2 else LAST_PRODUCE_OF_VERSION_1

    def admits(self, partition: TopicPartition, *, is_numbered: bool) -> bool:
        """Whether a batch may be sent now. One that is numbered may be written already: it is
        sent until that is known, also while its transaction is aborted."""
        if self.state in _TO_ABORT:
            return is_numbered
        if self.state not in (State.IN_TRANSACTION, State.COMMITTING):
            return False
        if self._version >= VERSION_2:
            self._is_started = True
            return True
        return self._partitions.admits(partition)

    def gives_up(self, *, is_numbered: bool) -> ProtocolError | None:
        """Why a batch that is not on its way has failed, if it has."""
        if self.state is State.FAILED:
            return self.error
        if is_numbered or self.state not in _TO_ABORT:
            return None
        return self.error or ProtocolError(ErrorCode.TRANSACTION_ABORTABLE, _ABORTED)

    def batch_failed(self, error: ProtocolError, *, is_number_lost: bool) -> None:
        """A batch was refused, or given up: the transaction lacks it. `is_number_lost`: which
        number the broker expects next is not sure any more."""
        self._renews |= is_number_lost
        if batch_verdict(error.code) is Verdict.FAIL:
            self._fail(error.code, error.message)
        elif self.state is not State.ABORTING:
            self._abortable(error)

    # -- Requests ----------------------------------------------------------------------------

    def step(self, now_ms: int) -> list[Ask]:
        """Do what is due: the requests to send, each once, in this order."""
        self._coordinator.now_ms = now_ms
        if self._requester.may_ask(now_ms):
            self._ask_next()
        if self._is_for_group:
            begins = self._offsets.step(
                now_ms, self.identity, self._highest_end, self._offsets_refused
            )
            self._is_started |= begins
        return self._coordinator.take() + self._offsets.take()

    def answered(self, ask: Ask, outcome: Outcome, now_ms: int) -> None:
        """The outcome of a request of `step`."""
        self._coordinator.now_ms = now_ms
        self._offsets.now(now_ms)
        ask.then(outcome)

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do; None if not by time."""
        times = [self._offsets.wake_ms if self._is_for_group else None]
        if self._has_request:
            times.append(self._requester.wake_ms)
        return min((each for each in times if each is not None), default=None)

    @property
    def _highest_end(self) -> int | None:
        return None if self._version >= VERSION_2 else LAST_OF_VERSION_1

    @property
    def _is_for_group(self) -> bool:
        """Whether offsets are to be sent to their group's coordinator now."""
        group = self._offsets.group
        return (
            self.state is not State.FAILED
            and group is not None
            and (self._version >= VERSION_2 or group in self._offsets.joined)
        )

    @property
    def _is_for_end(self) -> bool:
        is_ending = self.state in (State.COMMITTING, State.ABORTING)
        has_batches = self.batches is not None and self.batches.has_work
        return is_ending and not has_batches and not self._offsets.has_work

    @property
    def _has_request(self) -> bool:
        """Whether there is something to ask the coordinator."""
        if self.state is State.FAILED:
            return False
        return bool(
            self.state is State.INITIALIZING
            or self._partitions.has_work
            or (self._offsets.group is not None and not self._is_for_group)
            or self._is_for_end
        )

    def _ask_next(self) -> None:
        if not self._has_request:
            return
        ends_here = self._is_for_end and not (self._is_started or self._partitions.may_have_joined)
        if ends_here and not self._renews and not self._is_id_forgotten:
            self._ended()  # no broker has heard of it
            return
        if self._coordinator.broker is None:
            self._coordinator.look_up()
            return
        if self.state is State.INITIALIZING:
            self._ask_id()
        elif self._partitions.has_work:
            self._partitions.ask(
                self._requester, self.transactional_id, self.identity, self._joined
            )
        elif self._offsets.group is not None and not self._is_for_group:
            self._ask_to_add_offsets(self._offsets.group)
        elif ends_here or self._is_id_forgotten:
            self._ask_id()
        else:
            self._ask_to_end()

    def _refused(self, key: ApiKey, code: ErrorCode, found: Verdict) -> None:
        if found is Verdict.FAIL:
            self._fail(code)
            return
        if key is ApiKey.ADD_PARTITIONS_TO_TXN:
            self._partitions.refused()
        if key is ApiKey.ADD_OFFSETS_TO_TXN:
            self._offsets.drop()
        self._is_id_forgotten |= code in ID_FORGOTTEN
        self._abortable(refusal(code, None, str(self._settings.coordinator_key)))

    # -- Producer ids ------------------------------------------------------------------------

    def _ask_id(self) -> None:
        goes_on = self.state is State.ABORTING
        make = init_request(self._settings, self.identity, goes_on=goes_on)

        def request(version: int) -> object:
            self._requester.may_renew = version >= RENEWS_SINCE
            return make(version)

        self._requester.ask(ApiKey.INIT_PRODUCER_ID, request, self._identified)

    def _identified(self, answer: Any) -> None:
        self._become(answer.producer_id, answer.producer_epoch)
        self._ended()

    def _become(self, producer_id: int, epoch: int) -> None:
        if self.identity.become(ProducerId(producer_id), ProducerEpoch(epoch)):
            self._renews = False
            if self.batches is not None:
                self.batches.number_anew()

    # -- Partitions and groups (version 1) ---------------------------------------------------

    def _joined(self) -> None:
        self._is_started = True

    def _ask_to_add_offsets(self, group: str) -> None:
        self._offsets.asked_to_join()
        self._requester.ask(
            ApiKey.ADD_OFFSETS_TO_TXN,
            lambda _: add_offsets_request(self.transactional_id, self.identity, group),
            partial(self._added_offsets, group),
        )

    def _added_offsets(self, group: str, answer: Any) -> None:
        del answer
        self._is_started = True
        self._offsets.joined.add(group)
        if self.state in _TO_ABORT:
            self._offsets.drop()

    def _offsets_refused(self, error: ProtocolError, found: Verdict) -> None:
        if found is Verdict.FAIL:
            self._fail(error.code, error.message)
        else:
            self._abortable(error)

    # -- Ends --------------------------------------------------------------------------------

    def _ask_to_end(self) -> None:
        commits = self.state is State.COMMITTING
        is_2 = self._version >= VERSION_2
        request = end_request(self.transactional_id, self.identity, commits=commits, version_2=is_2)
        self._requester.ask(ApiKey.END_TXN, request, self._ended_there, highest=self._highest_end)

    def _ended_there(self, answer: Any) -> None:
        if self._version >= VERSION_2 and answer.producer_id >= 0:
            self._become(answer.producer_id, answer.producer_epoch)
        self._is_started = False
        if not self._renews:
            self._ended()
        elif not self._requester.may_renew:
            self._fail(ErrorCode.UNKNOWN_PRODUCER_ID, _TOO_OLD)

    def _ended(self) -> None:
        """The transaction is over, or there was none yet."""
        self.state = State.READY
        self.error = None
        self._is_started = self._is_id_forgotten = self._renews = False
        self._partitions.ended()
        self._offsets.ended()

    def _abortable(self, error: ProtocolError) -> None:
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            self.state = State.ABORTABLE
            self.error = failed_transaction(error)
            self._partitions.abort()
            self._offsets.abort()
        elif self.state is State.INITIALIZING:
            self._fail(error.code, error.message)

    def _fail(self, code: ErrorCode, why: str = "") -> None:
        if self.state is not State.FAILED:
            self.state = State.FAILED
            self._requester.is_over = True
            self.error = failed_producer(code, self.transactional_id, why)
            self._offsets.drop()

    def _fail_for(self, error: ProtocolError) -> None:
        self._fail(error.code, error.message)


_TOO_OLD: Final = (
    "A batch of the transaction may be written or not, and this old broker cannot give the "
    "producer another epoch."
)
