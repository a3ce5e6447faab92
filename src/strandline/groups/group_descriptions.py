"""Groups as ListGroups and the three kinds of descriptions show them: nothing here changes any."""

from __future__ import annotations

from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.consumer.describing import described_consumer_group
from strandline.groups.overview import described_group, listed_groups
from strandline.groups.owned_shards import OwnedShards
from strandline.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from strandline.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumers,
)
from strandline.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from strandline.protocol.messages.list_groups import (
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from strandline.protocol.messages.share_group_describe import (
    DescribedGroup as DescribedShareGroup,
)
from strandline.protocol.messages.share_group_describe import (
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


class GroupDescriptions:
    """See the module."""

    def __init__(self, shards: OwnedShards) -> None:
        self._shards = shards

    def listed(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """All groups that are coordinated here and pass the filters of the request."""
        if not self._shards.are_loaded:
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        groups: list[ListedGroup] = []
        for served in self._shards:
            groups += listed_groups(served.shard, request)
        return ListGroupsResponse(groups=sorted(groups, key=lambda group: group.group_id))

    def described(self, request: DescribeGroupsRequest, version: int) -> DescribeGroupsResponse:
        """Groups of any kind, as clients of the classic protocol know them."""
        groups = [self._classic(group_id, version) for group_id in request.groups]
        return DescribeGroupsResponse(groups=groups)

    def described_consumers(
        self, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse:
        """Groups of the consumer protocol."""
        groups = [self._consumers(group_id) for group_id in request.group_ids]
        return ConsumerGroupDescribeResponse(groups=groups)

    def described_share_groups(
        self, request: ShareGroupDescribeRequest
    ) -> ShareGroupDescribeResponse:
        """Share groups."""
        groups = [self._share_group(group_id) for group_id in request.group_ids]
        return ShareGroupDescribeResponse(groups=groups)

    def _classic(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return described_group(self._shards.served(group_id).shard, group_id, version)
        except ProtocolError as refusal:
            return DescribedGroup(group_id=group_id, error_code=refusal.code)

    def _consumers(self, group_id: str) -> DescribedConsumers:
        if not group_id:
            return DescribedConsumers(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            shard = self._shards.served(group_id).shard
        except ProtocolError as refusal:
            return DescribedConsumers(group_id=group_id, error_code=refusal.code)
        group = shard.consumer_groups.get(group_id)
        if group is None or not group.durable.exists:
            classic = group_id in shard.groups
            return DescribedConsumers(
                group_id=group_id,
                error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group_id} is not a consumer group."
                if classic
                else f"Group {group_id} not found.",
            )
        default = shard.settings.consumer.assignors[0]
        return described_consumer_group(group_id, group.durable, shard.cluster, default)

    def _share_group(self, group_id: str) -> DescribedShareGroup:
        if not group_id:
            return DescribedShareGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            return self._shards.served(group_id).share_admin.describe(group_id)
        except ProtocolError as refusal:
            return DescribedShareGroup(group_id=group_id, error_code=refusal.code)
