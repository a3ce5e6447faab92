"""The heartbeats of a member that has an epoch: what they say, and when the next is due.

This file knows ConsumerGroupHeartbeat, and when heartbeats of share groups are due, too
(`share_group/heartbeat_form`). It must not know what an answer means for the member.

Theory: a member tells its coordinator what has changed since its last heartbeat, and everything
when it does not know whether that one was heard, as Kafka's `ConsumerHeartbeatRequestManager`. To
one that tells everything the coordinator answers with everything. There is one heartbeat under way
at a time, so that answers come in the order in which members change.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeAlias

from strandline.client.backoff import ExponentialBackoff
from strandline.client.consumer_group.assignment import OwnedPartition
from strandline.client.coordinator_client import CoordinatorClient
from strandline.client.group_requests import Membership
from strandline.client.group_settings import GroupSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from strandline.types import TopicId

JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2
"""The epochs of members that come, go, and go as static members do (KIP-848)."""
_PATTERNS_SINCE: Final = 1
_FIRST_INTERVAL_MS: Final = 5_000
"""Until the coordinator has told another one; Kafka's default."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a member says of itself."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression of topics, which the coordinator applies; None: none, empty: none any
    more."""
    owned: tuple[OwnedPartition, ...] = ()


Beaten: TypeAlias = Callable[[Wish, ErrorCode, Any], None]
"""Told what a heartbeat said, and what the coordinator said to it."""


class HeartbeatForm(Protocol):
    """How the members of a kind of group write heartbeats."""

    @property
    def key(self) -> ApiKey: ...

    def heartbeat(
        self, who: Membership, epoch: int, wish: Wish, told: Wish | None, version: int
    ) -> object:
        """One that leaves out what was told before. May raise `ProtocolError`."""

    def goodbye(self, who: Membership, epoch: int) -> object:
        """The last one."""


class Heartbeats:
    """See the module."""

    def __init__(
        self,
        form: HeartbeatForm,
        coordinator: CoordinatorClient,
        backoff: ExponentialBackoff,
        then: Beaten,
    ) -> None:
        self._is_under_way = False
        self._form = form
        self._coordinator = coordinator
        self._backoff = backoff
        self._then = then
        self._interval_ms = _FIRST_INTERVAL_MS
        self._due_ms = 0
        self._heard: Wish | None = None
        """What the coordinator knows of the member for certain; None: perhaps nothing."""
        self._has_news = False
        """Whether there is something to tell that the heartbeat under way does not."""
        self._attempt = 0

    @property
    def wake_ms(self) -> int | None:
        """When the next one is due; None if one is under way."""
        return None if self._is_under_way else self._due_ms

    def soon(self) -> None:
        """There is something to tell."""
        self._due_ms = min(self._due_ms, self._coordinator.now_ms)
        self._has_news = True

    def begin_anew(self) -> None:
        """The member is to join: what is still to be answered is void."""
        self._attempt += 1
        self._is_under_way = False
        self._heard = None
        self._due_ms = self._coordinator.now_ms

    def step(self, who: Membership, epoch: int, wish: Wish) -> bool:
        """Send one if it is due; whether it was. The coordinator must be known."""
        now_ms = self._coordinator.now_ms
        if self._is_under_way or now_ms < self._due_ms:
            return False
        self._is_under_way = True
        self._has_news = False
        told = self._heard if epoch != JOINING else None
        self._coordinator.ask(
            self._form.key,
            partial(self._form.heartbeat, who, epoch, wish, told),
            partial(self._told, self._attempt, wish),
        )
        return True

    def leave(self, who: Membership, epoch: int, then: Callable[[], None]) -> None:
        """Say goodbye; `then` is called when that was heard, or not."""
        self._coordinator.ask(
            self._form.key, lambda _: self._form.goodbye(who, epoch), lambda _, __: then()
        )

    def _told(self, attempt: int, wish: Wish, code: ErrorCode, answer: Any) -> None:
        if attempt != self._attempt:
            return
        self._is_under_way = False
        now_ms = self._coordinator.now_ms
        if code is ErrorCode.NONE:
            self._backoff.reset()
            self._heard = wish
            self._interval_ms = max(1, answer.heartbeat_interval_ms)
            self._due_ms = now_ms if self._has_news else now_ms + self._interval_ms
        else:
            self._heard = None
            self._due_ms = now_ms + self._backoff.next_ms()
        self._then(wish, code, answer)


class ConsumerForm:
    """The heartbeats of consumer groups (KIP-848)."""

    key: Final = ApiKey.CONSUMER_GROUP_HEARTBEAT

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings

    def heartbeat(
        self, who: Membership, epoch: int, wish: Wish, told: Wish | None, version: int
    ) -> ConsumerGroupHeartbeatRequest:
        """See `HeartbeatForm`."""
        if wish.pattern and version < _PATTERNS_SINCE:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"The coordinator of group '{who.group}' is too old for patterns of topics.",
            )
        request = self.goodbye(who, epoch)
        if told is None:
            request.rack_id = self._settings.rack or None
            request.rebalance_timeout_ms = self._settings.max_poll_interval_ms
            request.server_assignor = self._settings.remote_assignor
        if told is None or wish.topics != told.topics:
            request.subscribed_topic_names = list(wish.topics)
        if version >= _PATTERNS_SINCE and (told is None or wish.pattern != told.pattern):
            request.subscribed_topic_regex = wish.pattern
        if told is None or wish.owned != told.owned:
            request.topic_partitions = [
                TopicPartitions(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in _by_topic(wish.owned).items()
            ]
        return request

    def goodbye(self, who: Membership, epoch: int) -> ConsumerGroupHeartbeatRequest:
        """See `HeartbeatForm`."""
        return ConsumerGroupHeartbeatRequest(
            group_id=who.group,
            member_id=who.member_id,
            member_epoch=epoch,
            instance_id=who.instance_id,
        )


def _by_topic(owned: tuple[OwnedPartition, ...]) -> dict[TopicId, list[int]]:
    found: dict[TopicId, list[int]] = {}
    for topic_id, partition in owned:
        found.setdefault(topic_id, []).append(partition)
    return found


def drawn_member_id(random: Random) -> str:
    """A member id in the form of Kafka's, a UUID in base 64."""
    return urlsafe_b64encode(random.randbytes(16)).rstrip(b"=").decode()
