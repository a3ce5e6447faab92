"""Share sessions that end and begin while others fetch."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.acknowledge_type import AckType
from tests.node.messages import batch, produce
from tests.node.share_members import ShareMember, form_group, topic_id_of
from tests.node.world import World

NONE = ErrorCode.NONE


@pytest.fixture
def group(world: World) -> None:
    """There are ten records for it."""
    form_group(world, "orders")
    world.connect().ask(produce(batch(*[b"x"] * 10)), 9)


@pytest.mark.usefixtures("group")
def test_a_session_that_opens_as_the_last_one_ends_keeps_its_records(world: World) -> None:
    """They were given to a third member as well, since the share partition was given up."""
    first, second, third = (ShareMember(world, name) for name in "abc")
    assert first.acquire(max_records=1) == [(0, 0, 1)]
    first.client.close()
    second.send("orders", max_records=5)
    [told] = second.told().values()
    assert told.acquired == [(1, 5, 1)]
    world.advance(100)
    assert third.acquire() == [(0, 0, 2), (6, 9, 1)]
    second.send("orders", acks=[(1, 5, AckType.ACCEPT)])
    assert second.told()[topic_id_of(world, "orders")].acknowledged is NONE


@pytest.mark.usefixtures("group")
def test_a_share_partition_is_given_up_with_the_last_session(world: World) -> None:
    member = ShareMember(world, "a")
    member.acquire()
    member.client.close()
    world.advance(1)
    assert world.node.sharing.leading.all() == []
