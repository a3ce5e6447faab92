"""A member of a share group towards its coordinator: it joins, stays, and hears what it reads.

    OUT ── subscribe ──> JOINING ── answer ──> MEMBER ── fenced ──> JOINING
                                                 └── leave, refused for good ──> OUT, OVER

This file knows heartbeats and assignments. It must not know records.

Theory: what a member does after each refusal is what Kafka's `ShareMembershipManager` does. It
keeps the id that it has drawn for as long as it lives, also when it is fenced: what it acquired is
locked for that id. There is nothing to give up when an assignment changes: records that are with
the member stay with it until their locks end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from enum import Enum, auto
from random import Random
from typing import Any, Final, NamedTuple

from strandline.client.consumer_group.heartbeats import (
    JOINING,
    LEAVING,
    Heartbeats,
    Wish,
    drawn_member_id,
)
from strandline.client.consumer_group.refusals import FENCED, WAIT
from strandline.client.coordinator_client import CoordinatorClient
from strandline.client.group_requests import Membership
from strandline.client.refusal import refusal
from strandline.client.share_group.heartbeat_form import ShareForm
from strandline.client.share_group.settings import ShareSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicId

_UNSUPPORTED: Final = "The coordinator of group '{group}' does not serve share groups (KIP-932)."


class Place(NamedTuple):
    """A partition, by its topic's id."""

    topic_id: TopicId
    partition: int


class Phase(Enum):
    """See the module."""

    OUT = auto()
    JOINING = auto()
    MEMBER = auto()
    OVER = auto()
    """It has failed, or was closed."""


class ShareMembership:
    """See the module."""

    def __init__(
        self, settings: ShareSettings, coordinator: CoordinatorClient, random: Random
    ) -> None:
        self.phase = Phase.OUT
        self.assigned: frozenset[Place] = frozenset()
        """What it is to read."""
        self.failure: ProtocolError | None = None
        """Why it is no member and will be none."""
        self.is_leaving = False
        """Whether a goodbye has no answer yet."""
        self._group = settings.group
        self._who = Membership(settings.group, None, drawn_member_id(random), JOINING)
        self._coordinator = coordinator
        coordinator.failed = self._fail
        self._heartbeats = Heartbeats(
            ShareForm(settings.rack), coordinator, settings.backoff(random), self._beaten
        )
        self._topics: tuple[str, ...] = ()
        self._is_known = False
        """Whether the coordinator may count on it."""

    @property
    def member_id(self) -> str:
        """The id that it has drawn."""
        return self._who.member_id

    @property
    def epoch(self) -> int:
        """How far it has come; 0 while it is to join."""
        return self._who.generation

    @property
    def wake_ms(self) -> int | None:
        """When `step` has something to do; None if not by time."""
        if not self._beats:
            return None
        if self._coordinator.broker is None:
            return self._coordinator.wake_ms
        return self._heartbeats.wake_ms

    def subscribe(self, topics: Iterable[str]) -> None:
        """Read these topics, and no others; to read none is to leave the group."""
        self._topics = tuple(sorted(set(topics)))
        if self.phase is Phase.OVER:
            return
        if not self._topics:
            self.leave()
        elif self.phase is Phase.OUT:
            self.phase = Phase.JOINING
            self._heartbeats.begin_anew()
        else:
            self._heartbeats.soon()

    def leave(self, *, for_good: bool = False) -> None:
        """Leave the group, if it is in it."""
        if self._is_known and self._coordinator.broker is not None:
            self.is_leaving = True
            self._heartbeats.leave(self._who, LEAVING, self._goodbye_heard)
        self._be_out(Phase.OVER if for_good or self.phase is Phase.OVER else Phase.OUT)

    def step(self) -> None:
        """Send what is due."""
        if not self._beats:
            return
        self._coordinator.look_up()
        if self._coordinator.broker is not None and self._heartbeats.step(
            self._who, self.epoch, Wish(self._topics)
        ):
            self._is_known = True

    @property
    def _beats(self) -> bool:
        return self.phase in (Phase.JOINING, Phase.MEMBER)

    def _be_out(self, phase: Phase) -> None:
        self.phase = phase
        self.assigned = frozenset()
        self._who = replace(self._who, generation=JOINING)
        self._is_known = False
        self._heartbeats.begin_anew()

    def _beaten(self, wish: Wish, code: ErrorCode, answer: Any) -> None:
        """The coordinator answered a heartbeat, or did not."""
        del wish
        if not self._beats or code in WAIT:
            return
        if code in FENCED and self.phase is Phase.MEMBER:
            self._be_out(Phase.JOINING)
        elif code in FENCED and code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return  # it tries to join again after a wait
        elif code is not ErrorCode.NONE:
            self._fail(self._refusal(code, answer))
        else:
            self.phase = Phase.MEMBER
            self._who = replace(self._who, generation=answer.member_epoch)
            if answer.assignment is not None:
                self.assigned = frozenset(
                    Place(topic.topic_id, partition)
                    for topic in answer.assignment.topic_partitions
                    for partition in topic.partitions
                )

    def _refusal(self, code: ErrorCode, answer: Any) -> ProtocolError:
        message = getattr(answer, "error_message", None)
        if code is ErrorCode.UNSUPPORTED_VERSION and not message:
            message = _UNSUPPORTED.format(group=self._group)
        return refusal(code, message, f"group '{self._group}'")

    def _fail(self, error: ProtocolError) -> None:
        self.failure = error
        self._be_out(Phase.OVER)

    def _goodbye_heard(self) -> None:
        self.is_leaving = False
