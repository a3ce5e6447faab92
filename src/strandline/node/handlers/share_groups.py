"""Share groups as their members and administrators see them (KIP-932): heartbeats, descriptions,
and where a group is in its topics.

A group's coordinator knows which partitions have a state; where they start only share coordinators
know, and how far that is behind the end of a log its leader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.authorization.acls import Operation
from strandline.cluster.features import SHARE_VERSION, level_of
from strandline.errors import ErrorCode, ProtocolError
from strandline.groups.requests import every_topic
from strandline.groups.share.admin import Outcomes, ShareAdmin
from strandline.groups.share.image import ShareImage
from strandline.node.group_host import GroupHost
from strandline.node.handlers.authorized import GROUP_OPERATIONS
from strandline.node.handlers.share_fetch import NO_SHARE_GROUPS
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.sharing.access import ShareAccess
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from strandline.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from strandline.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from strandline.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from strandline.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from strandline.sharing.records import ShareKey
from strandline.types import NO_TOPIC_ID, Instant, TopicId

if TYPE_CHECKING:
    from strandline.node.authorization.authority import Authority

_UNKNOWN: Final = -1
_NOTHING_TO_DELETE: Final = "There is no offset information to delete."

Permits = Callable[[str], bool]


class ShareGroupsHandler:
    """Answers ShareGroupHeartbeat and ShareGroupDescribe (version 1), and Describe-, Alter- and
    DeleteShareGroupOffsets."""

    def __init__(
        self,
        groups: GroupHost,
        metadata: Metadata,
        access: ShareAccess,
        authority: Authority | None = None,
    ) -> None:
        self._groups = groups
        self._metadata = metadata
        self._access = access
        self._authority = authority

    @property
    def _is_served(self) -> bool:
        return level_of(self._metadata.image, SHARE_VERSION) > 0

    def heartbeat(self, request: Request[ShareGroupHeartbeatRequest], now: Instant) -> None:
        """Let a member join, stay or leave."""
        if self._is_served:
            self._groups.ask(request, now)
            return
        request.reply(
            ShareGroupHeartbeatResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=NO_SHARE_GROUPS
            )
        )

    def describe(self, request: Request[ShareGroupDescribeRequest], now: Instant) -> None:
        """Describe groups with their members."""
        if self._is_served:
            complete = _with_operations if request.body.include_authorized_operations else None
            self._groups.ask(request, now, complete=complete)
            return
        refused = ErrorCode.UNSUPPORTED_VERSION
        request.reply(
            ShareGroupDescribeResponse(
                groups=[
                    DescribedGroup(group_id=group_id, error_code=refused)
                    for group_id in request.body.group_ids
                ]
            )
        )

    def _administer(self, group_id: str, do: Callable[[ShareAdmin], None], now: Instant) -> None:
        if not self._is_served:
            raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, NO_SHARE_GROUPS)
        if not group_id:
            raise ProtocolError(ErrorCode.INVALID_GROUP_ID, "The group id is empty.")
        self._groups.administer(group_id, do, now)

    def _permits(self, request: Request[Any], operation: Operation, now: Instant) -> Permits:
        if self._authority is None:
            return every_topic
        return self._authority.access(request, now).topics(operation)

    # -- Describing offsets ------------------------------------------------------------------

    def describe_offsets(
        self, request: Request[DescribeShareGroupOffsetsRequest], now: Instant
    ) -> None:
        """Tell where groups are in their topics."""
        groups = request.body.groups
        answers: dict[int, DescribeShareGroupOffsetsResponseGroup] = {}
        permits = self._permits(request, Operation.DESCRIBE, now)

        def told(number: int, answer: DescribeShareGroupOffsetsResponseGroup) -> None:
            answers[number] = answer
            if len(answers) == len(groups):
                complete = [answers[each] for each in range(len(groups))]
                request.reply(DescribeShareGroupOffsetsResponse(groups=complete))

        if not groups:
            request.reply(DescribeShareGroupOffsetsResponse())
        for number, wanted in enumerate(groups):

            def deliver(
                answer: DescribeShareGroupOffsetsResponseGroup, number: int = number
            ) -> None:
                told(number, answer)

            try:
                self._describe_group(wanted, permits, deliver, now)
            except ProtocolError as refusal:
                deliver(
                    DescribeShareGroupOffsetsResponseGroup(
                        group_id=wanted.group_id,
                        error_code=refusal.code,
                        error_message=refusal.message or None,
                    )
                )

    def _describe_group(
        self,
        wanted: DescribeShareGroupOffsetsRequestGroup,
        permits: Permits,
        deliver: Callable[[DescribeShareGroupOffsetsResponseGroup], None],
        now: Instant,
    ) -> None:
        images: list[ShareImage] = []
        self._administer(
            wanted.group_id, lambda admin: images.append(admin.group(wanted.group_id).durable), now
        )
        kept = images[0].partitions.initialized
        answer = DescribeShareGroupOffsetsResponseGroup(group_id=wanted.group_id)
        asked: list[tuple[ShareKey, DescribeShareGroupOffsetsResponsePartition]] = []
        names = wanted.topics
        if names is None:
            places = {each.name: sorted(each.partitions) for each in kept.values()}
        else:
            places = {topic.topic_name: topic.partitions for topic in names}
        for name, numbers in places.items():
            if not permits(name):
                if names is not None:
                    answer.topics.append(_refused_topic(name, numbers))
                continue
            topic = self._metadata.image.topics.get(name)
            told = DescribeShareGroupOffsetsResponseTopic(
                topic_name=name, topic_id=NO_TOPIC_ID if topic is None else topic.topic_id
            )
            answer.topics.append(told)
            for number in numbers:
                item = DescribeShareGroupOffsetsResponsePartition(
                    partition_index=number, start_offset=_UNKNOWN
                )
                told.partitions.append(item)
                if topic is None or number not in topic.partitions:
                    item.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                there = kept.get(topic.topic_id)
                if there is not None and number in there.partitions:
                    asked.append((ShareKey(wanted.group_id, topic.topic_id, number), item))
        left = len(asked)
        if not left:
            deliver(answer)

        def complete() -> None:
            nonlocal left
            left -= 1
            if not left:
                deliver(answer)

        for key, item in asked:
            answered = partial(self._summarized, item, key, complete)
            self._access.persister.ask(
                ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, key, {"leader_epoch": -1}, answered, now
            )

    def _summarized(
        self,
        item: DescribeShareGroupOffsetsResponsePartition,
        key: ShareKey,
        complete: Callable[[], None],
        result: Any,
        now: Instant,
    ) -> None:
        if result.error_code:
            item.error_code, item.error_message = result.error_code, result.error_message
            complete()
            return
        start, done_count = result.start_offset, result.delivery_complete_count
        item.start_offset, item.leader_epoch = start, result.leader_epoch
        if start < 0 or done_count < 0:
            complete()
            return

        def ended(end: int | None, _: Instant) -> None:
            if end is not None:
                item.lag = max(0, end - start - done_count)
            complete()

        self._access.log_ends.ask(key.topic_id, key.partition, ended, now)

    # -- Altering offsets --------------------------------------------------------------------

    def alter_offsets(self, request: Request[AlterShareGroupOffsetsRequest], now: Instant) -> None:
        """Put a group without members elsewhere in its topics."""
        body = request.body
        permits = self._permits(request, Operation.READ, now)
        starts: dict[TopicId, dict[int, int]] = {}
        refused: dict[tuple[str, int], ErrorCode] = {}
        for topic in body.topics:
            known = self._metadata.image.topics.get(topic.topic_name)
            for item in topic.partitions:
                at = (topic.topic_name, item.partition_index)
                if not permits(topic.topic_name):
                    refused[at] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif known is None or item.partition_index not in known.partitions:
                    refused[at] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    numbers = starts.setdefault(known.topic_id, {})
                    numbers[item.partition_index] = item.start_offset

        def deliver(code: ErrorCode, outcomes: Outcomes) -> None:
            if code is not ErrorCode.NONE:
                request.reply(AlterShareGroupOffsetsResponse(error_code=code))
                return
            request.reply(
                AlterShareGroupOffsetsResponse(
                    responses=[
                        AlterShareGroupOffsetsResponseTopic(
                            topic_name=topic.topic_name,
                            topic_id=(topic_id := self._id_of(topic.topic_name)),
                            partitions=[
                                AlterShareGroupOffsetsResponsePartition(
                                    partition_index=item.partition_index,
                                    error_code=refused.get(
                                        (topic.topic_name, item.partition_index),
                                        outcomes.get(
                                            (topic_id, item.partition_index), ErrorCode.NONE
                                        ),
                                    ),
                                )
                                for item in topic.partitions
                            ],
                        )
                        for topic in body.topics
                    ]
                )
            )

        self._try(
            request,
            AlterShareGroupOffsetsResponse,
            lambda admin: admin.alter(body.group_id, starts, now, deliver),
            now,
        )

    # -- Deleting offsets --------------------------------------------------------------------

    def delete_offsets(
        self, request: Request[DeleteShareGroupOffsetsRequest], now: Instant
    ) -> None:
        """Have a group without members forget topics."""
        body = request.body
        permits = self._permits(request, Operation.READ, now)
        refused: dict[str, ErrorCode] = {}
        topic_ids: dict[str, TopicId] = {}
        for topic in body.topics:
            if not permits(topic.topic_name):
                refused[topic.topic_name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif topic.topic_name not in self._metadata.image.topics:
                refused[topic.topic_name] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                topic_ids[topic.topic_name] = self._id_of(topic.topic_name)

        def deliver(code: ErrorCode, outcomes: Outcomes) -> None:
            if code is not ErrorCode.NONE:
                request.reply(DeleteShareGroupOffsetsResponse(error_code=code))
                return
            by_topic = _first_errors(outcomes)

            def told(name: str) -> DeleteShareGroupOffsetsResponseTopic:
                if name in refused:
                    return DeleteShareGroupOffsetsResponseTopic(
                        topic_name=name, error_code=refused[name]
                    )
                found = by_topic.get(topic_ids[name])
                if found is None:
                    return DeleteShareGroupOffsetsResponseTopic(
                        topic_name=name,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        error_message=_NOTHING_TO_DELETE,
                    )
                return DeleteShareGroupOffsetsResponseTopic(
                    topic_name=name, topic_id=topic_ids[name], error_code=found
                )

            request.reply(
                DeleteShareGroupOffsetsResponse(
                    responses=[told(topic.topic_name) for topic in body.topics]
                )
            )

        self._try(
            request,
            DeleteShareGroupOffsetsResponse,
            lambda admin: admin.forget_topics(body.group_id, topic_ids.values(), now, deliver),
            now,
        )

    def _try(
        self,
        request: Request[Any],
        response: Callable[..., Any],
        do: Callable[[ShareAdmin], None],
        now: Instant,
    ) -> None:
        try:
            self._administer(request.body.group_id, do, now)
        except ProtocolError as refusal:
            request.reply(response(error_code=refusal.code, error_message=refusal.message or None))

    def _id_of(self, name: str) -> TopicId:
        topic = self._metadata.image.topics.get(name)
        return NO_TOPIC_ID if topic is None else topic.topic_id


def _first_errors(outcomes: Outcomes) -> Mapping[TopicId, ErrorCode]:
    """What became of each topic that has a partition: its first error, or NONE."""
    found: dict[TopicId, ErrorCode] = {}
    for (topic_id, _), code in outcomes.items():
        if found.get(topic_id, ErrorCode.NONE) is ErrorCode.NONE:
            found[topic_id] = code
    return found


def _refused_topic(name: str, numbers: list[int]) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number,
                start_offset=_UNKNOWN,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for number in numbers
        ],
    )


def _with_operations(response: ShareGroupDescribeResponse) -> ShareGroupDescribeResponse:
    for group in response.groups:
        if group.error_code == ErrorCode.NONE:
            group.authorized_operations = GROUP_OPERATIONS
    return response
