"""Static members of the consumer protocol that come back with the classic one."""

from __future__ import annotations

from strandline.errors import ErrorCode
from strandline.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from strandline.protocol.schema import encode_versioned
from tests.groups.consumer.test_both_protocols import ClassicClient, numbers
from tests.groups.consumer.world import Cluster, ConsumerWorld, code

PARTITIONS = {("orders", number) for number in range(6)}


def classic_group(world: ConsumerWorld) -> tuple[ClassicClient, ClassicClient]:
    """A stable classic group: the first one owns one partition, the second one all others."""
    few, many = ClassicClient(world), ClassicClient(world)
    for client in (few, many):
        client.join()
    world.advance(9_001)
    for client in (few, many):
        client.joined()
    owned = {few.member_id: {("orders", 0)}, many.member_id: PARTITIONS - {("orders", 0)}}
    parts = [
        (
            member_id,
            encode_versioned(ConsumerProtocolAssignment(assigned_partitions=numbers(theirs)), 3),
        )
        for member_id, theirs in owned.items()
    ]
    leader = world.replies[few.joining].leader
    for client in sorted((few, many), key=lambda each: each.member_id != leader):
        client.sync(parts if client.member_id == leader else ())
    assert (len(few.owned), len(many.owned)) == (1, 5)
    return few, many


def beat(client: ClassicClient) -> None:
    """A heartbeat, and what follows from it: the client of an old generation joins anew."""
    if client.beat() is ErrorCode.ILLEGAL_GENERATION:
        client.generation, client.owned = -1, set()
        client.join()


def rebalance(world: ConsumerWorld, *clients: ClassicClient) -> None:
    """Let the members of a classic group come together, and their leader share out."""
    for client in clients:
        beat(client)
    answers = [client.joined() for client in clients]
    assert [code(answer) for answer in answers] == [ErrorCode.NONE] * len(clients)
    numbered = sorted(PARTITIONS)
    parts = [
        (
            client.member_id,
            encode_versioned(
                ConsumerProtocolAssignment(
                    assigned_partitions=numbers(numbered[index :: len(clients)])
                ),
                3,
            ),
        )
        for index, client in enumerate(clients)
    ]
    leader = world.replies[clients[0].joining].leader
    for client in sorted(clients, key=lambda each: each.member_id != leader):
        client.sync(parts if client.member_id == leader else ())


def test_a_member_that_still_waits_for_partitions_gets_them_in_a_rebalance() -> None:
    world = ConsumerWorld(cluster=Cluster(orders=6))
    few, many = classic_group(world)
    static = world.client("s", instance_id="i")
    assert static.beat().member_epoch == 2
    assert few.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert (few.generation, few.owned) == (2, {("orders", 0)}), "the rest is with the other one"

    successor = ClassicClient(world, instance_id="i")
    assert code(successor.join()) is ErrorCode.NONE
    assert world.state() == "PreparingRebalance"
    rebalance(world, few, many, successor)
    assert world.state() == "Stable"
    assert few.owned | many.owned | successor.owned == PARTITIONS
    assert {client.beat() for client in (few, many, successor)} == {ErrorCode.NONE}


def test_a_successor_that_waits_for_partitions_itself_gets_them_in_a_rebalance() -> None:
    world = ConsumerWorld(cluster=Cluster(orders=6))
    few, many = classic_group(world)
    static = world.client("s", instance_id="i")
    static.beat()
    assert not static.owned, "all of them are with others"

    successor = ClassicClient(world, instance_id="i")
    assert code(successor.join()) is ErrorCode.NONE
    assert world.state() == "PreparingRebalance"
    rebalance(world, few, many, successor)
    assert few.owned | many.owned | successor.owned == PARTITIONS
