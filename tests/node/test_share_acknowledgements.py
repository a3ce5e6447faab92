"""Acknowledgements of several partitions in one request: each has an outcome of its own."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.messages import share_acknowledge, share_fetch
from tests.node.messages import batch, produce
from tests.node.share_members import GROUP, ShareMember, form_group, topic_id_of
from tests.node.world import World

NONE, INVALID = ErrorCode.NONE, ErrorCode.INVALID_REQUEST


@pytest.fixture
def member(world: World) -> ShareMember:
    """It has two records of `orders` and one of `others`."""
    world.create_topic("others")
    form_group(world, "orders", "others")
    client = world.connect()
    client.ask(produce(batch(b"x", b"y")), 9)
    client.ask(produce(batch(b"z"), "others"), 9)
    member = ShareMember(world, "a")
    assert member.acquire("orders") == [(0, 1, 1)]
    assert member.acquire("others") == [(0, 0, 1)]
    return member


def batches(module: Any) -> list[list[Any]]:
    """Acknowledgements of `orders`, among them one that renews, and of `others`."""
    renews, accepts = AckType.RENEW, AckType.ACCEPT
    make = module.AcknowledgementBatch
    return [
        [make(first_offset=0, last_offset=1, acknowledge_types=[renews, accepts])],
        [make(first_offset=0, last_offset=0, acknowledge_types=[accepts])],
    ]


def test_a_renewal_beside_a_fetch_is_refused_for_its_partition_alone(
    world: World, member: ShareMember
) -> None:
    """The whole request was refused, and what it acknowledged elsewhere lost."""
    request = member.request("orders", "others")
    for topic, acknowledged in zip(request.topics, batches(share_fetch), strict=True):
        topic.partitions[0].acknowledgement_batches = acknowledged
    member.client.send(request, 2)
    world.turn()
    told = {topic: each.acknowledged for topic, each in member.told().items()}
    assert told == {topic_id_of(world, "orders"): INVALID, topic_id_of(world, "others"): NONE}


def test_a_renewal_that_is_not_said_to_be_one_is_refused_for_its_partition_alone(
    world: World, member: ShareMember
) -> None:
    ids = [topic_id_of(world, name) for name in ("orders", "others")]
    request = share_acknowledge.ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id=member.member_id,
        share_session_epoch=member.epoch,
        topics=[
            share_acknowledge.AcknowledgeTopic(
                topic_id=topic_id,
                partitions=[
                    share_acknowledge.AcknowledgePartition(
                        partition_index=0, acknowledgement_batches=acknowledged
                    )
                ],
            )
            for topic_id, acknowledged in zip(ids, batches(share_acknowledge), strict=True)
        ],
    )
    answer = member.client.ask(request, 2)
    assert answer.error_code == NONE
    assert {
        topic.topic_id: each.error_code for topic in answer.responses for each in topic.partitions
    } == {ids[0]: INVALID, ids[1]: NONE}


def test_locks_are_renewed_by_a_request_that_says_so(world: World, member: ShareMember) -> None:
    member.send("orders", acks=[(0, 1, AckType.RENEW)], is_renew_ack=True)
    assert member.told()[topic_id_of(world, "orders")] == (NONE, NONE, [])
