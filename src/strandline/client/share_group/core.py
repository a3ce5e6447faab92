"""A share consumer without socket, thread or clock: what its program calls, and what its driver
does for that.

    program ── subscribe, poll, acknowledge, commit, close ──> core <── answers ── driver
            <── records, outcomes ───────────────────────────       ── requests ──>

A driver calls `step` when something may have changed and at `wake_ms`, sends the requests that it
gets and brings their outcomes (`answered`). It lets the program wait until `has_news` after
`begin_poll`, and until a `Commit` is done.

Theory: the order of things is that of Kafka's `ShareConsumerImpl`. Each poll first sends what was
said of the records of the last one, in implicit mode that all are accepted. Records whose locks
were renewed come again before new ones do (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from strandline.client.coordinator_client import Ask, CoordinatorClient, Outcome
from strandline.client.router import Router
from strandline.client.share_group.acknowledgements import (
    Acknowledged,
    Commit,
    HeldRecords,
    ShareRecord,
)
from strandline.client.share_group.fetcher import ShareFetcher
from strandline.client.share_group.leaders import Leaders
from strandline.client.share_group.membership import Phase, ShareMembership
from strandline.client.share_group.observer import ShareObserver
from strandline.client.share_group.settings import EXPLICIT, ShareSettings
from strandline.errors import ErrorCode, ProtocolError, StrandlineError
from strandline.numerals import counted
from strandline.protocol.acknowledge_type import AckType
from strandline.types import TopicPartition


class ShareConsumerCore:
    """See the module. Times are milliseconds of a clock that never goes back."""

    def __init__(
        self,
        settings: ShareSettings,
        router: Router,
        random: Random,
        observer: ShareObserver | None = None,
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator = CoordinatorClient(settings, router, random)
        self._membership = ShareMembership(settings, coordinator, random)
        self._leaders = leaders = Leaders(settings, coordinator, random)
        self._fetcher = ShareFetcher(
            settings,
            self._membership.member_id,
            coordinator,
            leaders,
            random,
            observer or ShareObserver(),
        )
        self._held = HeldRecords(leaders.of, self._fetcher.put)
        self._is_polling = False
        """Whether the program waits for records."""
        self._is_closing = False

    # -- The program -------------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """As whom it is a member of the group."""
        return self._membership.member_id

    @property
    def trouble(self) -> ProtocolError | None:
        """Why the coordinator or a leader does not answer; what is due is tried again."""
        return self._coordinator.trouble or self._fetcher.trouble

    @property
    def lock_ms(self) -> int | None:
        """For how long a record is locked, as a broker said last; None before that."""
        return self._fetcher.lock_ms

    def subscribe(self, topics: Iterable[str], now_ms: int) -> None:
        """Read these topics as a member, and no others; to read none is to leave the group."""
        self._set_time(now_ms)
        self._membership.subscribe(topics)
        self._leaders.want(self._membership.assigned)

    def begin_poll(self, now_ms: int) -> None:
        """The program wants records, and has done with those of the last poll.

        Raises `ProtocolError` (INVALID_REQUEST) without a subscription, and if it has not said
        what became of each record in explicit mode.
        """
        self._set_time(now_ms)
        self._maybe_fail()
        if self._membership.phase is Phase.OUT:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, "No topic is subscribed.")
        self._accept_implicitly()
        self._held.hand_over(now_ms + self._settings.operation_timeout_ms)
        left = self._held.unsaid
        if left:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                f"Not acknowledged: {counted(left, 'record')} of the last poll, which "
                "share.acknowledgement.mode=explicit demands before the next one.",
            )
        self._is_polling = True

    @property
    def has_news(self) -> bool:
        """Whether there are records for the program, or an error."""
        return (
            self._held.has_renewed
            or (self._fetcher.has_records and not self._held.is_renewing)
            or self._membership.failure is not None
            or self._fetcher.failure is not None
        )

    def stop_polling(self) -> None:
        """The program does not wait for records any more."""
        self._is_polling = self._fetcher.wants = False

    def end_poll(self, now_ms: int) -> list[ShareRecord]:
        """The records that have come. Raises what has gone wrong."""
        self._set_time(now_ms)
        self.stop_polling()
        self._maybe_fail()
        if self._held.is_renewing:
            return self._held.take_renewed()
        taken = self._fetcher.take(self._settings.max_poll_records)
        for holding in taken:
            self._held.give(holding)
        return [record for holding in taken for record in holding.records.values()]

    def acknowledge(self, at: TopicPartition, offset: int, kind: AckType) -> None:
        """Say what became of a record of the last poll; the next call sends it. Raises
        `ProtocolError`: INVALID_REQUEST in implicit mode, INVALID_RECORD_STATE for a record that
        the program has not got."""
        if self._settings.mode != EXPLICIT:
            raise ProtocolError(
                ErrorCode.INVALID_REQUEST,
                "Records are accepted implicitly; share.acknowledgement.mode=explicit lets the "
                "program say what became of each.",
            )
        self._held.say(at, offset, kind)

    def forget(self, at: TopicPartition, offset: int) -> None:
        """The program will not say what became of a record: it is given to a member again when its
        lock ends. For the simulator, whose programs are careless."""
        self._held.forget(at, offset)

    def commit(self, now_ms: int, timeout_ms: int | None = None) -> Commit:
        """Send what was said of records, in implicit mode that all are accepted. It is tried again
        until the time is up."""
        self._set_time(now_ms)
        self._accept_implicitly()
        if timeout_ms is None:
            timeout_ms = self._settings.operation_timeout_ms
        commit = Commit()
        commit.wait_for(self._held.hand_over(now_ms + timeout_ms, commit.told))
        return commit

    def take_outcomes(self) -> list[Acknowledged]:
        """What came of acknowledgements since this was asked last."""
        return self._held.take_outcomes()

    def close(self, now_ms: int) -> None:
        """Send what was said of records, give all others back, and leave the group for good."""
        self._set_time(now_ms)
        self._held.hand_over(now_ms)
        self._fetcher.close()
        self._is_closing, self._is_polling = True, False

    def _accept_implicitly(self) -> None:
        if self._settings.mode != EXPLICIT:
            self._held.say_of_all(AckType.ACCEPT)

    def _maybe_fail(self) -> None:
        if self._membership.failure is not None:
            raise self._membership.failure
        failure: StrandlineError | None = self._fetcher.failure
        self._fetcher.failure = None
        if failure is not None:
            raise failure

    # -- The driver --------------------------------------------------------------------------

    @property
    def is_leaving(self) -> bool:
        """Whether there is a goodbye to be heard still, by leaders or by the coordinator."""
        return self._is_closing and (
            not self._fetcher.is_closed
            or self._membership.phase is not Phase.OVER
            or self._membership.is_leaving
        )

    def step(self, now_ms: int) -> list[Ask]:
        """Do what is due; the requests to send, in this order."""
        self._set_time(now_ms)
        self._membership.step()
        self._leaders.want(self._membership.assigned)
        self._leaders.step()
        self._fetcher.wants = (
            self._is_polling and not self._fetcher.has_records and not self._held.is_renewing
        )
        self._fetcher.step()
        if self._fetcher.is_closed and self._membership.phase is not Phase.OVER:
            self._membership.leave(for_good=True)
        return [*self._coordinator.take(), *self._fetcher.take_asks()]

    def answered(self, ask: Ask, outcome: Outcome, now_ms: int) -> None:
        """What became of a request: each one gets exactly one outcome. Call `step` afterwards."""
        self._set_time(now_ms)
        ask.then(outcome)

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do, if nothing happens before; None: never."""
        times = (self._membership.wake_ms, self._leaders.wake_ms, self._fetcher.wake_ms)
        return min((each for each in times if each is not None), default=None)

    def _set_time(self, now_ms: int) -> None:
        self._coordinator.now_ms = now_ms
