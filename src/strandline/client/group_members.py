"""Members of groups of either protocol, as their drivers and programs see them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from random import Random
from typing import Protocol

from strandline.client.consumer_group.member import ConsumerGroupMember
from strandline.client.coordinator_client import Ask, Outcome
from strandline.client.group_events import GroupEvent, PartitionsRevoked
from strandline.client.group_member import GroupMember
from strandline.client.group_observer import MemberObserver
from strandline.client.group_offsets import CommitResult, PendingCommit
from strandline.client.group_requests import Committed, Membership
from strandline.client.group_settings import CONSUMER, GroupSettings
from strandline.client.router import Router
from strandline.errors import InvalidSetting, ProtocolError
from strandline.types import BrokerId, TopicPartition


class Member(Protocol):
    """What `GroupMember` and `ConsumerGroupMember` have in common; see the former."""

    membership: Membership
    is_leaving: bool

    @property
    def phase(self) -> Enum: ...

    @property
    def coordinator(self) -> BrokerId | None: ...

    @property
    def trouble(self) -> ProtocolError | None: ...

    @property
    def owned(self) -> tuple[TopicPartition, ...]: ...

    @property
    def is_in_generation(self) -> bool: ...

    @property
    def wake_ms(self) -> int | None: ...

    def subscribe(self, topics: Iterable[str], now_ms: int, pattern: str | None = None) -> None: ...

    def polled(self, now_ms: int) -> None: ...

    def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        then: Callable[[CommitResult], None],
        now_ms: int,
        deadline_ms: int | None = None,
        *,
        is_last: bool = False,
    ) -> PendingCommit: ...

    def revoked(self, now_ms: int) -> None: ...

    def leave(self, now_ms: int, reason: str, *, also_static: bool = False) -> None: ...

    def step(self, now_ms: int) -> list[Ask]: ...

    def answered(self, ask: Ask, outcome: Outcome, now_ms: int) -> None: ...

    def events(self) -> list[GroupEvent]: ...


def make_member(
    settings: GroupSettings,
    router: Router,
    random: Random,
    observer: MemberObserver | None = None,
) -> Member:
    """A member of the protocol that the settings name."""
    if settings.protocol == CONSUMER:
        return ConsumerGroupMember(settings, router, random, observer)
    return GroupMember(settings, router, random, observer)


def check_pattern(settings: GroupSettings, pattern: str | None) -> None:
    """Refuse a pattern where nothing would apply it. Raises `InvalidSetting`."""
    if pattern is not None and settings.protocol != CONSUMER:
        raise InvalidSetting(
            "group.protocol",
            "Patterns of topics need group.protocol=consumer: coordinators apply them.",
        )


def as_it_is_now(event: GroupEvent, member: Member) -> GroupEvent:
    """What was to be given up is lost if the membership has ended before the program polled."""
    if isinstance(event, PartitionsRevoked) and not member.is_in_generation:
        return replace(event, is_lost=True)
    return event
