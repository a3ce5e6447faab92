"""A group's offsets on their way into a transaction: TxnOffsetCommit to the group's coordinator.

This file knows which offsets have no outcome yet. It must not know how their group joins the
transaction (version 1), nor how that ends: `transaction_manager` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final

from strandline.client.backoff import ExponentialBackoff
from strandline.client.coordinator_client import Ask, CoordinatorClient
from strandline.client.group_requests import Committed, Membership
from strandline.client.producer_identity import ProducerIdentity
from strandline.client.refusal import refusal
from strandline.client.router import Coordinated, CoordinatorKey, Router
from strandline.client.transaction_errors import Verdict, not_now, verdict
from strandline.client.transaction_requester import RequestPace
from strandline.client.transaction_requests import commit_offsets_request, committed_offsets_code
from strandline.client.transaction_settings import TransactionSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.types import TopicPartition

Told = Callable[[ProtocolError, Verdict], None]
"""Hears an error that no retry mends, and what it means."""

_ELSEWHERE: Final = frozenset({ErrorCode.REQUEST_TIMED_OUT})
"""Besides what `CoordinatorClient` knows: the coordinator may be another one by now."""


@dataclass(frozen=True, slots=True)
class _OfGroup:
    """The `Coordination` of a group, by the settings of the producer."""

    coordinator_key: CoordinatorKey
    settings: TransactionSettings

    @property
    def request_timeout_ms(self) -> int:
        return self.settings.request_timeout_ms

    def backoff(self, random: Random) -> ExponentialBackoff:
        return self.settings.backoff(random)


@dataclass(frozen=True, slots=True)
class _Pending:
    """Offsets without an outcome."""

    membership: Membership
    offsets: Mapping[TopicPartition, Committed]


class TransactionOffsets:
    """See the module. The offsets of one membership at a time are on their way."""

    def __init__(self, settings: TransactionSettings, router: Router, random: Random) -> None:
        self.joined: set[str] = set()
        """Groups that are part of the transaction (version 1)."""
        self._settings = settings
        self._router = router
        self._random = random
        self._pace = RequestPace(settings.backoff(random))
        self._coordinators: dict[str, CoordinatorClient] = {}
        self._pending: _Pending | None = None
        self._may_be_there = False
        """Whether anything was asked that may have been carried out, or may be yet."""

    @property
    def has_work(self) -> bool:
        """Whether offsets have no outcome yet."""
        return self._pending is not None

    @property
    def group(self) -> str | None:
        """Whose offsets have no outcome yet."""
        return None if self._pending is None else self._pending.membership.group

    @property
    def trouble(self) -> ProtocolError | None:
        """Why the group's coordinator does not answer; it is asked again."""
        return None if self._pending is None else self._coordinator(self._pending).trouble

    def add(self, offsets: Mapping[TopicPartition, Committed], membership: Membership) -> None:
        """Send these. Raises `ProtocolError` (INVALID_TXN_STATE) while others are on their way."""
        if self._pending is not None:
            raise not_now("Other offsets are still on their way into the transaction.")
        self._pending = _Pending(membership, dict(offsets))
        self._may_be_there = False

    def asked_to_join(self) -> None:
        """The group may be part of the transaction from now on."""
        self._may_be_there = True

    def abort(self) -> None:
        """The transaction will be aborted: what has not been asked for will not be."""
        if not self._may_be_there:
            self.drop()

    def drop(self) -> None:
        """There is nothing to wait for."""
        self._pending = None
        self._may_be_there = False

    def ended(self) -> None:
        """The transaction is over."""
        self.joined.clear()
        self.drop()

    # -- Requests ----------------------------------------------------------------------------

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do; None if not by time."""
        if self._pending is None:
            return None
        return self._pace.wake_ms(self._coordinator(self._pending))

    def now(self, now_ms: int) -> None:
        """It is that late."""
        for each in self._coordinators.values():
            each.now_ms = now_ms

    def step(
        self, now_ms: int, identity: ProducerIdentity, highest: int | None, told: Told
    ) -> bool:
        """Ask for what is due; whether the transaction is begun by that (version 2)."""
        self.now(now_ms)
        pending = self._pending
        if pending is None or not self._pace.may_ask(now_ms):
            return False
        coordinator = self._coordinator(pending)
        coordinator.failed = lambda error: told(error, Verdict.FAIL)
        if coordinator.broker is None:
            coordinator.look_up()
            return False
        self._pace.asked()
        self._may_be_there = True
        coordinator.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            commit_offsets_request(
                self._settings.transactional_id, identity, pending.membership, pending.offsets
            ),
            partial(self._answered, pending, told),
            highest=highest,
            code_of=committed_offsets_code,
        )
        return True

    def take(self) -> list[Ask]:
        """The requests to send, each once."""
        return [ask for each in self._coordinators.values() for ask in each.take()]

    def _answered(self, pending: _Pending, told: Told, code: ErrorCode, answer: Any) -> None:
        del answer
        self._pace.answered()
        if self._pending is not pending:
            return
        if code is ErrorCode.NONE:
            self._pace.went_well()
            self.drop()
            return
        coordinator = self._coordinator(pending)
        found = verdict(code, may_renew=False)
        if found is Verdict.RETRY:
            if code in _ELSEWHERE:
                coordinator.lost()
            self._pace.wait(coordinator.now_ms)
            return
        self.drop()
        told(refusal(code, None, f"group '{pending.membership.group}'"), found)

    def _coordinator(self, pending: _Pending) -> CoordinatorClient:
        group = pending.membership.group
        found = self._coordinators.get(group)
        if found is None:
            settings = _OfGroup(CoordinatorKey(Coordinated.GROUP, group), self._settings)
            found = CoordinatorClient(settings, self._router, self._random)
            self._coordinators[group] = found
        return found
