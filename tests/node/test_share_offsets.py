"""Offsets of share groups through the wire: what is told of each topic, and of many groups."""

from __future__ import annotations

from typing import Any

from strandline.errors import ErrorCode
from strandline.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from strandline.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from tests.lines import lines_of
from tests.node.share_members import GROUP, empty_group, form_group
from tests.node.world import World

NOTHING = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "There is no offset information to delete.",
)


def forget(world: World, *topics: str) -> dict[str, tuple[ErrorCode, str | None]]:
    request = DeleteShareGroupOffsetsRequest(
        group_id=GROUP,
        topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics],
    )
    client = world.connect()
    client.send(request, 0)
    world.advance(1000)
    answer: Any
    [answer] = client.answers
    assert answer.error_code == ErrorCode.NONE
    return {
        each.topic_name: (ErrorCode(each.error_code), each.error_message)
        for each in answer.responses
    }


def test_a_topic_of_which_the_group_has_no_state_is_refused(world: World) -> None:
    world.create_topic("others")
    form_group(world, "orders")
    empty_group(world)
    assert forget(world, "others", "orders", "missing") == {
        "others": NOTHING,
        "orders": (ErrorCode.NONE, None),
        "missing": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None),
    }
    assert forget(world, "orders") == {"orders": NOTHING}


def describe(world: World, count: int) -> int:
    """How many lines it takes to tell that so many groups are not there."""
    groups = [DescribeShareGroupOffsetsRequestGroup(group_id=f"g{each}") for each in range(count)]
    client = world.connect()
    client.send(DescribeShareGroupOffsetsRequest(groups=groups), 1)
    lines = lines_of(world.turn)
    answer: Any
    [answer] = client.answers
    assert [each.group_id for each in answer.groups] == [each.group_id for each in groups]
    return lines


def test_many_groups_in_one_request(world: World) -> None:
    """What a group costs does not depend on how many stand before it."""
    form_group(world, "orders")
    describe(world, 1)  # a first refusal imports what tells of it
    assert describe(world, 400) < 3 * describe(world, 200)
