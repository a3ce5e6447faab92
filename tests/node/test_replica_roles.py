"""Which role a partition has on this node, and what taking it does (specification 1.2)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.cluster.image import PartitionImage
from strandline.cluster.store import SetData
from strandline.cluster.znodes import PartitionStateNode
from strandline.cluster.znodes.topics import state_path
from strandline.errors import ErrorCode, StorageError
from strandline.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.types import BrokerId, LeaderEpoch, Offset, TopicPartition
from tests.node.followers import ALL, B, C, Cluster, from_leader
from tests.node.messages import batch, fetch, fetched, list_offsets, produce, produced
from tests.node.world import DATA, World, failing

ORDERS = TopicPartition("orders", 0)
HIGH_WATERMARKS = f"{DATA}/replication-offset-checkpoint"


def code_of_produce(cluster: Cluster) -> int:
    return int(cluster.produce(b"v").error_code)


# -- Becoming leader -------------------------------------------------------------------------


def test_r06_an_epoch_begins_when_its_leader_does(cluster: Cluster) -> None:
    """KAFKA-7415: not with its first record, so that who asks for it meanwhile is not misled."""
    cluster.produce(b"m0")
    cluster.set_state()
    cluster.set_state()
    entries = [tuple(entry) for entry in cluster.replica().log.leader_epochs.entries]
    assert entries == [(0, 0), (2, 1)]  # epoch 1 wrote nothing, and 2 began at the same offset
    leader = cluster.replica().leader
    assert leader is not None
    assert leader.start_offset == 1

    def ended(epoch: int) -> tuple[int, int]:
        partition = OffsetForLeaderPartition(
            partition=0, current_leader_epoch=2, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=2, topics=[OffsetForLeaderTopic(topic="orders", partitions=[partition])]
        )
        answer = cluster.world.connect().ask(request, 4).topics[0].partitions[0]
        assert answer.error_code == 0
        return answer.leader_epoch, answer.end_offset

    assert ended(0) == (0, 1)
    assert ended(1) == (0, 1)
    assert ended(2) == (2, 1)
    assert ended(3) == (-1, -1)


def test_r06_an_epoch_below_the_first_known_ends_where_that_begins(cluster: Cluster) -> None:
    cluster.set_state()
    cluster.produce(b"m0", b"m1")
    for follower in (B, C):
        cluster.fetch(follower, 2)
    cluster.replica().log.retention.delete_records_to(Offset(1))
    assert [tuple(e) for e in cluster.replica().log.leader_epochs.entries] == [(1, 1)]
    diverging = cluster.fetch(B, 2, last_fetched_epoch=0).diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (0, 1)


def test_a_new_leader_cuts_nothing_and_knows_no_follower(cluster: Cluster) -> None:
    cluster.set_state(leader=2)
    replica, now = cluster.replica(), cluster.world.now
    for value in (b"m0", b"m1"):
        replica.check_following().append(from_leader(replica.log.log_end_offset, value), now)
    replica.check_following().followed_to(1, 0, now)
    cluster.set_state(leader=1)
    assert cluster.offsets() == (2, 1)
    assert cluster.remote() == {2: -1, 3: -1}
    # Until all in-sync replicas have fetched nothing can be said of what is committed.
    cluster.fetch(B, 2)
    assert cluster.offsets() == (2, 1)
    cluster.fetch(C, 2)
    assert cluster.offsets() == (2, 2)


def test_a_leader_elected_again_keeps_what_it_knows(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    for follower in (B, C):
        cluster.fetch(follower, 1)
    cluster.set_state()
    assert cluster.remote() == {2: 1, 3: 1}
    assert cluster.offsets() == (1, 1)


def test_a_state_from_before_is_ignored(cluster: Cluster) -> None:
    """R-09, KIP-570: an older leader epoch says nothing any more, whichever leader it names."""
    former = replace(cluster.state(), leader=B)
    cluster.set_state(isr=(1, 2))
    world = cluster.world
    topic = world.node.metadata.image.topics["orders"]
    config = cluster.replica().log.config
    for state in (former, cluster.state()):
        assert (
            world.node.replicas.apply(ORDERS, topic, state, config, world.now, is_new=True) is None
        )
    assert cluster.replica().leader_epoch == 1
    leader = cluster.replica().leader
    assert leader is not None
    assert leader.in_sync.members == {1, 2}


def test_a_new_in_sync_set_is_no_new_role(cluster: Cluster) -> None:
    leader = cluster.replica().leader
    cluster.set_state(isr=(1, 3), new_epoch=False)
    assert cluster.replica().leader is leader
    assert leader is not None
    assert leader.in_sync.members == {1, 3}


# -- Whose leadership it is ------------------------------------------------------------------


def test_leadership_of_a_former_life_is_not_taken_up(world: World) -> None:
    """A leader restarted at once: what it had may be lost, so it must be elected anew (KIP-966).

    An unnoticed power cut, and then other records at the same epoch and offset, would be
    a divergence that leader epochs cannot see (I-21).
    """
    epoch = world.replica("orders").leader_epoch
    world.restart()
    assert world.replica("orders").leader_epoch == epoch + 1


def test_no_role_while_the_controller_has_not_looked(cluster: Cluster) -> None:
    """The state names this broker, but under a registration that it has no longer."""
    former = cluster.world.node.metadata.image.topics["orders"].states[0].value
    stale = PartitionStateNode(
        leader=BrokerId(1),
        leader_epoch=LeaderEpoch(former.leader_epoch + 1),
        in_sync_replicas=former.in_sync_replicas,
        controller_epoch=former.controller_epoch,
        in_sync_epochs={**former.in_sync_epochs, BrokerId(1): cluster.epoch_of(1) - 1},
    )
    cluster.write([SetData(state_path(ORDERS), stale.encode())])
    assert not cluster.replica().is_leading
    assert cluster.replica().leader_id == -1
    entries = cluster.replica().log.leader_epochs.entries
    assert [entry.epoch for entry in entries] == [0]
    # Nor does it answer as a follower: what it lacks would be taken for out of range (I-25).
    consumer = cluster.world.connect()
    consumer.send(fetch(("orders", 0, 100)), 11)
    # The controller, which this node is, sees a broker that has bounced and elects anew.
    cluster.world.turn()
    assert cluster.state().leader_epoch == 2
    (partition,) = fetched(consumer.answers[-1]).values()
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- Following -------------------------------------------------------------------------------


def test_a_follower_refuses_what_only_a_leader_may_do(cluster: Cluster) -> None:
    cluster.set_state(leader=2)
    client = cluster.world.connect()
    assert code_of_produce(cluster) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = client.ask(list_offsets(-1), 7).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    request = OffsetForLeaderEpochRequest(
        topics=[
            OffsetForLeaderTopic(
                topic="orders", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)]
            )
        ]
    )
    answer = client.ask(request, 4).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_partition_on_other_brokers_only(cluster: Cluster) -> None:
    """Clients whose metadata is old are sent on, not told that there is no such partition."""
    cluster.create_topic("elsewhere", replicas=(2, 3))
    answer = cluster.produce(b"v", topic="elsewhere")
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    topic_id = cluster.world.node.metadata.image.topics["elsewhere"].topic_id
    client = cluster.world.connect()
    for wanted, version in ((("elsewhere", 0, 0), 11), ((topic_id, 0, 0), 13)):
        (partition,) = fetched(client.ask(fetch(wanted), version)).values()
        assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (partition,) = fetched(client.ask(fetch((topic_id, 7, 0)), 13)).values()
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_at_the_wrong_broker_is_told_the_right_one(cluster: Cluster) -> None:
    """KIP-951: so that it need not ask for metadata first."""
    cluster.set_state(leader=2)
    topic_id = cluster.replica().topic_id
    client = cluster.world.connect()
    for message, version in (
        (produce(batch(b"v"), acks=-1), 10),
        (produce(batch(b"v"), topic_id=topic_id), 13),
        (fetch((topic_id, 0, 0), leader_epoch=0), 16),
    ):
        answer = client.ask(message, version)
        found = produced(answer) if version < 16 else fetched(answer)[topic_id, 0]
        assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (2, 1)
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, endpoint.host, endpoint.port) == (2, "localhost", 9094)
    assert produced(client.ask(produce(batch(b"v"), acks=-1), 9)).current_leader is None
    cluster.leave(B)
    cluster.set_state(leader=-1)
    answer = client.ask(produce(batch(b"v"), acks=-1), 10)
    assert produced(answer).current_leader.leader_id == -1
    assert answer.node_endpoints == []


def test_a_partition_without_a_leader_refuses_produce(cluster: Cluster) -> None:
    cluster.set_state(leader=-1)
    assert cluster.replica().leader_id == -1
    assert code_of_produce(cluster) == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- Coming and going ------------------------------------------------------------------------


def test_r09_a_partition_that_is_moved_away_is_deleted(cluster: Cluster) -> None:
    cluster.create_topic("moved", replicas=(1,))
    cluster.produce(b"old", topic="moved")
    world = cluster.world
    former = cluster.replica("moved")
    cluster.reassign((2, 3), "moved")
    world.turn()
    assert former.is_retired
    assert not former.is_leading
    assert TopicPartition("moved", 0) not in world.directory.logs
    assert not world.files.is_directory(f"{DATA}/moved-0")
    assert cluster.produce(b"v", topic="moved").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    # Back again it starts from nothing.
    cluster.reassign((2, 3, 1), "moved")
    cluster.set_state("moved", leader=2, isr=(2,))
    assert cluster.offsets("moved") == (0, 0)
    assert cluster.replica("moved") is not former
    world.advance(70_000)
    assert not [name for name in world.files.list_directory(DATA) if name.endswith("-delete")]


def test_waiting_requests_learn_that_a_partition_was_moved_away(cluster: Cluster) -> None:
    producer, consumer = cluster.world.connect(), cluster.world.connect()
    producer.send(produce(batch(b"v"), acks=-1), 9)
    consumer.send(fetch(("orders", 0, 0), max_wait_ms=5_000), 11)
    cluster.world.turn()
    cluster.reassign((2, 3))
    cluster.world.turn()
    assert produced(producer.answers[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (partition,) = fetched(consumer.answers[0]).values()
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_r03_the_high_watermark_is_kept_while_the_leader_is_away(cluster: Cluster) -> None:
    """KAFKA-1647: a follower whose leader is dead has a high watermark all the same."""
    cluster.produce(b"m0")
    for follower in (B, C):
        cluster.fetch(follower, 1)
    cluster.set_state(leader=2)
    cluster.leave(B)
    cluster.world.advance(10_000)
    assert b"orders 0 1\n" in cluster.world.files.read_bytes(HIGH_WATERMARKS)


def test_x14_r03_nothing_is_said_of_high_watermarks_before_any_role(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-14: the checkpoint of the former life stays as it is until the metadata gave a role."""
    world.connect().ask(produce(batch(b"v"), acks=-1), 9)
    world.advance(6_000)
    before = world.files.read_bytes(HIGH_WATERMARKS)
    assert b"orders 0 1\n" in before
    with monkeypatch.context() as patch:
        patch.setattr(type(world.node.replicas), "apply", lambda *args, **more: None)
        world.kill_and_restart()
        assert not world.node.replicas.has_roles
        monkeypatch.setattr(type(world.directory.logs[ORDERS]), "high_watermark", Offset(0))
        world.advance(30_000)
        assert world.files.read_bytes(HIGH_WATERMARKS) == before


def test_a_disk_that_fails_at_the_door_leaves_the_partition_without_a_role(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.replica().log.offsets.high_watermark_fell = True  # what a full disk did not take before
    cluster.world.files.on_call = failing({"rename"}, "replication-offset-checkpoint")
    cluster.set_state()
    cluster.world.files.on_call = None
    assert "cannot be used" in caplog.text
    assert code_of_produce(cluster) == ErrorCode.KAFKA_STORAGE_ERROR
    (partition,) = fetched(cluster.world.connect().ask(fetch(("orders", 0, 0)), 11)).values()
    assert partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster.world.directory.offline_reason
    cluster.set_state()
    assert code_of_produce(cluster) == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_of_another_topic_of_that_name_is_left_alone(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.produce(b"precious")
    world = cluster.world
    log = cluster.replica().log
    world.node.replicas.remove(world.node.metadata.image.topics["orders"], world.now)
    assert log.closed
    cluster.create_topic("other", replicas=(1,))
    other = cluster.replica("other").log
    other.location.topic_id = cluster.world.node.metadata.image.topics["orders"].topic_id
    logs = world.node.replicas.host.logs
    wanted = world.node.metadata.image.topics["other"].topic_id
    with pytest.raises(StorageError, match="belongs to another topic"):
        logs.open(other.topic_partition, wanted, other.config, world.now, is_new=False)


def test_the_assignment_and_nothing_else_yet(cluster: Cluster) -> None:
    """Before a leader is elected there is neither log nor role; nor is that an error."""
    topic = cluster.world.node.metadata.image.topics["orders"]
    state = PartitionImage(tuple(BrokerId(member) for member in ALL))
    config = cluster.replica().log.config
    at = TopicPartition("unborn", 0)
    replicas = cluster.world.node.replicas
    assert replicas.apply(at, topic, state, config, cluster.world.now, is_new=True) is None
    assert at not in cluster.world.directory.logs
