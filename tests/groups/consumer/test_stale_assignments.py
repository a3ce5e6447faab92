"""Classic groups that become consumer groups with an assignment of a topic that is gone."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from tests.groups.consumer.test_both_protocols import ClassicClient
from tests.groups.consumer.world import Cluster, ConsumerWorld, code


@pytest.mark.parametrize("topic", ["orders", "clicks"])
def test_what_the_topic_of_the_name_has_now_is_taken_over(topic: str) -> None:
    """It was made again with fewer partitions, and the group has not rebalanced since."""
    cluster = Cluster(orders=10, clicks=2)
    world = ConsumerWorld(cluster=cluster)
    classic = ClassicClient(world)
    classic.join()
    world.advance(9_001)
    classic.joined()
    stored = world.assignment(*[("orders", number) for number in range(10)], ("orders", -1))
    assert code(classic.sync([(classic.member_id, stored)])) is ErrorCode.NONE
    cluster.drop("orders")
    cluster.put("orders", 3)
    world.topics_changed("orders", are_new=True)

    newcomer = world.client("new", topics=[topic])
    assert code(newcomer.beat()) is ErrorCode.NONE
    described = {member.member_id: member for member in world.describe().members}
    taken = described[classic.member_id].assignment.topic_partitions
    assert [sorted(each.partitions) for each in taken] == [[0, 1, 2]]
    classic.owned = {("orders", number) for number in range(3)}
    for _ in range(4):
        classic.beat()
        newcomer.beat()
        world.advance(1)
    assert world.states()[0] == "Stable"
    everything = {("orders", number) for number in range(3)}
    if topic == "clicks":
        everything |= {("clicks", number) for number in range(2)}
    assert sorted(classic.owned | newcomer.owned) == sorted(everything)
    assert not classic.owned & newcomer.owned
