"""The client's side of incremental fetch sessions (KIP-227): what to say, what to leave out.

    (0, 0)      full request, please open a session      (id, n)   what has changed, n = 1, 2...
    (0, -1)     full request, no session                 (id, 0)   end that one, full, open another

A broker answers an incremental request with the partitions that have something new only. What the
broker believes of the session must be what the client believes; after an error or a lost answer
nobody knows, and the client begins anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from strandline.types import LeaderEpoch, Offset, TopicId, TopicPartition

SESSIONS_SINCE: Final = 7
_NONE: Final = 0
_FIRST: Final = 0
_NO_SESSION: Final = -1
_EPOCH_MAX: Final = 0x7FFF_FFFF


class FetchFrom(NamedTuple):
    """From where to read one partition."""

    topic_id: TopicId
    offset: Offset
    leader_epoch: LeaderEpoch
    """The epoch that the leader must have; -1: any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much to be sent, and how long to wait for it."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    isolation: int
    rack: str


class FetchSession:
    """A client's session with one broker."""

    def __init__(self, *, wants_session: bool) -> None:
        self._wants_session = wants_session
        self._session_id = _NONE
        self._epoch = _FIRST
        self._sent: dict[TopicPartition, FetchFrom] = {}
        """What the broker believes, if it took the last request."""

    @property
    def is_open(self) -> bool:
        """Whether the broker keeps a session for this client."""
        return self._session_id != _NONE

    def request(
        self, wanted: Mapping[TopicPartition, FetchFrom], limits: Limits, version: int
    ) -> FetchRequest:
        """The next request, for all of `wanted`."""
        is_full = not self._wants_session or version < SESSIONS_SINCE or self._epoch == _FIRST
        asked = dict(wanted)
        forgotten: list[tuple[TopicPartition, TopicId]] = []
        if not is_full:
            asked = {at: each for at, each in wanted.items() if self._sent.get(at) != each}
            for at, before in self._sent.items():
                now = wanted.get(at)
                if now is None or now.topic_id != before.topic_id:
                    forgotten.append((at, before.topic_id))
        self._sent = dict(wanted)
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=limits.max_wait_ms,
            min_bytes=limits.min_bytes,
            max_bytes=limits.max_bytes,
            isolation_level=limits.isolation,
            session_id=self._session_id,
            session_epoch=self._epoch if self._wants_session else _NO_SESSION,
            topics=_topics(asked, limits.partition_max_bytes),
            forgotten_topics_data=_forgotten(forgotten),
            rack_id=limits.rack,
        )

    def answered(self, session_id: int) -> None:
        """A good answer came."""
        if not self._wants_session:
            return
        if session_id == _NONE:
            self._session_id, self._epoch = _NONE, _FIRST
        elif self._session_id != session_id:
            self._session_id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def failed(self, *, is_gone: bool) -> None:
        """An error or no answer: begin anew, and end the old session unless it is known to be
        gone."""
        if is_gone:
            self._session_id = _NONE
        self._epoch = _FIRST


def _topics(
    wanted: Mapping[TopicPartition, FetchFrom], partition_max_bytes: int
) -> list[FetchTopic]:
    topics: dict[tuple[str, TopicId], FetchTopic] = {}
    for at, each in wanted.items():
        topic = topics.get((at.topic, each.topic_id))
        if topic is None:
            topic = FetchTopic(topic=at.topic, topic_id=each.topic_id)
            topics[at.topic, each.topic_id] = topic
        topic.partitions.append(
            FetchPartition(
                partition=at.partition,
                current_leader_epoch=each.leader_epoch,
                fetch_offset=each.offset,
                partition_max_bytes=partition_max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(gone: list[tuple[TopicPartition, TopicId]]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, TopicId], ForgottenTopic] = {}
    for at, topic_id in gone:
        topic = topics.get((at.topic, topic_id))
        if topic is None:
            topic = ForgottenTopic(topic=at.topic, topic_id=topic_id)
            topics[at.topic, topic_id] = topic
        topic.partitions.append(at.partition)
    return list(topics.values())
