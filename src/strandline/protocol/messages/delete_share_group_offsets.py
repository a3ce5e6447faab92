"""DeleteShareGroupOffsets: have share groups forget topics (KIP-932)."""

from __future__ import annotations

from uuid import UUID

from strandline.protocol.declare import (
    array,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
    uuid,
)


@structure
class DeleteShareGroupOffsetsRequestTopic:
    """A topic."""

    topic_name: str = string()


@message("0", flexible="0+")
class DeleteShareGroupOffsetsRequest:
    """The group, and what it is to forget."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


@structure
class DeleteShareGroupOffsetsResponseTopic:
    """What became of one topic."""

    topic_name: str = string()
    topic_id: UUID = uuid()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@message("0", flexible="0+")
class DeleteShareGroupOffsetsResponse:
    """What became of it."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
