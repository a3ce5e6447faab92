"""Fetch through the wire: when it is answered, with how much, and how it is refused."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest

from strandline.errors import ErrorCode
from strandline.types import Offset
from tests.node.followers import Cluster
from tests.node.messages import batch, fetch, fetched, offsets, produce, values
from tests.node.test_quotas import alter, entity
from tests.node.world import World

FETCH_VERSIONS_BY_NAME = range(4, 13)


def fill(world: World, *batches: bytes, topic: str = "orders", partition: int = 0) -> None:
    client = world.connect()
    for data in batches:
        answer = client.ask(produce(data, topic, partition), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
    client.close()


@pytest.mark.parametrize("version", FETCH_VERSIONS_BY_NAME)
def test_every_version_by_name_reads_what_was_produced(world: World, version: int) -> None:
    fill(world, batch(b"a", b"b"), batch(b"c"))
    client = world.connect()
    answer = client.ask(fetch(("orders", 0, 0)), version)
    assert values(answer) == [b"a", b"b", b"c"]
    assert offsets(answer) == [0, 1, 2]
    assert fetched(answer)["orders", 0].high_watermark == 3


@pytest.mark.parametrize("version", range(13, 19))
def test_every_version_by_id_reads_what_was_produced(world: World, version: int) -> None:
    fill(world, batch(b"a"))
    topic_id = world.replica("orders").topic_id
    answer = world.connect().ask(fetch((topic_id, 0, 0)), version)
    assert values(answer) == [b"a"]
    unknown = UUID(int=77)
    answer = world.connect().ask(fetch((unknown, 0, 0)), version)
    assert fetched(answer)[unknown, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    answer = world.connect().ask(fetch((topic_id, 9, 0)), version)
    assert fetched(answer)[topic_id, 9].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_at_the_end_waits_and_is_woken_by_a_produce(world: World) -> None:
    client = world.connect()
    client.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)
    world.turn()
    assert client.answers == []
    assert len(world.node.purgatory) == 1
    world.advance(499)
    assert client.answers == []
    fill(world, batch(b"a"))
    assert values(client.answers[0]) == [b"a"]
    assert len(world.node.purgatory) == 0
    assert len(client.connection.parked) == 0


def test_a_fetch_that_waits_in_vain_is_answered_empty_at_its_time(world: World) -> None:
    client = world.connect()
    client.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)
    world.advance(500)
    assert values(client.answers[0]) == []
    assert fetched(client.answers[0])["orders", 0].error_code == 0
    assert len(world.node.purgatory) == 0


def test_min_bytes_counts_over_all_partitions(world: World) -> None:
    world.create_topic("other")
    data = batch(b"x" * 100)
    client = world.connect()
    client.send(
        fetch(("orders", 0, 0), ("other", 0, 0), max_wait_ms=500, min_bytes=2 * len(data)), 11
    )
    fill(world, data)
    assert client.answers == []
    fill(world, data, topic="other")
    assert values(client.answers[0]) == [b"x" * 100] * 2


def test_a_minimum_above_the_maximum_does_not_wait_for_ever(world: World) -> None:
    data = batch(b"x" * 100)
    fill(world, data, data)
    client = world.connect()
    request = fetch(("orders", 0, 0), max_wait_ms=500, min_bytes=10_000, max_bytes=len(data))
    answer = client.ask(request, 11)
    assert len(values(answer)) == 1


@pytest.mark.parametrize(
    ("sizes", "is_answered"), [((100, 100), True), ((100,), False), ((100, 5000), True)]
)
def test_i40_a_full_answer_does_not_wait_for_more(
    world: World, sizes: tuple[int, ...], is_answered: bool
) -> None:
    """What there is exceeds the maximum, though what fits of it is less than the minimum: nothing
    that comes could be sent with it (DelayedFetch counts what there is, not what fits)."""
    data = [batch(b"x" * size) for size in sizes]
    for number, each in enumerate(data):
        world.create_topic(f"t{number}")
        fill(world, each, topic=f"t{number}")
    most = len(data[0]) + 50
    wanted = [(f"t{number}", 0, 0) for number in range(len(sizes))]
    client = world.connect()
    client.send(fetch(*wanted, max_wait_ms=500, min_bytes=most, max_bytes=most), 11)
    world.turn()
    assert len(client.answers) == int(is_answered)
    world.advance(500)
    assert values(client.answers[0]) == [b"x" * 100]


def test_i40_batches_that_do_not_fit_are_not_waited_for(world: World) -> None:
    """The same within one partition; but with room left for others their records may come."""
    data = batch(b"x" * 100)
    fill(world, data, data)
    limits = {"max_bytes": len(data) + 50, "partition_max_bytes": len(data) + 50}
    for changed, is_answered in (("partition_max_bytes", True), ("max_bytes", False)):
        client = world.connect()
        least = {"min_bytes": len(data) + 50, "max_wait_ms": 500}
        fields: dict[str, Any] = {**limits, **least, changed: 10_000}
        client.send(fetch(("orders", 0, 0), **fields), 11)
        world.turn()
        assert len(client.answers) == int(is_answered)
        world.advance(500)
        assert values(client.answers[0]) == [b"x" * 100]


def test_no_wait_means_an_answer_at_once(world: World) -> None:
    answer = world.connect().ask(fetch(("orders", 0, 0), max_wait_ms=0, min_bytes=1), 11)
    assert values(answer) == []


def test_the_first_batch_comes_whole_whatever_the_limits(world: World) -> None:
    fill(world, batch(b"x" * 5000), batch(b"y" * 5000))
    client = world.connect()
    answer = client.ask(fetch(("orders", 0, 0), max_bytes=10, partition_max_bytes=10), 11)
    assert values(answer) == [b"x" * 5000]


@pytest.mark.parametrize("limits", [(-1, 1000), (1000, -1), (-(2**31), -(2**31)), (-200, 0)])
def test_negative_limits_are_taken_as_zero(world: World, limits: tuple[int, int]) -> None:
    data = batch(b"x" * 100)
    fill(world, *[data] * 5)
    client = world.connect()
    for offset in range(5):
        for wait_ms in (0, 10):
            request = fetch(
                ("orders", 0, offset),
                max_bytes=limits[0],
                partition_max_bytes=limits[1],
                max_wait_ms=wait_ms,
            )
            assert offsets(client.ask(request, 11)) == [offset]


def test_only_the_first_partition_with_data_may_exceed_the_limits(world: World) -> None:
    world.create_topic("other")
    fill(world, batch(b"x" * 5000))
    fill(world, batch(b"y" * 5000), topic="other")
    client = world.connect()
    answer = client.ask(
        fetch(("orders", 0, 0), ("other", 0, 0), max_bytes=10, partition_max_bytes=10), 11
    )
    assert [len(p.records or b"") > 0 for p in fetched(answer).values()] == [True, False]
    # An empty partition in front does not use the privilege up (KIP-74).
    answer = client.ask(
        fetch(("orders", 0, 1), ("other", 0, 0), max_bytes=10, partition_max_bytes=10), 11
    )
    assert values(answer) == [b"y" * 5000]


def test_the_budget_of_the_request_is_shared_by_its_partitions(world: World) -> None:
    world.create_topic("other")
    data = batch(b"x" * 1000)
    fill(world, *[data] * 5)
    fill(world, *[data] * 5, topic="other")
    budget = 7 * len(data) + 10
    answer = world.connect().ask(fetch(("orders", 0, 0), ("other", 0, 0), max_bytes=budget), 11)
    sizes = [len(p.records or b"") for p in fetched(answer).values()]
    assert sizes == [5 * len(data), 2 * len(data)]


def test_the_limit_of_a_partition_holds(world: World) -> None:
    data = batch(b"x" * 1000)
    fill(world, *[data] * 5)
    answer = world.connect().ask(fetch(("orders", 0, 0), partition_max_bytes=3 * len(data) + 1), 11)
    assert len(values(answer)) == 3


@pytest.mark.parametrize("offset", [-1, 4, 1 << 40])
def test_an_offset_outside_the_log_is_refused_without_waiting(world: World, offset: int) -> None:
    fill(world, batch(b"a", b"b", b"c"))
    answer = world.connect().ask(fetch(("orders", 0, offset), max_wait_ms=5000), 11)
    partition = fetched(answer)["orders", 0]
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert partition.high_watermark == -1


def test_an_error_of_one_partition_answers_at_once_for_all(world: World) -> None:
    fill(world, batch(b"a"))
    world.create_topic("other")
    answer = world.connect().ask(
        fetch(("other", 0, 7), ("orders", 0, 0), max_wait_ms=5000, min_bytes=100_000), 11
    )
    assert fetched(answer)["other", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values(answer) == [b"a"]


@pytest.mark.parametrize("version", [12, 17])
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_c8_an_unknown_topic_or_partition_does_not_keep_the_others_from_being_waited_for(
    world: World, version: int, session: tuple[int, int]
) -> None:
    """A client of two topics of which one is deleted would fetch in a loop."""
    by_id = version >= 13
    orders = world.replica("orders").topic_id if by_id else "orders"
    missing = uuid4() if by_id else "missing"
    code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client = world.connect()
    wanted = [(missing, 0, 0), (orders, 0, 0), (orders, 99, 0)]
    client.send(fetch(*wanted, max_wait_ms=1500, session=session), version)
    world.advance(1499)
    assert client.answers == []
    world.advance(1)
    (answer,) = client.answers
    assert {at: found.error_code for at, found in fetched(answer).items()} == {
        (missing, 0): code,
        (orders, 0): ErrorCode.NONE,
        (orders, 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    # Alone it is told at once: there is nothing to wait for.
    answer = client.ask(fetch((missing, 0, 0), max_wait_ms=1500), version)
    assert fetched(answer)[missing, 0].error_code == code


def test_leader_epochs_are_compared(world: World) -> None:
    world.restart()
    epoch = world.replica("orders").leader_epoch
    assert epoch >= 1
    client = world.connect()

    def code(asked: int) -> int:
        answer = client.ask(fetch(("orders", 0, 0), leader_epoch=asked), 11)
        return int(fetched(answer)["orders", 0].error_code)

    assert code(-1) == 0
    assert code(epoch) == 0
    assert code(epoch - 1) == ErrorCode.FENCED_LEADER_EPOCH
    assert code(epoch + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_diverging_epoch_is_told_at_once(world: World) -> None:
    fill(world, batch(b"a", b"b"))
    first_epoch = world.replica("orders").leader_epoch
    world.restart()
    fill(world, batch(b"c"))
    client = world.connect()
    answer = client.ask(
        fetch(("orders", 0, 3), max_wait_ms=5000, last_fetched_epoch=first_epoch), 12
    )
    diverging = fetched(answer)["orders", 0].diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (first_epoch, 2)
    answer = client.ask(fetch(("orders", 0, 2), last_fetched_epoch=first_epoch), 12)
    assert fetched(answer)["orders", 0].diverging_epoch is None
    assert values(answer) == [b"c"]


def test_a_follower_that_is_no_replica_is_refused(world: World) -> None:
    answer = world.connect().ask(fetch(("orders", 0, 0), replica_id=2), 11)
    assert fetched(answer)["orders", 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_is_not_held_to_quotas_of_clients(cluster: Cluster) -> None:
    alter(cluster.world, entity(user=None), consumer_byte_rate=500.0)
    for _ in range(20):
        cluster.produce(b"x" * 1000)
    answer = cluster.world.connect().ask(fetch(("orders", 0, 0), replica_id=2), 11)
    assert (len(values(answer)), answer.throttle_time_ms) == (20, 0)


def test_a_fetch_of_nothing_is_answered_at_once(world: World) -> None:
    answer = world.connect().ask(fetch(max_wait_ms=5000), 11)
    assert answer.responses == []


def test_deleting_the_topic_answers_who_waits_for_it(world: World) -> None:
    by_name, by_id = world.connect(), world.connect()
    topic_id = world.replica("orders").topic_id
    by_name.send(fetch(("orders", 0, 0), max_wait_ms=50_000), 11)
    by_id.send(fetch((topic_id, 0, 0), max_wait_ms=50_000), 13)
    world.turn()
    world.delete_topic("orders")
    (partition,) = fetched(by_name.answers[0]).values()
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    (partition,) = fetched(by_id.answers[0]).values()
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert len(world.node.purgatory) == 0


def test_a_topic_made_again_has_another_id_and_begins_at_zero(world: World) -> None:
    fill(world, batch(b"old"))
    old_id = world.replica("orders").topic_id
    world.delete_topic("orders")
    world.create_topic("orders")
    new_id = world.replica("orders").topic_id
    assert new_id != old_id
    fill(world, batch(b"new"))
    client = world.connect()
    assert values(client.ask(fetch(("orders", 0, 0)), 11)) == [b"new"]
    assert values(client.ask(fetch((new_id, 0, 0)), 13)) == [b"new"]
    answer = client.ask(fetch((old_id, 0, 0)), 13)
    assert fetched(answer)[old_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_many_who_wait_are_woken_by_one_produce(world: World) -> None:
    clients = [world.connect() for _ in range(50)]
    for client in clients:
        client.send(fetch(("orders", 0, 0), max_wait_ms=5000), 11)
    world.turn()
    assert len(world.node.purgatory) == 50
    fill(world, batch(b"a"))
    assert all(values(client.answers[0]) == [b"a"] for client in clients)
    assert len(world.replica("orders").waiters) == 0


def test_the_same_partition_twice_is_answered_twice(world: World) -> None:
    fill(world, batch(b"a", b"b"))
    answer = world.connect().ask(fetch(("orders", 0, 0), ("orders", 0, 1)), 11)
    assert [len(topic.partitions) for topic in answer.responses] == [2]


@pytest.mark.parametrize(("committed", "is_answered"), [(2, True), (1, False)])
def test_r29_a_fetch_at_the_end_of_a_segment_does_not_wait_in_vain(
    cluster: Cluster, committed: int, is_answered: bool
) -> None:
    """An answer is from one segment: more bytes than that will not come, however long it waits.

    But a segment that was rolled behind the high watermark is no reason to hurry (KAFKA-9807).
    """
    cluster.produce(b"a")
    cluster.replica().log.roller.roll(cluster.world.now.wall_ms)
    cluster.produce(b"b")
    for follower in (2, 3):
        cluster.fetch(follower, committed)
    client = cluster.world.connect()
    client.send(fetch(("orders", 0, 0), max_wait_ms=500, min_bytes=100_000), 11)
    cluster.world.turn()
    assert len(client.answers) == int(is_answered)
    cluster.world.advance(500)
    assert values(client.answers[0]) == [b"a"]


def test_r30_the_offsets_of_an_answer_are_of_one_moment(cluster: Cluster) -> None:
    """KAFKA-7104: the high watermark is not behind the log start, nor the stable offset before."""
    cluster.produce(b"a", b"b")
    for broker_id in (2, 3):
        cluster.fetch(broker_id, 2)
    client, follower = cluster.world.connect(), cluster.client_of(2)
    follower.send(cluster.fetch_request(2, 2, max_wait_ms=500), 17)
    client.send(fetch(("orders", 0, 2), max_wait_ms=500), 11)
    cluster.world.turn()
    cluster.replica().log.retention.delete_records_to(Offset(2))
    cluster.produce(b"c")
    cluster.fetch(3, 3)
    cluster.fetch(2, 3)
    for answer in (client.answers[-1], follower.answers[-2]):
        for found in fetched(answer).values():
            assert found.log_start_offset == 2
            assert found.last_stable_offset == found.high_watermark
            assert found.log_start_offset <= found.high_watermark <= 3
