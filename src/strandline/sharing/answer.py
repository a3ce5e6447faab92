"""One answer of the share coordinator, whose parts come when each is durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.coordinator_log import APPEND_ERRORS
from strandline.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from strandline.types import Instant, TopicId

Part: TypeAlias = Callable[..., None]
"""Told once what becomes of a share partition: `error`, or else the fields of its result."""

_FORMS: Final[dict[type, tuple[Any, type, type]]] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: (
        initialize_share_group_state.InitializeShareGroupStateResponse,
        initialize_share_group_state.InitializeStateResult,
        initialize_share_group_state.PartitionResult,
    ),
    read_share_group_state.ReadShareGroupStateRequest: (
        read_share_group_state.ReadShareGroupStateResponse,
        read_share_group_state.ReadStateResult,
        read_share_group_state.PartitionResult,
    ),
    write_share_group_state.WriteShareGroupStateRequest: (
        write_share_group_state.WriteShareGroupStateResponse,
        write_share_group_state.WriteStateResult,
        write_share_group_state.PartitionResult,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: (
        delete_share_group_state.DeleteShareGroupStateResponse,
        delete_share_group_state.DeleteStateResult,
        delete_share_group_state.PartitionResult,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: (
        read_share_group_state_summary.ReadShareGroupStateSummaryResponse,
        read_share_group_state_summary.ReadStateSummaryResult,
        read_share_group_state_summary.PartitionResult,
    ),
}
"""Of each request the response, its topics, and their partitions."""


class Answer:
    """See the module. All five requests have the same shape: topics with partitions."""

    def __init__(self, request: Any, finish: Callable[[Any], None]) -> None:
        """`finish` gets the response when all parts are there."""
        self._topics = request.topics
        self._response, self._topic, self._partition = _FORMS[type(request)]
        self._results: list[list[Any]] = [[] for _ in request.topics]
        self._left = sum(len(topic.partitions) for topic in request.topics)
        self._finish = finish

    def parts(self) -> Iterator[tuple[TopicId, Any, Part]]:
        """Each partition of the request, with the topic's id and who is told what becomes of it."""
        if not self._left:
            self._end()
        for number, topic in enumerate(self._topics):
            for item in topic.partitions:
                yield topic.topic_id, item, partial(self._told, number, item.partition)

    def _told(
        self, number: int, partition: int, *, error: ProtocolError | None = None, **more: Any
    ) -> None:
        result = self._partition(partition=partition, **more)
        if error is not None:
            result.error_code, result.error_message = error.code, error.message or None
        self._results[number].append(result)
        self._left -= 1
        if not self._left:
            self._end()

    def _end(self) -> None:
        results = [
            self._topic(topic_id=topic.topic_id, partitions=parts)
            for topic, parts in zip(self._topics, self._results, strict=True)
        ]
        self._finish(self._response(results=results))


def tell_end(part: Part, error: ErrorCode | None, _at: Instant) -> None:
    """Tell that the append on which a part of an answer depends has ended; None: it is durable."""
    if error is None:
        part()
    else:
        part(error=ProtocolError(APPEND_ERRORS.get(error, error)))


def request_structures(request: type) -> tuple[Any, Any]:
    """The structures that a request is made of: its topics, and their partitions."""
    return _REQUESTED[request]


_REQUESTED: Final[dict[type, tuple[Any, Any]]] = {
    initialize_share_group_state.InitializeShareGroupStateRequest: (
        initialize_share_group_state.InitializeStateData,
        initialize_share_group_state.PartitionData,
    ),
    read_share_group_state.ReadShareGroupStateRequest: (
        read_share_group_state.ReadStateData,
        read_share_group_state.PartitionData,
    ),
    write_share_group_state.WriteShareGroupStateRequest: (
        write_share_group_state.WriteStateData,
        write_share_group_state.PartitionData,
    ),
    delete_share_group_state.DeleteShareGroupStateRequest: (
        delete_share_group_state.DeleteStateData,
        delete_share_group_state.PartitionData,
    ),
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest: (
        read_share_group_state_summary.ReadStateSummaryData,
        read_share_group_state_summary.PartitionData,
    ),
}
