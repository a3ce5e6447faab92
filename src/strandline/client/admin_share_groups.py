"""Where share groups are in their topics: described, set elsewhere, forgotten (KIP-932).

Members and states of share groups are described as those of other groups, in `admin_groups`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.client.arguments import several
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.offsets import outcome
from strandline.client.refusal import check
from strandline.errors import ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from strandline.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from strandline.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from strandline.types import Offset, TopicPartition


@dataclass(frozen=True, slots=True)
class ShareGroupOffset:
    """Where a share group is in a partition.

    - `start`: all records before this offset are done; None before the group has begun there.
    - `lag`: how many records it has still to do, those in flight included; None if unknown.
    """

    start: Offset | None
    lag: int | None


class ShareGroupAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Where a group is, in all partitions that it has a state of, in their order. Raises
        `ProtocolError` (GROUP_ID_NOT_FOUND)."""
        request = DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)]
        )

        def attempt(connection: Connection) -> dict[TopicPartition, ShareGroupOffset]:
            response = connection.call(
                ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, DescribeShareGroupOffsetsResponse, request
            )
            found: dict[TopicPartition, ShareGroupOffset] = {}
            for told in response.groups:
                check(told.error_code, told.error_message, f"group '{group}'")
                for topic in told.topics:
                    for each in topic.partitions:
                        at = TopicPartition(topic.topic_name, each.partition_index)
                        check(each.error_code, each.error_message, f"partition {at}")
                        found[at] = ShareGroupOffset(
                            Offset(each.start_offset) if each.start_offset >= 0 else None,
                            each.lag if each.lag >= 0 else None,
                        )
            return dict(sorted(found.items()))

        return self._cluster.retry_on_coordinator(group, attempt)

    def set_offsets(self, group: str, starts: Mapping[TopicPartition, Offset]) -> None:
        """Have a group without members begin at these offsets.

        Raises `ProtocolError`: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, or whatever is refused first;
        others of `starts` may then be set.
        """
        topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
        for at, start in sorted(starts.items()):
            topic = topics.setdefault(
                at.topic, AlterShareGroupOffsetsRequestTopic(topic_name=at.topic)
            )
            topic.partitions.append(
                AlterShareGroupOffsetsRequestPartition(
                    partition_index=at.partition, start_offset=start
                )
            )
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=list(topics.values()))

        def attempt(connection: Connection) -> None:
            response = connection.call(
                ApiKey.ALTER_SHARE_GROUP_OFFSETS, AlterShareGroupOffsetsResponse, request
            )
            check(response.error_code, response.error_message, f"group '{group}'")
            for topic in response.responses:
                for each in topic.partitions:
                    at = TopicPartition(topic.topic_name, each.partition_index)
                    check(each.error_code, each.error_message, f"partition {at}")

        if topics:
            self._cluster.retry_on_coordinator(group, attempt)

    def delete_offsets(self, group: str, topics: Iterable[str]) -> dict[str, ProtocolError | None]:
        """Have a group without members forget topics; the outcome of each. Raises `ProtocolError`
        (NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND)."""
        wanted = several(topics, "Topics")
        request = DeleteShareGroupOffsetsRequest(
            group_id=group,
            topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=each) for each in wanted],
        )

        def attempt(connection: Connection) -> dict[str, ProtocolError | None]:
            response = connection.call(
                ApiKey.DELETE_SHARE_GROUP_OFFSETS, DeleteShareGroupOffsetsResponse, request
            )
            check(response.error_code, response.error_message, f"group '{group}'")
            return {
                each.topic_name: outcome(
                    each.error_code, each.error_message, f"topic '{each.topic_name}'"
                )
                for each in response.responses
            }

        return self._cluster.retry_on_coordinator(group, attempt)
