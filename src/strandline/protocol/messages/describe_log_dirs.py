"""DescribeLogDirs: what lies in a broker's log directories, and how full they are."""

from __future__ import annotations

from strandline.protocol.declare import (
    INT32,
    array,
    boolean,
    int16,
    int32,
    int64,
    message,
    nullable_array,
    string,
    structure,
)


@structure
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: str = string()
    partitions: list[int] = array(INT32)


@message("1-5", flexible="2+")
class DescribeLogDirsRequest:
    """The partitions of interest; null for all."""

    topics: list[DescribableLogDirTopic] | None = nullable_array(DescribableLogDirTopic)


@structure
class DescribeLogDirsPartition:
    """Size of one replica, and how far it lags behind."""

    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@structure
class DescribeLogDirsTopic:
    """Partitions of one topic."""

    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@structure
class DescribeLogDirsResult:
    """One log directory."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1, ignorable=True)
    usable_bytes: int = int64("4+", default=-1, ignorable=True)
    is_cordoned: bool = boolean("5+", ignorable=True)


@message("1-5", flexible="2+")
class DescribeLogDirsResponse:
    """The log directories."""

    throttle_time_ms: int = int32()
    error_code: int = int16("3+", ignorable=True)
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)
