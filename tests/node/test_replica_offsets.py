"""Ends and starts of replicated partitions: KIP-207, DeleteRecords, throttled followers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.node.followers import FETCH_VERSION, A, B, C, Cluster
from tests.node.messages import batch, fetched, list_offsets, produce
from tests.node.world import WALL_MS, Client, World

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@pytest.fixture
def lagging(cluster: Cluster) -> Cluster:
    """A new leader that does not know yet that two of its three records are committed."""
    for number in range(3):
        message = produce(batch(b"m", timestamp=WALL_MS + number), acks=1)
        cluster.world.connect().ask(message, 9)
    for follower in (B, C):
        cluster.fetch(follower, 1)
    cluster.set_state()
    assert cluster.offsets() == (3, 1)
    return cluster


def look_up(
    cluster: Cluster, timestamp: int, *, version: int = 7, replica_id: int = -1
) -> tuple[int, int]:
    request = list_offsets(timestamp)
    request.replica_id = replica_id
    (topic,) = cluster.world.connect().ask(request, version).topics
    (found,) = topic.partitions
    return int(found.error_code), int(found.offset)


def test_a_new_leader_does_not_tell_an_end_that_may_be_too_low(lagging: Cluster) -> None:
    not_available = (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert look_up(lagging, LATEST) == not_available
    assert look_up(lagging, MAX_TIMESTAMP) == not_available
    assert look_up(lagging, WALL_MS + 1) == not_available
    assert look_up(lagging, WALL_MS + 99) == not_available
    # What is below the high watermark is certain.
    assert look_up(lagging, EARLIEST) == (0, 0)
    assert look_up(lagging, WALL_MS) == (0, 0)
    for follower in (B, C):
        lagging.fetch(follower, 3)
    assert look_up(lagging, LATEST) == (0, 3)
    assert look_up(lagging, WALL_MS + 1) == (0, 1)
    assert look_up(lagging, WALL_MS + 99) == (0, -1)


def test_old_clients_are_told_in_their_own_words(lagging: Cluster) -> None:
    assert look_up(lagging, LATEST, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert look_up(lagging, LATEST, version=5)[0] == ErrorCode.OFFSET_NOT_AVAILABLE


def test_followers_see_the_whole_log(lagging: Cluster) -> None:
    assert look_up(lagging, LATEST, replica_id=2) == (0, 3)
    assert look_up(lagging, EARLIEST, replica_id=2) == (0, 0)
    assert look_up(lagging, WALL_MS + 2, replica_id=2) == (0, 2)


def test_an_end_that_is_not_committed_is_no_end(cluster: Cluster) -> None:
    """With a leader that knows what is committed, the high watermark is the answer."""
    cluster.produce(b"m0", b"m1")
    assert look_up(cluster, LATEST) == (0, 0)
    assert look_up(cluster, WALL_MS) == (0, -1)


def test_a_tool_may_ask_any_replica(cluster: Cluster) -> None:
    cluster.set_state(leader=2)
    assert look_up(cluster, EARLIEST, replica_id=-2) == (0, 0)
    assert look_up(cluster, EARLIEST)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert look_up(cluster, EARLIEST, replica_id=3)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- DeleteRecords ---------------------------------------------------------------------------


def delete(cluster: Cluster, offset: int, timeout_ms: int = 1000) -> Client:
    """A client that asked to delete; the answer may have to wait."""
    client = cluster.world.connect()
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name="orders", partitions=[partition])], timeout_ms=timeout_ms
    )
    client.send(request, 2)
    cluster.world.turn()
    return client


def outcome(client: Client) -> tuple[int, int]:
    (answer,) = client.answers
    (partition,) = answer.topics[0].partitions
    return int(partition.error_code), int(partition.low_watermark)


@pytest.fixture
def full(cluster: Cluster) -> Cluster:
    """Three committed records, and both followers have said that their logs start at 0."""
    cluster.produce(b"m0", b"m1", b"m2")
    for follower in (B, C):
        cluster.fetch(follower, 3)
    return cluster


def test_records_are_deleted_when_all_replicas_have_deleted_them(full: Cluster) -> None:
    client = delete(full, 2)
    assert full.replica().log.log_start_offset == 2
    assert client.answers == []
    # The followers learn of it by the answer to their next fetch, and tell by the one after it.
    assert full.fetch(B, 3).log_start_offset == 2
    full.fetch(B, 3, log_start_offset=2)
    assert client.answers == []
    full.fetch(C, 3, log_start_offset=2)
    assert outcome(client) == (0, 2)


def test_a_parked_follower_is_told_at_its_next_answer_only(full: Cluster) -> None:
    follower = full.client_of(B)
    follower.send(full.fetch_request(B, 3, max_wait_ms=500), FETCH_VERSION)
    full.world.turn()
    delete(full, 1)
    full.world.advance(500)
    (partition,) = fetched(follower.answers[-1]).values()
    assert partition.log_start_offset == 1


def test_a_dead_replica_is_not_waited_for(full: Cluster) -> None:
    client = delete(full, 2)
    full.fetch(B, 3, log_start_offset=2)
    assert client.answers == []
    full.leave(C)
    full.world.turn()
    assert outcome(client) == (0, 2)


def test_a_dead_replica_that_may_be_elected_is_waited_for(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Who left below the minimum is eligible to lead (KIP-966), and would lead from its own start:
    records that were said to be deleted would be back (I-27)."""
    cluster = make_cluster()
    cluster.create_topic(min_insync_replicas="3")
    cluster.produce(b"m0", b"m1", b"m2")
    for follower in (B, C):
        cluster.fetch(follower, 3)
    client = delete(cluster, 2, timeout_ms=100)
    cluster.fetch(B, 3, log_start_offset=2)
    cluster.leave(C)
    cluster.world.turn()
    assert cluster.state().elr == (C,)
    assert client.answers == []
    cluster.world.advance(100)
    assert outcome(client) == (ErrorCode.REQUEST_TIMED_OUT, 0)


def test_i27_a_member_that_left_is_waited_for_until_it_is_known_whether_it_is_eligible(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The answer to the leader's proposal comes before the metadata that tell who may be elected,
    and a session that has ended tells nothing about that."""
    cluster = make_cluster()
    cluster.create_topic(replicas=(1, 2), min_insync_replicas="2")
    cluster.produce(b"m0", b"m1", b"m2")
    cluster.fetch(B, 3)
    # Another broker is the controller, and what it has written is not known here yet.
    cluster.world.node.controller_loop.act = lambda now: None  # type: ignore[method-assign]
    client = delete(cluster, 2, timeout_ms=100)
    cluster.leave(B)
    cluster.world.turn()
    state = cluster.state()
    assert state.in_sync_replicas == (1, B)
    cluster.replica().in_sync_committed((A,), state.partition_epoch + 1, cluster.world.now)
    cluster.world.turn()
    assert client.answers == []
    cluster.set_state(isr=(1,), elr=(B,), new_epoch=False)
    cluster.world.advance(100)
    assert outcome(client) == (ErrorCode.REQUEST_TIMED_OUT, 0)


def test_i40_delete_records_ends_when_no_absent_replica_may_be_elected(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The leader knew the in-sync set from the answer to its proposal, so the state that ended the
    eligibility of the dead replica was no news, and completed no request."""
    cluster = make_cluster()
    cluster.create_topic(min_insync_replicas="3")
    cluster.produce(b"m0", b"m1", b"m2")
    for follower in (B, C):
        cluster.fetch(follower, 3)
    client = delete(cluster, 2, timeout_ms=100)
    cluster.fetch(B, 3, log_start_offset=2)
    cluster.leave(C)
    cluster.world.turn()
    state = cluster.state()
    assert (state.in_sync_replicas, state.elr) == ((1, B), (C,))
    cluster.replica().in_sync_committed((A, B), state.partition_epoch + 1, cluster.world.now)
    cluster.world.turn()
    assert client.answers == []
    cluster.set_state(isr=(1, B), new_epoch=False)
    cluster.world.turn()
    assert cluster.state().elr == ()
    assert outcome(client) == (0, 2)


def test_c18_a_deletion_that_waits_for_no_replica_is_done_without_a_time_out(
    world: World,
) -> None:
    """The deadline of a time-out of 0 came before the end of the turn in which all was done."""
    client = world.connect()
    for _ in range(3):
        client.ask(produce(batch(b"m")), 9)
    partition = DeleteRecordsPartition(partition_index=0, offset=2)
    topics = [DeleteRecordsTopic(name="orders", partitions=[partition])]
    answer = client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=0), 2)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.low_watermark) == (ErrorCode.NONE, 2)


def test_c18_a_time_out_tells_up_to_where_all_replicas_have_deleted(full: Cluster) -> None:
    assert outcome(delete(full, 2, timeout_ms=0)) == (ErrorCode.REQUEST_TIMED_OUT, 0)
    client = delete(full, 3, timeout_ms=100)
    for follower in (B, C):
        full.fetch(follower, 3, log_start_offset=2)
    full.world.advance(100)
    assert outcome(client) == (ErrorCode.REQUEST_TIMED_OUT, 2)


def test_a_deletion_that_takes_too_long(full: Cluster) -> None:
    client = delete(full, 2, timeout_ms=100)
    full.world.advance(99)
    assert client.answers == []
    full.world.advance(1)
    assert outcome(client) == (ErrorCode.REQUEST_TIMED_OUT, 0)


@pytest.mark.parametrize("leader", [2, 3])
def test_leadership_is_lost_during_a_deletion(full: Cluster, leader: int) -> None:
    client = delete(full, 2)
    full.set_state(leader=leader)
    full.world.turn()
    assert outcome(client) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_the_topic_is_deleted_during_a_deletion(full: Cluster) -> None:
    client = delete(full, 2)
    full.world.delete_topic("orders")
    assert outcome(client) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)


def test_records_that_are_not_committed_cannot_be_deleted(full: Cluster) -> None:
    full.produce(b"m3")
    assert outcome(delete(full, 4)) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(full, -1).answers == []
    assert full.replica().log.log_start_offset == 3


# -- Throttled followers ---------------------------------------------------------------------


@pytest.fixture
def slow(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Broker 3 is catching up, at most 1000 bytes per second; broker 2 is in sync."""
    cluster = make_cluster()
    cluster.create_topic(leader_replication_throttled_replicas="0:1,0:2")
    settings = cluster.world.node.settings
    settings.broker = replace(settings.broker, leader_replication_throttled_rate=1000)
    cluster.set_state(isr=(1, 2))
    for _ in range(3):
        cluster.produce(b"x" * 2000)
    return cluster


def length(cluster: Cluster, follower: int, offset: int) -> int:
    answer = cluster.fetch(follower, offset)
    assert answer.error_code == 0
    return len(answer.records or b"")


def test_a_follower_that_catches_up_gets_a_limited_rate(slow: Cluster) -> None:
    assert length(slow, C, 0) > 6000
    assert length(slow, C, 0) == 0
    slow.world.advance(4_000)
    assert length(slow, C, 0) == 0
    slow.world.advance(8_000)
    assert length(slow, C, 0) > 6000


def test_a_follower_in_sync_is_never_held_back(slow: Cluster) -> None:
    for _ in range(3):
        assert length(slow, B, 0) > 6000
    assert length(slow, C, 0) == 0, "what it gets counts all the same"


def test_a_follower_that_is_held_back_waits_although_there_are_later_segments(
    slow: Cluster,
) -> None:
    """It asks again at once after each answer: one in vain after another would be a busy loop."""
    slow.replica().log.roller.roll(slow.world.now.wall_ms)
    slow.produce(b"y")
    assert length(slow, C, 0) > 6000
    client = slow.client_of(C)
    client.answers.clear()
    client.send(slow.fetch_request(C, 0, max_wait_ms=500), FETCH_VERSION)
    slow.world.advance(499)
    assert client.answers == []
    slow.world.advance(1)
    (partition,) = fetched(client.answers[0]).values()
    assert not partition.records


def test_replicas_that_are_not_listed_are_not_throttled(slow: Cluster) -> None:
    slow.create_topic("free", leader_replication_throttled_replicas="0:2")
    slow.set_state("free", isr=(1, 2))
    slow.produce(b"x" * 2000, topic="free")
    assert length(slow, C, 0) > 6000
    for _ in range(3):
        assert slow.fetch(C, 0, "free").records
