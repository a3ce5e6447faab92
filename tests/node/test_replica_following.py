"""A follower's log, and who reads from it (specification 1.5, KIP-392)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from strandline.errors import ErrorCode, StorageError
from strandline.node.ledger.keeping import Reason
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.storage.files import DiskFull
from strandline.storage.log_appender import UnexpectedOffset
from strandline.types import NO_OFFSET, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from tests.node.followers import B, C, Cluster, from_leader
from tests.node.messages import batch, fetch, fetched, produce, produced, values
from tests.node.world import DATA, WALL_MS

RACK_AWARE = "replica.selector.class=org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def following(cluster: Cluster) -> Cluster:
    """Broker 2 leads `orders` in epoch 1, broker 1 follows; both have three records."""
    cluster.set_state(leader=2)
    for number in range(3):
        cluster.replica().check_following().append(
            from_leader(number, b"m%d" % number), cluster.world.now
        )
    cluster.world.turn()
    return cluster


def followed(cluster: Cluster, high_watermark: int, log_start_offset: int = 0) -> tuple[int, int]:
    """Log start and high watermark, after the leader told its own."""
    cluster.replica().check_following().followed_to(
        high_watermark, log_start_offset, cluster.world.now
    )
    cluster.world.turn()
    log = cluster.replica().log
    log.check()
    return log.log_start_offset, log.high_watermark


# -- Offsets ---------------------------------------------------------------------------------


def test_the_high_watermark_is_clamped_and_may_go_down(following: Cluster) -> None:
    assert followed(following, 2) == (0, 2)
    assert followed(following, 9) == (0, 3)
    assert followed(following, 1) == (0, 1)
    assert followed(following, -1) == (0, 0)


def test_the_log_start_follows_but_not_beyond_the_high_watermark(following: Cluster) -> None:
    assert followed(following, 2, 1) == (1, 2)
    assert followed(following, 2, 3) == (2, 2)
    assert followed(following, 3, 1) == (2, 3)


def test_i40_a_raised_log_start_alone_wakes_its_readers(following: Cluster) -> None:
    """The high watermark stays where it is: nothing was written meanwhile."""
    assert followed(following, 1) == (0, 1)
    reader = following.world.connect()
    reader.send(fetch(("orders", 0, 0), max_wait_ms=60_000, min_bytes=5000), 11)
    following.world.turn()
    assert reader.answers == []
    assert followed(following, 1, 1) == (1, 1)
    (partition,) = fetched(reader.answers[-1]).values()
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_truncation_is_written_down_before_new_records_come(following: Cluster) -> None:
    """A recovery point above the cut would keep what was cut from being checked (I-07)."""
    world = following.world
    log = following.replica().log
    plan = log.flusher.flush_plan()
    assert plan is not None
    assert plan.carry_out(world.files)
    assert log.flusher.mark_flushed(plan, world.now.wall_ms)
    world.directory.write_recovery_points()
    path = f"{DATA}/recovery-point-offset-checkpoint"
    assert b"orders 0 3\n" in world.files.read_bytes(path)
    following.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    assert not log.offsets.recovery_point_fell
    assert b"orders 0 1\n" in world.files.read_bytes(path)
    assert following.offsets() == (1, 0)
    following.replica().check_following().truncate_fully_to(Offset(7), world.now)
    assert following.offsets() == (7, 7)


def test_i22_a_lowered_high_watermark_is_written_down_before_new_records_come(
    following: Cluster,
) -> None:
    """After an unclean election committed records went. The old mark in the checkpoint was then
    taken for that of the records which came in their place, as far as there were any."""
    world, path = following.world, f"{DATA}/replication-offset-checkpoint"
    assert followed(following, 3) == (0, 3)
    world.directory.write_high_watermarks()
    assert b"orders 0 3\n" in world.files.read_bytes(path)
    following.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    assert b"orders 0 1\n" in world.files.read_bytes(path)
    assert not following.replica().log.offsets.needs_checkpoint


def test_what_a_full_disk_did_not_write_down_is_written_before_new_records_come(
    following: Cluster,
) -> None:
    world, path = following.world, f"{DATA}/replication-offset-checkpoint"
    assert followed(following, 3) == (0, 3)
    world.directory.write_high_watermarks()

    def is_full(operation: str, path: str) -> None:
        if "-offset-checkpoint" in path:
            raise DiskFull(f"Cannot {operation} {path}: it is a test.")

    world.files.on_call = is_full
    with pytest.raises(DiskFull):
        following.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    with pytest.raises(DiskFull):
        following.replica().check_following().append(from_leader(1, b"new"), world.now)
    assert following.offsets() == (1, 1)
    world.files.on_call = None
    following.replica().check_following().append(from_leader(1, b"new"), world.now)
    assert b"orders 0 1\n" in world.files.read_bytes(path)
    assert following.offsets() == (2, 1)


def test_no_replica_leads_before_a_lowered_high_watermark_is_checkpointed(
    following: Cluster,
) -> None:
    world, at = following.world, following.replica().topic_partition

    def is_full(operation: str, path: str) -> None:
        if "-offset-checkpoint" in path:
            raise DiskFull(f"Cannot {operation} {path}: it is a test.")

    assert followed(following, 3) == (0, 3)
    world.files.on_call = is_full
    with pytest.raises(DiskFull):
        following.replica().check_following().truncate_to(Offset(1), world.now, Reason.DIVERGED)
    following.set_state(leader=1)
    world.files.on_call = None
    assert world.node.replicas.why_unavailable(at) is not None


def test_r26_a_follower_takes_any_sequence_and_leads_on_with_it(following: Cluster) -> None:
    """KAFKA-6003: it mirrors its leader, which had judged the batch; later ones must fit."""
    replica, world = following.replica(), following.world
    replica.check_following().append(
        from_leader(3, b"a", producer_id=7, epoch=0, sequence=40), world.now
    )
    following.set_state(leader=1)

    def code(sequence: int) -> int:
        message = produce(batch(b"b", producer_id=7, epoch=0, sequence=sequence), acks=1)
        return int(produced(world.connect().ask(message, 9)).error_code)

    assert code(42) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code(41) == 0
    assert (
        produced(
            world.connect().ask(
                produce(batch(b"a", producer_id=7, epoch=0, sequence=40), acks=1), 9
            )
        ).base_offset
        == 3
    ), "a repetition is known for what it is"


def test_records_that_do_not_continue_the_log_change_nothing(following: Cluster) -> None:
    with pytest.raises(UnexpectedOffset):
        following.replica().check_following().append(from_leader(1, b"x"), following.world.now)
    assert following.offsets() == (3, 0)


def test_i01_a_log_that_cannot_begin_inside_a_batch_is_as_it_was(cluster: Cluster) -> None:
    """The leader's log starts at 2, inside a batch; this one is empty there, and the disk is full.

    Emptied for a batch that could not be written, the log began at 2 and ended at 0."""
    cluster.set_state(leader=2)
    replica, world = cluster.replica(), cluster.world
    replica.check_following().truncate_fully_to(Offset(2), world.now)
    inside = from_leader(0, b"m0", b"m1", b"m2", b"m3")

    def is_full(operation: str, path: str) -> None:
        if operation == "append" and path.endswith(".log"):
            raise DiskFull(f"Cannot {operation} {path}: it is a test.")

    world.files.on_call = is_full
    with pytest.raises(DiskFull):
        replica.check_following().start_inside_batch(inside, Offset(0), world.now)
    world.files.on_call = None
    world.turn()
    replica.log.check()
    assert (replica.log.log_start_offset, replica.log.log_end_offset) == (2, 2)
    replica.check_following().start_inside_batch(inside, Offset(0), world.now)
    assert followed(cluster, 4, 2) == (2, 4)
    assert replica.log.log_end_offset == 4


def test_a_failing_disk_takes_no_more_records(
    following: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    following.replica().fail(StorageError("The disk is gone."))
    assert following.world.directory.offline_reason == "The disk is gone."
    assert caplog.text.count("is offline") == 1
    with pytest.raises(StorageError):
        following.replica().check_following().append(from_leader(3, b"x"), following.world.now)
    following.replica().fail(StorageError("And again."))
    assert caplog.text.count("is offline") == 1


def test_r20_retention_keeps_what_is_not_committed(make_cluster: Callable[..., Cluster]) -> None:
    """KAFKA-5634: whatever its age and size, above the high watermark nothing is deleted."""
    cluster = make_cluster("log.retention.check.interval.ms=1000", "log.initial.task.delay.ms=0")
    cluster.create_topic(retention_ms="1", retention_bytes="1")
    for number in range(4):
        cluster.produce(b"m%d" % number)
        cluster.replica().log.roller.roll(cluster.world.now.wall_ms)
    for follower in (B, C):
        cluster.fetch(follower, 2)
    cluster.world.advance(20_000)
    assert cluster.replica().log.log_start_offset == 2
    assert cluster.offsets() == (4, 2)
    for follower in (B, C):
        cluster.fetch(follower, 4, log_start_offset=2)
    cluster.world.advance(20_000)
    assert cluster.replica().log.log_start_offset == 4


# -- Consumers of a follower -----------------------------------------------------------------


def test_a_consumer_reads_from_a_follower_what_is_committed(following: Cluster) -> None:
    followed(following, 2)
    client = following.world.connect()
    answer = client.ask(fetch(("orders", 0, 0), leader_epoch=1), 11)
    assert values(answer) == [b"m0", b"m1"]
    (partition,) = fetched(answer).values()
    assert (partition.high_watermark, partition.preferred_read_replica) == (2, -1)
    # Between the high watermark and the end it has to wait, and is no error.
    answer = client.ask(fetch(("orders", 0, 3)), 11)
    assert (values(answer), fetched(answer)["orders", 0].error_code) == ([], 0)
    answer = client.ask(fetch(("orders", 0, 4)), 11)
    assert fetched(answer)["orders", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_consumer_of_a_follower_waits_for_its_high_watermark(following: Cluster) -> None:
    client = following.world.connect()
    client.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)
    following.world.turn()
    following.replica().check_following().append(from_leader(3, b"m3"), following.world.now)
    following.world.turn()
    assert client.answers == []
    followed(following, 1)
    assert values(client.answers[0]) == [b"m0"]


def test_a_truncation_answers_who_waits_beyond_it(following: Cluster) -> None:
    followed(following, 3)
    client = following.world.connect()
    client.send(fetch(("orders", 0, 3), max_wait_ms=500), 11)
    following.world.turn()
    following.replica().check_following().truncate_to(
        Offset(1), following.world.now, Reason.DIVERGED
    )
    following.world.turn()
    (partition,) = fetched(client.answers[0]).values()
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_tells_only_its_own_stable_offset(following: Cluster) -> None:
    """Readers of committed transactions stop at an open one, on any replica."""
    replica = following.replica()
    open_transaction = build_batch(
        [Record(NO_OFFSET, WALL_MS, None, b"t")],
        producer_id=ProducerId(9),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        base_offset=Offset(3),
        leader_epoch=LeaderEpoch(1),
        is_transactional=True,
    )
    replica.check_following().append(open_transaction, following.world.now)
    replica.check_following().append(from_leader(4, b"m4"), following.world.now)
    followed(following, 5)
    client = following.world.connect()
    plain = client.ask(fetch(("orders", 0, 0)), 11)
    assert values(plain)[-1] == b"m4"
    committed = client.ask(fetch(("orders", 0, 0), isolation_level=1), 11)
    assert values(committed) == [b"m0", b"m1", b"m2"]
    assert fetched(committed)["orders", 0].last_stable_offset == 3


@pytest.mark.parametrize(("version", "code"), [(10, 6), (11, 0)])
def test_only_clients_that_understand_it_are_served_by_a_follower(
    following: Cluster, version: int, code: int
) -> None:
    answer = following.world.connect().ask(fetch(("orders", 0, 0)), version)
    assert fetched(answer)["orders", 0].error_code == code


# -- The preferred replica -------------------------------------------------------------------


@pytest.fixture
def racks(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Broker 1 leads in rack `a`; 2 and 3 follow in `b` and `c`; two records are committed."""
    cluster = make_cluster(RACK_AWARE, "broker.rack=a", racks={2: "b", 3: "c"})
    cluster.create_topic()
    for number in range(3):
        cluster.produce(b"m%d" % number)
    cluster.fetch(B, 2)
    cluster.fetch(C, 3, log_start_offset=1)
    assert cluster.offsets() == (3, 2)
    return cluster


def preferred(cluster: Cluster, rack: str, offset: int = 1, version: int = 11) -> tuple[int, int]:
    """The preferred read replica (-1: none), and how many records came with that."""
    request = fetch(("orders", 0, offset), max_wait_ms=500)
    request.rack_id = rack
    answer = cluster.world.connect().ask(request, version)
    (partition,) = fetched(answer).values()
    assert partition.error_code == 0
    return partition.preferred_read_replica, len(values(answer))


def test_a_consumer_is_sent_to_a_replica_in_its_rack(racks: Cluster) -> None:
    assert preferred(racks, "b") == (2, 0)
    assert preferred(racks, "c") == (3, 0)
    assert preferred(racks, "a") == (-1, 1)
    assert preferred(racks, "elsewhere") == (-1, 1)
    assert preferred(racks, "") == (-1, 1)


def test_only_a_replica_that_has_the_offset_is_recommended(racks: Cluster) -> None:
    assert preferred(racks, "c", offset=0) == (-1, 2)
    assert preferred(racks, "b", offset=0) == (2, 0)


def test_only_a_replica_in_sync_is_recommended(racks: Cluster) -> None:
    racks.set_state(isr=(1, 3), new_epoch=False)
    assert preferred(racks, "b") == (-1, 1)


def test_a_dead_replica_is_not_recommended(racks: Cluster) -> None:
    racks.leave(B)
    assert preferred(racks, "b") == (-1, 1)


def test_followers_are_not_sent_elsewhere(racks: Cluster) -> None:
    request = racks.fetch_request(B, 2)
    request.rack_id = "c"
    answer = racks.client_of(B).ask(request, 17)
    (partition,) = fetched(answer).values()
    assert partition.preferred_read_replica == -1
    assert len(partition.records) > 0


def test_without_a_replica_selector_the_leader_serves_all_readers(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    for follower in (B, C):
        cluster.fetch(follower, 1)
    assert preferred(cluster, "b", offset=0) == (-1, 1)


def test_a_recommendation_is_told_in_a_session_although_nothing_changed(racks: Cluster) -> None:
    client = racks.world.connect()
    request = fetch(("orders", 0, 2), session=(0, 0))
    session = client.ask(request, 11).session_id
    for epoch in (1, 2):
        request = fetch(session=(session, epoch), max_wait_ms=500)
        request.rack_id = "b"
        (partition,) = fetched(client.ask(request, 11)).values()
        assert partition.preferred_read_replica == 2
