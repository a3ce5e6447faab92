"""DeleteTopics: remove topics by name, or from version 6 by id."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    STRING,
    array,
    int16,
    int32,
    message,
    nullable_string,
    structure,
    uuid,
)


@structure
class DeleteTopicState:
    """A topic by name, or by id where the name is null."""

    name: str | None = nullable_string(default=None)
    topic_id: UUID = uuid()


@message("1-6", flexible="4+")
class DeleteTopicsRequest:
    """The topics to remove."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(STRING, "0-5", ignorable=True)
    timeout_ms: int = int32()


@structure
class DeletableTopicResult:
    """Outcome for one topic."""

    name: str | None = nullable_string(nullable="6+")
    topic_id: UUID = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = nullable_string("5+", default=None, ignorable=True)


@message("1-6", flexible="4+")
class DeleteTopicsResponse:
    """Outcome per topic."""

    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
