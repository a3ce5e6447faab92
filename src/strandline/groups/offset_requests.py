"""What may be asked about committed offsets, and the answers.

OffsetCommit, OffsetFetch and OffsetDelete; see `requests` for what a token and a version are.
Whether topics and partitions exist, and who may touch them, is decided before, in the node.
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.errors import ErrorCode
from strandline.groups.requests import NO_GENERATION, NO_MEMBER_ID, Token
from strandline.types import NO_EPOCH, NO_OFFSET, NO_TOPIC_ID, LeaderEpoch, Offset, TopicId

BROKER_RETENTION = -1
"""The retention time of a commit that leaves it to the broker."""


@dataclass(frozen=True, slots=True)
class PartitionCommit:
    """The offset to commit for one partition."""

    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str | None = None


@dataclass(frozen=True, slots=True)
class TopicCommit:
    """The offsets to commit for one topic."""

    topic: str
    partitions: tuple[PartitionCommit, ...]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class TopicErrors:
    """What became of one topic's partitions: (partition, error) in the order of the request."""

    topic: str
    partitions: tuple[tuple[int, ErrorCode], ...]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """One entry for each topic of the request."""

    topics: tuple[TopicErrors, ...]


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """OffsetCommit: by a member (with its generation), or by anyone while the group is empty."""

    token: Token
    version: int
    group_id: str
    topics: tuple[TopicCommit, ...]
    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    retention_ms: int = BROKER_RETENTION

    def refused(self, error: ErrorCode) -> OffsetCommitResponse:
        """The answer that carries `error` for every partition."""
        return OffsetCommitResponse(
            tuple(
                TopicErrors(
                    topic.topic,
                    tuple((commit.partition, error) for commit in topic.partitions),
                    topic.topic_id,
                )
                for topic in self.topics
            )
        )


@dataclass(frozen=True, slots=True)
class TopicFetch:
    """Partitions of one topic whose committed offsets are wanted."""

    topic: str
    partitions: tuple[int, ...]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class GroupFetch:
    """What is wanted of one group; `topics` None means all of them."""

    group_id: str
    topics: tuple[TopicFetch, ...] | None

    def refused(self, error: ErrorCode) -> GroupOffsets:
        """The answer that carries `error`; before version 8 the node spreads it as needed."""
        return GroupOffsets(self.group_id, (), error)


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """One partition's committed offset; `NO_OFFSET` with empty metadata if there is none."""

    partition: int
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class TopicOffsets:
    """The committed offsets of one topic."""

    topic: str
    partitions: tuple[FetchedOffset, ...]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The committed offsets of one group."""

    group_id: str
    topics: tuple[TopicOffsets, ...] = ()
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """One entry for each group of the request, in its order."""

    groups: tuple[GroupOffsets, ...]


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """OffsetFetch: durable offsets only; `require_stable` waits for what is being written."""

    token: Token
    groups: tuple[GroupFetch, ...]
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class OffsetDeleteResponse:
    """A group-wide error, or one entry for each topic of the request."""

    error: ErrorCode = ErrorCode.NONE
    topics: tuple[TopicErrors, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetDeleteRequest:
    """OffsetDelete (KIP-496): forget offsets of topics that no member subscribes to."""

    token: Token
    group_id: str
    topics: tuple[tuple[str, tuple[int, ...]], ...]

    def refused(self, error: ErrorCode) -> OffsetDeleteResponse:
        """The answer that carries `error`."""
        return OffsetDeleteResponse(error)
