"""Share fetches that wait: for how long, and what ends the wait."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode
from strandline.protocol.acknowledge_type import AckType
from tests.node.messages import batch, produce
from tests.node.share_members import GROUP, ShareMember, form_group, topic_id_of
from tests.node.test_authorization import ALICE, Secured
from tests.node.world import World

NONE = ErrorCode.NONE


@pytest.fixture
def member(world: World) -> ShareMember:
    """It fetches from `orders`, of which it has read everything, and from `others`."""
    world.create_topic("others")
    form_group(world, "orders", "others")
    member = ShareMember(world, "a")
    for topic in ("orders", "others"):
        world.connect().ask(produce(batch(b"x"), topic), 9)
        [(first, last, _)] = member.acquire(topic)
        member.send(topic, acks=[(first, last, AckType.ACCEPT)])
    return member


def codes(member: ShareMember) -> dict[UUID, ErrorCode]:
    return {topic: told.code for topic, told in member.told().items()}


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_unknown_topic_does_not_keep_the_others_from_being_waited_for(
    world: World, member: ShareMember, is_deleted: bool
) -> None:
    """A member of two topics of which one is deleted would fetch in a loop."""
    unknown: str | UUID = uuid4()
    if is_deleted:
        unknown = topic_id_of(world, "others")
        world.delete_topic("others")
    member.send("orders", unknown, max_wait_ms=1000)
    world.advance(999)
    assert member.waits
    world.advance(1)
    assert codes(member) == {unknown: ErrorCode.UNKNOWN_TOPIC_ID}
    member.send("orders", unknown, max_wait_ms=1000)
    world.connect().ask(produce(batch(b"y")), 9)
    told = member.told()
    assert told[topic_id_of(world, "orders")].acquired == [(1, 1, 1)]


def test_failures_alone_are_told_at_once(world: World, member: ShareMember) -> None:
    topics = topic_id_of(world, "orders"), topic_id_of(world, "others")
    for topic in ("orders", "others"):
        world.delete_topic(topic)
    member.send(*topics, max_wait_ms=1000)
    assert codes(member) == dict.fromkeys(topics, ErrorCode.UNKNOWN_TOPIC_ID)


def test_a_topic_that_is_deleted_does_not_end_the_wait_for_others(
    world: World, member: ShareMember
) -> None:
    member.send("orders", "others", max_wait_ms=1000)
    others = topic_id_of(world, "others")
    world.delete_topic("others")
    assert member.waits
    world.advance(1000)
    assert codes(member) == {others: ErrorCode.UNKNOWN_TOPIC_ID}


def test_what_became_of_acknowledgements_is_told_at_once(world: World, member: ShareMember) -> None:
    world.connect().ask(produce(batch(b"y")), 9)
    assert member.acquire() == [(1, 1, 1)]
    unknown = uuid4()
    member.send("orders", unknown, acks=[(1, 1, AckType.ACCEPT)], max_wait_ms=1000)
    told = member.told()
    assert told[topic_id_of(world, "orders")] == (NONE, NONE, [])
    assert told[unknown].code is ErrorCode.UNKNOWN_TOPIC_ID


@pytest.fixture
def secured() -> Iterator[Secured]:
    """Alice may read `orders`, and not `payments`."""
    made = Secured()
    form_group(made.world, "orders", "payments", principal=made.root.connection.principal)
    made.allow(
        (Operation.READ, ResourceType.TOPIC, "orders"),
        (Operation.READ, ResourceType.GROUP, GROUP),
    )
    yield made
    made.world.check()


def test_a_denied_topic_does_not_keep_the_others_from_being_waited_for(secured: Secured) -> None:
    world = secured.world
    member = ShareMember(world, "a", ALICE)
    member.send("payments", "orders", max_wait_ms=1000)
    world.advance(999)
    assert member.waits
    world.advance(1)
    denied = topic_id_of(world, "payments")
    assert codes(member) == {denied: ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    member.send("payments", "orders", max_wait_ms=1000)
    assert member.waits
    secured.root.ask(produce(batch(b"y")), 9)
    assert member.told()[topic_id_of(world, "orders")].acquired == [(0, 0, 1)]
