"""CreatePartitions: give topics more partitions."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
)


@structure
class CreatePartitionsAssignment:
    """The brokers of one new partition, chosen by hand."""

    broker_ids: list[int] = array(INT32)


@structure
class CreatePartitionsTopic:
    """A topic and how many partitions it is to have in all."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = nullable_array(
        CreatePartitionsAssignment
    )


@message("0-3", flexible="2+")
class CreatePartitionsRequest:
    """The topics to widen."""

    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@structure
class CreatePartitionsTopicResult:
    """Outcome for one topic."""

    name: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)


@message("0-3", flexible="2+")
class CreatePartitionsResponse:
    """Outcome per topic."""

    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
