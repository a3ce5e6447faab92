"""Followers: what they do with good and bad answers, and what one of them cannot do to others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.node.fetcher import TRUNCATIONS_PER_ANSWER, Fetcher
from strandline.node.fetcher_throttle import FollowerThrottle
from strandline.node.follower_role import FollowerRole
from strandline.node.settings import Settings
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.types import BrokerId
from tests.node.cluster_load import values_of
from tests.node.cluster_steps import Steps
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, produce, produced

A, B, C = 1, 2, 3


@pytest.fixture
def world() -> Iterator[ClusterWorld]:
    """Three brokers with the topic `t`, led by the first, kept by the first two."""
    world = ClusterWorld(3)
    world.create_topic("t", (A, B))
    world.run(1000)
    yield world
    world.check()


def write(
    world: ClusterWorld, topic: str, *values: bytes, acks: int = -1, partition: int = 0
) -> int:
    """Write to the leader, one batch per value; returns the last error code."""
    client = world.leader_of(topic, partition).connect()
    code = 0
    for value in values:
        request = produce(batch(value), topic, partition, acks=acks)
        code = produced(client.ask(request, 9)).error_code
    return code


def lead(world: ClusterWorld, topic: str, broker_id: int) -> None:
    """Wait until a broker leads, and knows it."""
    world.run_until(lambda: world.partition(topic).leader == broker_id)
    world.run_until(lambda: world.replica(broker_id, topic).is_leading)


def delete_records(world: ClusterWorld, offset: int) -> None:
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(
                name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)]
            )
        ],
        timeout_ms=5000,
    )
    answer = world.leader_of("t").connect().ask(request, 2)
    assert [each.error_code for topic in answer.topics for each in topic.partitions] == [0]


def alter(world: ClusterWorld, kind: int, name: str, **settings: str) -> None:
    configs = [
        AlterableConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()
    ]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    answer = world.controller.connect().ask(request, 1)
    assert [each.error_code for each in answer.responses] == [0], answer
    world.run(10)


# -- Going along -------------------------------------------------------------------------------


def test_a_follower_has_what_its_leader_has(world: ClusterWorld) -> None:
    assert write(world, "t", b"a", b"b", b"c") == 0
    world.run(600)
    assert world.are_logs_equal("t")
    assert world.offsets(B, "t") == (3, 3)


def test_a_quiet_cluster_asks_no_more_often_than_the_wait_is_long(world: ClusterWorld) -> None:
    before = world.network.counts.frames
    world.run(10_000)
    # One follower of one leader: 20 requests and as many answers.
    assert world.network.counts.frames - before <= 42


def test_the_first_write_to_a_new_topic_does_not_wait_for_a_fetch_that_waits(
    world: ClusterWorld,
) -> None:
    for number in range(5):
        world.run(137)
        world.create_topic(f"new-{number}", (A, B))
        started_ms = world.schedule.now_ms
        assert write(world, f"new-{number}", b"first") == 0
        assert world.schedule.now_ms - started_ms < 100


def test_many_partitions_share_one_link_and_all_go_along(world: ClusterWorld) -> None:
    world.create_topic("many", *[(A, B)] * 30)
    for number in range(30):
        assert write(world, "many", b"x", partition=number) == 0
    world.run(600)
    for number in range(30):
        assert world.are_logs_equal("many", number)
    assert len(world[B].links) == 1


def test_partitions_can_be_spread_over_several_links() -> None:
    world = ClusterWorld(2, "num.replica.fetchers=3")
    world.create_topic("many", *[(A, B)] * 12)
    for number in range(12):
        assert write(world, "many", b"x", partition=number) == 0
    assert len(world[A].accepted) >= 3
    world.check()


def test_a_follower_that_was_away_catches_up(world: ClusterWorld) -> None:
    world.kill(B)
    for number in range(20):
        write(world, "t", b"%d" % number * 1000, acks=1)
    world.start(B)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.are_logs_equal("t"))


def test_a_stuck_broker_does_not_keep_others_from_replicating(world: ClusterWorld) -> None:
    world.create_topic("stuck", (A, C))
    world.create_topic("other", (B, C))
    world.cut({A}, {C})
    for _ in range(3):
        assert write(world, "other", b"goes on") == 0
    world.heal()
    world.run_until(world.is_settled)


def test_a_link_that_breaks_is_made_again(world: ClusterWorld) -> None:
    assert world.network.reset(BrokerId(A), BrokerId(B)) == 1
    assert write(world, "t", b"after") == 0


# -- Leader epochs -----------------------------------------------------------------------------


def test_r05_a_new_epoch_of_the_same_leader_truncates_again() -> None:
    steps = Steps(A, B, settings=("replica.fetch.wait.max.ms=0", "min.insync.replicas=1"))
    world = steps.world
    steps.produce(b"m0")
    for _ in range(3):
        steps.fetch(B)
    world.sync(A, "t")
    steps.produce(b"m1", acks=1)
    steps.fetch(B)
    assert steps.at(B)[0] == 2
    # B is heard of no more and leaves; A loses m1 in a power cut, leads again, writes another m1.
    world.run_until(lambda: world.partition("t").in_sync_replicas == (A,))
    follower = world.replica(B, "t")
    epoch = follower.leader_epoch
    world.power_cut(A, expire=True)
    world.start(A)
    world.run_until(lambda: world.partition("t").leader == A)
    world.run(20)
    steps.release()
    steps.produce(b"m1x", acks=1)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.are_logs_equal("t"))
    assert list(values_of(world[B], "t").values()) == [b"m0", b"m1x"]
    assert follower.leader_epoch > epoch
    world.check()


# -- Out of range ------------------------------------------------------------------------------


def test_r11_a_follower_behind_its_leaders_start_begins_again(world: ClusterWorld) -> None:
    assert write(world, "t", b"old") == 0
    world.kill(B, expire=True)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (A,))
    assert write(world, "t", *[b"%d" % number for number in range(9)]) == 0
    delete_records(world, 7)
    world.start(B)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.offsets(B, "t") == (10, 10))
    log = world.replica(B, "t").log
    assert log.log_start_offset == 7
    assert [entry.start_offset for entry in log.leader_epochs.entries] == [7]
    # KAFKA-9491: with a high watermark left behind, this follower could never lead.
    world.kill(A, expire=True)
    lead(world, "t", B)
    assert write(world, "t", b"new") == 0
    assert world.offsets(B, "t") == (11, 11)


def test_a_follower_comes_in_though_its_leaders_start_moves_on_all_the_time() -> None:
    """Without a fetch session none overtakes the one that waits for a quiet partition."""
    world = ClusterWorld(
        3,
        "max.incremental.fetch.session.cache.slots=0",
        "log.retention.check.interval.ms=100",
        "log.initial.task.delay.ms=1",
    )
    world.create_topic(
        "t",
        (A, B),
        internal_segment_bytes="100",
        retention_ms="400",
        message_timestamp_type="LogAppendTime",
    )
    world.create_topic("quiet", (A, B))
    world.run(1000)
    assert write(world, "t", b"old") == 0
    world.kill(B, expire=True)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (A,))
    for number in range(60):
        assert write(world, "t", b"new", acks=1) == 0
        world.run(200)
        if number == 9:
            world.start(B)
    assert world.partition("t").in_sync_replicas == (A, B)
    assert world.replica(A, "t").log.log_start_offset > 30
    world.check()


def test_r37_out_of_range_is_never_the_end(world: ClusterWorld) -> None:
    world.create_topic("u", (A, B), unclean_leader_election_enable="true")
    assert write(world, "u", b"a", b"b") == 0
    world.kill(A, expire=True)
    lead(world, "u", B)
    assert write(world, "u", b"c", b"d") == 0
    world.kill(B, expire=True)
    world.start(A)
    lead(world, "u", A)
    # B's last epoch is one that A never had, and B's end is beyond A's.
    world.start(B)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.are_logs_equal("u"))
    assert write(world, "u", b"e") == 0


def test_a_leaders_log_that_starts_inside_a_batch_is_followed(world: ClusterWorld) -> None:
    world.kill(B, expire=True)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (A,))
    client = world[A].connect()
    request = produce(batch(b"0", b"1", b"2", b"3"), "t")
    assert produced(client.ask(request, 9)).error_code == 0
    assert write(world, "t", b"4") == 0
    delete_records(world, 2)
    world.start(B)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.offsets(B, "t") == (5, 5))
    assert world.replica(B, "t").log.log_start_offset == 2
    assert world.are_logs_equal("t")


def test_a_new_registration_of_a_follower_is_known_to_leaders_of_quiet_partitions(
    world: ClusterWorld,
) -> None:
    world[B].expire()
    world.run_until(world.is_settled)
    assert write(world, "t", b"x") == 0


def test_deleted_records_are_gone_on_every_disk_when_the_client_hears_so(
    world: ClusterWorld,
) -> None:
    """A power failure of all brokers does not bring them back (I-27)."""
    for number in range(5):
        assert write(world, "t", b"%d" % number) == 0
    delete_records(world, 3)
    for broker in (A, B):
        disk = world[broker].disk
        path = f"{disk.data_dirs[0]}/log-start-offset-checkpoint"
        table = disk.image("none").read_bytes(path)
        assert table.split(b"\n")[2:] == [b"t 0 3", b""]


# -- Bad answers and bad disks -----------------------------------------------------------------


def test_r38_a_damaged_answer_is_fetched_again_and_others_go_on(
    world: ClusterWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic("v", (A, B))
    world.run(1000)
    world.hold((A, B))
    client = world[A].connect()
    request = produce({("t", 0): batch(b"one"), ("v", 0): batch(b"the other")})
    client.send(request, 9)
    world[A].schedule_turn()
    world.run(5)
    world.network.flip(BrokerId(A), BrokerId(B))
    with caplog.at_level(logging.ERROR):
        world.let_through(A, B)
    assert world.network.counts.flips == 1
    assert "cannot be used" in caplog.text
    assert sorted(world.offsets(B, topic)[0] for topic in ("t", "v")) == [0, 1]
    world.hold()
    world.run_until(lambda: bool(client.answers))
    parts = [part for topic in client.answers[0].responses for part in topic.partition_responses]
    assert [part.error_code for part in parts] == [0, 0]
    world.run_until(lambda: world.are_logs_equal("t") and world.are_logs_equal("v"))


def test_a_follower_whose_disk_fails_gives_up_and_the_others_are_not_held_back(
    world: ClusterWorld,
) -> None:
    world[B].disk.fail("append", "/t-0/")
    write(world, "t", b"x", acks=1)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (A,))
    assert write(world, "t", b"y") == 0


def test_r41_a_follower_comes_back_after_its_disk_was_damaged(world: ClusterWorld) -> None:
    assert write(world, "t", b"a", b"b", b"c") == 0
    world.kill(B, expire=True)
    files, (data,) = world[B].disk.files, world[B].config.log_dirs
    for name in files.list_directory(data):
        if name.endswith("recovery-point-offset-checkpoint"):
            files.write_atomically(f"{data}/{name}", b"neither a version nor a count\n")
    for name in files.list_directory(f"{data}/t-0"):
        if name.endswith((".index", ".timeindex")):
            files.write_atomically(f"{data}/t-0/{name}", b"\xff" * 13)
    world.start(B)
    world.run_until(world.is_settled)
    world.run_until(lambda: world.are_logs_equal("t"))


def test_a_follower_whose_disk_is_full_goes_on_when_there_is_room(world: ClusterWorld) -> None:
    world[B].disk.fill("/t-0/")
    write(world, "t", b"x", acks=1)
    world.run(3000)
    assert world.offsets(B, "t")[0] == 0
    world[B].disk.free_space()
    world.run_until(lambda: world.are_logs_equal("t"))
    assert all(each.offline_reason is None for each in world[B].node.replicas.logs.directories)


# -- Throttles ---------------------------------------------------------------------------------


def test_a_throttled_follower_is_slow_until_it_is_in_sync() -> None:
    world = ClusterWorld(3, "replica.fetch.max.bytes=20000")
    world.create_topic("t", (A, B))
    alter(world, 2, "t", follower_replication_throttled_replicas=f"0:{B}")
    alter(world, 4, "", follower_replication_throttled_rate="10000")
    world.kill(B, expire=True)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (A,))
    for _ in range(30):
        assert write(world, "t", b"x" * 10_000) == 0
    world.start(B)
    started_ms = world.schedule.now_ms
    world.run_until(world.is_settled, ms_max=120_000)
    # 300 kB, of which 110 kB are allowed within the first window of 11 s.
    assert world.schedule.now_ms - started_ms > 10_000
    started_ms = world.schedule.now_ms
    for _ in range(20):
        assert write(world, "t", b"x" * 10_000) == 0  # in sync: not slowed
    assert world.schedule.now_ms - started_ms < 1000
    world.check()


def test_a_throttled_follower_goes_on_soon_when_the_limit_is_raised() -> None:
    world = ClusterWorld(3, "replica.fetch.max.bytes=20000")
    world.create_topic("t", (A, B))
    alter(world, 2, "t", follower_replication_throttled_replicas=f"0:{B}")
    alter(world, 4, "", follower_replication_throttled_rate="1000")
    world.kill(B, expire=True)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (A,))
    for _ in range(30):
        assert write(world, "t", b"x" * 10_000) == 0
    world.start(B)
    world.run(2000)
    assert 0 < world.offsets(B, "t")[0] < 30
    alter(world, 4, "", follower_replication_throttled_rate="100000000")
    started_ms = world.schedule.now_ms
    world.run_until(world.is_settled)
    # Within replica.fetch.backoff.ms, and not after the pause that the old limit asked for.
    assert world.schedule.now_ms - started_ms < 1500
    world.check()


def test_only_the_named_replicas_are_slowed(world: ClusterWorld) -> None:
    alter(world, 2, "t", follower_replication_throttled_replicas=f"0:{C},1:{B}")
    settings = Settings(world[B].config)
    throttle = FollowerThrottle(BrokerId(B), settings)
    replica = world.replica(B, "t")
    throttle.record(replica, 10**9, world[B].now)
    assert throttle.delay_ms(replica, is_in_sync=False, now=world[B].now) == 0


def test_many_partitions_that_diverged_are_truncated_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each truncation waits for the disk, and all of a broker's clients wait for its turn."""
    world = ClusterWorld(3, "unclean.leader.election.enable=true", "min.insync.replicas=1")
    count = 2 * TRUNCATIONS_PER_ANSWER + 1
    world.create_topic("t", *[(A, B)] * count)
    world.run(1000)
    world.kill(B, expire=True)
    world.run_until(lambda: world.partition("t", count - 1).in_sync_replicas == (A,))
    for number in range(count):
        assert write(world, "t", b"lost", acks=1, partition=number) == 0
    world.kill(A, expire=True)
    world.start(B)
    world.run_until(lambda: world.partition("t", count - 1).leader == B)
    for number in range(count):
        world.run_until(lambda n=number: world.replica(B, "t", n).is_leading)  # type: ignore[misc]
        assert write(world, "t", b"kept", acks=1, partition=number) == 0

    truncated: list[int] = []
    answered, truncate_to = Fetcher._answered, FollowerRole.truncate_to

    def note_answer(fetcher: Fetcher, *arguments: Any) -> None:
        truncated.append(0)
        answered(fetcher, *arguments)

    def note_truncation(role: FollowerRole, *arguments: Any) -> None:
        truncated[-1] += 1
        truncate_to(role, *arguments)

    monkeypatch.setattr(Fetcher, "_answered", note_answer)
    monkeypatch.setattr(FollowerRole, "truncate_to", note_truncation)
    world.start(A)
    world.run_until(world.is_settled)
    assert all(world.are_logs_equal("t", number) for number in range(count))
    assert values_of(world[A], "t") == {0: b"kept"}
    assert sum(truncated) == count
    assert max(truncated) == TRUNCATIONS_PER_ANSWER
    world.check()
