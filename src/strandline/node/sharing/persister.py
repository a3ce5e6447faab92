"""Asking share coordinators, wherever they are, about single share partitions.

What is asked of one broker in one kind of request goes together, one request at a time. A broker
that is not the coordinator, or not yet, is not the end of it: the question is asked again until it
is answered, or its time is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from strandline.cluster.controller import Refusal
from strandline.cluster.topic_names import SHARE_GROUP_STATE
from strandline.errors import ErrorCode
from strandline.node.metadata import Metadata
from strandline.node.peers import Peers
from strandline.node.timers import Timers
from strandline.node.topic_creation import TopicCreation
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.sharing.answer import request_structures
from strandline.sharing.records import ShareKey
from strandline.types import NO_LEADER, BrokerId, Instant, TopicPartition

if TYPE_CHECKING:
    from strandline.node.sharing.coordinator_host import ShareCoordinatorHost

log = logging.getLogger(__name__)

_CHANNEL: Final = "share-state"
_TIMEOUT_MS: Final = 20_000
_RETRY_MS: Final = 100
_AT_ONCE: Final = 200
"""Share partitions in one request."""

_AGAIN: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)

Answered: TypeAlias = Callable[[Any, Instant], None]
"""Gets the result of one share partition: that of the response, or an `Unanswered`."""


@dataclass(slots=True)
class Unanswered:
    """In place of a result: no coordinator answered in time."""

    error_code: int = ErrorCode.COORDINATOR_NOT_AVAILABLE
    error_message: str | None = "No share coordinator answered in time."


@dataclass(slots=True, eq=False)
class _Question:
    api: ApiKey
    key: ShareKey
    fields: dict[str, Any]
    answered: Answered
    due_ms: int


@dataclass(slots=True)
class _Lane:
    """Questions of one kind for one broker."""

    waiting: list[_Question] = field(default_factory=list)
    is_asking: bool = False


class SharePersister:
    """See the module."""

    def __init__(
        self,
        metadata: Metadata,
        peers: Peers,
        timers: Timers,
        creation: TopicCreation,
        broker_id: BrokerId,
        host: Callable[[], ShareCoordinatorHost],
    ) -> None:
        """`host` gives this node's own coordinator."""
        self._metadata = metadata
        self._peers = peers
        self._timers = timers
        self._creation = creation
        self._broker_id = broker_id
        self._host = host
        self._lanes: dict[tuple[BrokerId, ApiKey], _Lane] = {}

    def ask(
        self, api: ApiKey, key: ShareKey, fields: dict[str, Any], answered: Answered, now: Instant
    ) -> None:
        """Ask about one share partition; `fields` are those of its part of the request.
        `answered` is not called before this returns."""
        question = _Question(api, key, fields, answered, now.monotonic_ms + _TIMEOUT_MS)
        self._timers.schedule(now.monotonic_ms, partial(self._find, question))

    def _find(self, question: _Question, now: Instant) -> None:
        image = self._metadata.image
        if SHARE_GROUP_STATE not in image.topics:

            def created(refused: dict[str, Refusal], at: Instant) -> None:
                if SHARE_GROUP_STATE in refused:
                    log.warning("%s cannot be made: %s", SHARE_GROUP_STATE, refused)
                self._later(question, at)

            self._creation.ensure([SHARE_GROUP_STATE], created, now)
            return
        number = self._host().coordinator.partition_for(question.key)
        state = image.partition(TopicPartition(SHARE_GROUP_STATE, number))
        if state is None or state.leader == NO_LEADER:
            self._later(question, now)
            return
        lane_key = (state.leader, question.api)
        self._lanes.setdefault(lane_key, _Lane()).waiting.append(question)
        self._send(*lane_key, now)

    def _send(self, leader: BrokerId, api: ApiKey, now: Instant) -> None:
        lane = self._lanes[leader, api]
        if lane.is_asking or not lane.waiting:
            return
        group_id = lane.waiting[0].key.group_id
        asked = [each for each in lane.waiting if each.key.group_id == group_id][:_AT_ONCE]
        chosen = set(map(id, asked))
        lane.waiting = [each for each in lane.waiting if id(each) not in chosen]
        lane.is_asking = True
        told = partial(self._told, leader, api, asked)
        message = _message(api, group_id, asked)
        if leader == self._broker_id:
            self._host().ask(message, told, now)
        else:
            self._peers.ask(
                leader,
                message,
                KNOWN[api].versions.highest,
                told,
                now,
                timeout_ms=_TIMEOUT_MS,
                channel=_CHANNEL,
            )

    def _told(
        self,
        leader: BrokerId,
        api: ApiKey,
        asked: Sequence[_Question],
        answer: Any,
        now: Instant,
    ) -> None:
        self._lanes[leader, api].is_asking = False
        results = {
            (topic.topic_id, item.partition): item
            for topic in getattr(answer, "results", ())
            for item in topic.partitions
        }
        for question in asked:
            result = results.get((question.key.topic_id, question.key.partition))
            code = ErrorCode.NETWORK_EXCEPTION if result is None else result.error_code
            if code in _AGAIN:
                self._later(question, now)
            else:
                question.answered(result, now)
        self._send(leader, api, now)

    def _later(self, question: _Question, now: Instant) -> None:
        if now.monotonic_ms + _RETRY_MS > question.due_ms:
            question.answered(Unanswered(), now)
            return
        self._timers.schedule(now.monotonic_ms + _RETRY_MS, partial(self._find, question))


def _message(api: ApiKey, group_id: str, asked: Sequence[_Question]) -> Any:
    request = KNOWN[api].request_class
    topic, partition = request_structures(request)
    topics: dict[Any, list[Any]] = {}
    for question in asked:
        item = partition(partition=question.key.partition, **question.fields)
        topics.setdefault(question.key.topic_id, []).append(item)
    return request(
        group_id=group_id,
        topics=[topic(topic_id=topic_id, partitions=items) for topic_id, items in topics.items()],
    )
