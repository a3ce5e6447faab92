"""DeleteShareGroupOffsets through the wire: what is told of each topic."""

from __future__ import annotations

from typing import Any

from strandline.errors import ErrorCode
from strandline.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
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
