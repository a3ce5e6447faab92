"""The way into a generation: JoinGroup, the leader's division, SyncGroup.

    begin ──> JoinGroup ── leader: metadata, division ──> SyncGroup ──> synced
                 └──────────────── whatever is refused ──────┴────────> refused

Each way in is an attempt; answers to requests of one that was cancelled are void. What a refusal
means is the member's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

from strandline.client.assignors import ASSIGNORS
from strandline.client.consumer_protocol import NO_GENERATION, PROTOCOL_TYPE, read_assignment
from strandline.client.coordinator_client import CoordinatorClient
from strandline.client.group_leader import GroupLeader
from strandline.client.group_observer import MemberObserver
from strandline.client.group_requests import JoinTerms, Membership, join_request, sync_request
from strandline.client.group_settings import GroupSettings
from strandline.errors import ErrorCode, MalformedFrame
from strandline.protocol.apis import ApiKey
from strandline.types import TopicPartition

_GRACE_MS: Final = 5_000
"""So much longer than a rebalance may take its answers are waited for, as in Kafka."""


@dataclass(frozen=True, slots=True)
class Synced:
    """A member's part of a generation."""

    assignor: str
    leader: str
    owned: tuple[TopicPartition, ...]


class Joiner(Protocol):
    """The member, as its way in sees it."""

    def become(self, member_id: str, generation: int) -> None:
        """The coordinator has given an id, or has let the member into a generation."""

    @property
    def membership(self) -> Membership: ...

    def synced(self, result: Synced) -> None:
        """It has its part."""

    def refused(self, code: ErrorCode) -> None:
        """It is not in: a code of JoinGroup or SyncGroup, or NETWORK_EXCEPTION."""


class GroupJoin:
    """See the module."""

    def __init__(
        self,
        joiner: Joiner,
        settings: GroupSettings,
        coordinator: CoordinatorClient,
        leader: GroupLeader,
        observer: MemberObserver,
    ) -> None:
        self._joiner = joiner
        self._settings = settings
        self._coordinator = coordinator
        self._leader = leader
        self._observer = observer
        self._attempt = 0
        self._timeout_ms = max(
            settings.max_poll_interval_ms + _GRACE_MS, settings.request_timeout_ms
        )

    def cancel(self) -> None:
        """What is still to be answered is void."""
        self._attempt += 1

    def begin(self, protocols: Sequence[tuple[str, bytes]], reason: str) -> None:
        """Send a JoinGroup. The coordinator must be known."""
        self._attempt += 1
        settings = self._settings
        terms = JoinTerms(
            settings.session_timeout_ms, settings.max_poll_interval_ms, protocols, reason
        )
        who = self._joiner.membership
        self._observer.joining(who)
        self._coordinator.ask(
            ApiKey.JOIN_GROUP,
            lambda version: join_request(who, terms, version),
            partial(self._joined, self._attempt),
            timeout_ms=self._timeout_ms,
        )

    def _joined(self, attempt: int, code: ErrorCode, answer: Any) -> None:
        if attempt != self._attempt:
            return
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._joiner.become(answer.member_id, NO_GENERATION)
        if code is ErrorCode.NONE and not _is_ours(answer, None):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is not ErrorCode.NONE:
            self._joiner.refused(code)
            return
        self._joiner.become(answer.member_id, answer.generation_id)
        assignor = answer.protocol_name or ""
        if answer.leader != answer.member_id:
            self._leader.resign()
            self._sync(assignor, answer.leader, {})
            return
        try:
            self._leader.elected(answer.members, skips=answer.skip_assignment)
        except MalformedFrame:
            self._joiner.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        self._leader.when_known(partial(self._divide, attempt, assignor))

    def _divide(self, attempt: int, assignor: str) -> None:
        if attempt == self._attempt:
            parts = self._leader.assignments(ASSIGNORS[assignor])
            self._sync(assignor, self._joiner.membership.member_id, parts)

    def _sync(self, assignor: str, leader: str, parts: Mapping[str, bytes]) -> None:
        who = self._joiner.membership
        self._observer.syncing(who)
        self._coordinator.ask(
            ApiKey.SYNC_GROUP,
            lambda version: sync_request(who, assignor, parts, version),
            partial(self._synced, self._attempt, assignor, leader),
            timeout_ms=self._timeout_ms,
        )

    def _synced(
        self, attempt: int, assignor: str, leader: str, code: ErrorCode, answer: Any
    ) -> None:
        if attempt != self._attempt:
            return
        if code is ErrorCode.NONE and not _is_ours(answer, assignor):
            code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if code is not ErrorCode.NONE:
            self._joiner.refused(code)
            return
        try:
            owned = read_assignment(answer.assignment)
        except MalformedFrame:
            self._joiner.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        self._observer.synced(self._joiner.membership, leader, owned)
        self._joiner.synced(Synced(assignor, leader, owned))


def _is_ours(answer: Any, assignor: str | None) -> bool:
    """Whether the group is one of consumers, and assigns as was agreed. Old versions do not say."""
    if answer.protocol_type not in (None, "", PROTOCOL_TYPE):
        return False
    if assignor is None:
        return answer.protocol_name in ASSIGNORS
    return answer.protocol_name in (None, "", assignor)
