"""The group coordinator among several brokers: where it is, how it moves, what it waits for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.errors import ErrorCode
from strandline.node import coordinator_loading
from strandline.node.node import Node
from strandline.protocol.messages.delete_groups import DeleteGroupsRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.protocol.messages.inspect import InspectRequest
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
)
from strandline.types import Instant, Offset
from tests.node.cluster_world import Broker, ClusterWorld
from tests.node.world import Client

GROUP = "readers"
SETTINGS = ("group.initial.rebalance.delay.ms=0",)


@pytest.fixture
def make(make_world: Callable[..., ClusterWorld]) -> Callable[..., ClusterWorld]:
    """Makes three brokers with the topic `t`."""

    def make(*settings: str, seed: int = 1) -> ClusterWorld:
        world = make_world(3, *SETTINGS, *settings, seed=seed)
        world.create_topic("t", (1, 2, 3))
        return world

    return make


@pytest.fixture
def world(make: Callable[..., ClusterWorld]) -> ClusterWorld:
    """Three brokers with the topic `t` and `__consumer_offsets`."""
    world = make()
    coordinator_of(world)
    world.run_until(world.is_settled)
    return world


def coordinator_of(world: ClusterWorld, group: str = GROUP, *, ask: int | None = None) -> int:
    """The coordinator as some running broker tells it; -1 if there is none."""
    asked = ask or next(int(b) for b, m in world.machines.items() if m.is_up and not m.is_paused)
    answer = world[asked].connect().ask(FindCoordinatorRequest(key=group, key_type=0), 2)
    return int(answer.node_id)


def test_c12_a_first_group_starts_while_a_broker_is_down(
    make: Callable[..., ClusterWorld],
) -> None:
    """Also where `offsets.topic.replication.factor` was set: its replica there is offline."""
    world = make("offsets.topic.replication.factor=3")
    down = next(b for b in (1, 2, 3) if b != world.controller.broker_id)
    world.kill(down, expire=True)
    world.run_until(world.is_settled)
    asked = next(b for b in (1, 2, 3) if b != down)
    coordinator = coordinator_of(world, ask=asked)
    assert coordinator in {1, 2, 3} - {down}
    assert set(world.partition(CONSUMER_OFFSETS).replicas) == {1, 2, 3}


def test_c12_a_group_that_cannot_start_is_told_why(make: Callable[..., ClusterWorld]) -> None:
    world = make("offsets.topic.replication.factor=4")
    client = world[1].connect()
    answer = client.ask(FindCoordinatorRequest(key=GROUP, key_type=0), 2)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    why = "4 replicas need as many brokers; 3 are registered."
    assert answer.error_message == f"The topic {CONSUMER_OFFSETS} could not be made: {why}"
    about = json.dumps({"group": GROUP}).encode()
    told = json.loads(client.ask(InspectRequest(subject="why", arguments=about), 0).document)
    causes = [found["cause"] for found in told["findings"]]
    assert f"the topic of the groups cannot be made: {why}" in causes


def commit_request(offset: int, group: str = GROUP) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    return OffsetCommitRequest(group_id=group, topics=[topic])


def commit(client: Client, offset: int, group: str = GROUP) -> int:
    answer = client.ask(commit_request(offset, group), 8)
    return int(answer.topics[0].partitions[0].error_code)


def committed(client: Client, group: str = GROUP) -> tuple[int, int]:
    """Error and offset."""
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    answer = client.ask(OffsetFetchRequest(group_id=group, topics=[topic]), 6)
    if answer.error_code:
        return answer.error_code, -1
    found = answer.topics[0].partitions[0]
    return found.error_code, found.committed_offset


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_new_coordinator_tells_no_offsets_that_may_still_be_lost(
    make: Callable[..., ClusterWorld], is_lost: bool
) -> None:
    """It has read them from the end of its log, above the high watermark: the next coordinator
    might not have them, and a consumer's position would go back."""
    world = make("offsets.topic.num.partitions=1")
    first = coordinator_of(world)
    world.run_until(world.is_settled)
    assert commit(world[first].connect(), 1) == 0
    second, third = (int(b) for b in world.partition(CONSUMER_OFFSETS).replicas if b != first)
    world.run_until(lambda: world.are_logs_equal(CONSUMER_OFFSETS))
    world.hold((first, third))
    world[first].connect().send(commit_request(5), 8)
    world.run_until(
        lambda: (
            world.offsets(second, CONSUMER_OFFSETS)[0] > world.offsets(third, CONSUMER_OFFSETS)[0]
        )
    )
    world.hold((first, third), (second, third))
    world.kill(first, expire=True)
    world.run_until(lambda: world.partition(CONSUMER_OFFSETS).leader == second)
    world.run_until(lambda: coordinator_of(world, ask=second) == second)
    client = world[second].connect()
    topic = OffsetFetchRequestTopic(name="t", partition_indexes=[0])
    client.send(OffsetFetchRequest(group_id=GROUP, topics=[topic]), 6)
    world.run(500)
    assert client.answers == []
    if is_lost:
        world.kill(second, expire=True)
        world.hold()
        world.run_until(lambda: world.partition(CONSUMER_OFFSETS).leader == third)
        world.run_until(lambda: committed(world[third].connect()) == (0, 1))
    else:
        world.hold()
        world.run_until(lambda: len(client.answers) == 1)
        assert client.answers[0].topics[0].partitions[0].committed_offset == 5


def test_c11_offsets_of_topics_and_partitions_that_do_not_exist_cannot_be_deleted(
    world: ClusterWorld,
) -> None:
    """A mistyped name was reported as a success."""
    client = world[coordinator_of(world)].connect()
    assert commit(client, 5) == 0

    def deleted(group: str, *wanted: tuple[str, int]) -> tuple[int, dict[tuple[str, int], int]]:
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=number)]
            )
            for name, number in wanted
        ]
        answer = client.ask(OffsetDeleteRequest(group_id=group, topics=topics), 0)
        return answer.error_code, {
            (topic.name, item.partition_index): item.error_code
            for topic in answer.topics
            for item in topic.partitions
        }

    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wanted = (("t", 0), ("tt", 0), ("t", 7))
    assert deleted(GROUP, *wanted) == (0, {("t", 0): 0, ("tt", 0): unknown, ("t", 7): unknown})
    assert committed(client) == (0, -1)
    assert deleted(GROUP, ("tt", 0)) == (0, {("tt", 0): unknown})
    assert deleted("none", ("tt", 0)) == (ErrorCode.GROUP_ID_NOT_FOUND, {})


def join_request(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )


def moved_from(world: ClusterWorld, *former: int) -> int:
    """The next coordinator, at the moment when it is known."""
    found = -1

    def is_known() -> bool:
        nonlocal found
        found = coordinator_of(world)
        return found not in (-1, *former)

    world.run_until(is_known)
    return found


# -- Where ------------------------------------------------------------------------------------


def test_the_offsets_topic_is_as_large_as_the_cluster_and_all_agree(world: ClusterWorld) -> None:
    topic = world.image.topics[CONSUMER_OFFSETS]
    assert {len(partition.replicas) for partition in topic.partitions.values()} == {3}
    assert len({coordinator_of(world, ask=broker) for broker in (1, 2, 3)}) == 1


def test_one_broker_is_enough() -> None:
    world = ClusterWorld(1)
    world.create_topic("t", (1,))
    assert coordinator_of(world) == 1
    assert commit(world[1].connect(), 7) == ErrorCode.NONE
    assert committed(world[1].connect()) == (0, 7)
    world.check()


def test_another_broker_is_not_the_coordinator(world: ClusterWorld) -> None:
    other = coordinator_of(world) % 3 + 1
    assert commit(world[other].connect(), 7) == ErrorCode.NOT_COORDINATOR
    answer = world[other].connect().ask(HeartbeatRequest(group_id=GROUP, member_id="m"), 4)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR


def test_two_brokers_that_create_the_offsets_topic_at_once_both_get_it(
    make: Callable[..., ClusterWorld],
) -> None:
    world = make()
    clients = [world[broker].connect() for broker in (1, 2, 3)]
    for client in clients:
        client.send(FindCoordinatorRequest(key=GROUP, key_type=0), 2)
    for machine in world.machines.values():
        machine.schedule_turn()
    world.run_until(lambda: all(client.answers for client in clients))
    assert {client.answers[0].error_code for client in clients} == {0}
    assert len({client.answers[0].node_id for client in clients}) == 1


# -- Moving -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_offsets_survive_the_coordinator(make: Callable[..., ClusterWorld], seed: int) -> None:
    world = make(seed=seed)
    first = coordinator_of(world)
    # The controller's first look for preferred leaders is over: no leadership moves back by itself.
    world.run(6000)
    for offset in range(20):
        assert commit(world[first].connect(), offset) == ErrorCode.NONE
    world.kill(first)
    world.run_until(world.is_settled)
    second = coordinator_of(world)
    assert second != first
    assert committed(world[second].connect()) == (0, 19)
    assert commit(world[second].connect(), 20) == ErrorCode.NONE
    world.start(first)
    world.run_until(world.is_settled)
    assert committed(world[first].connect())[0] == ErrorCode.NOT_COORDINATOR


def test_members_that_wait_are_told_when_leadership_moves(world: ClusterWorld) -> None:
    first = coordinator_of(world)
    client = world[first].connect()
    found = client.ask(join_request(), 5)
    joined = client.ask(join_request(found.member_id), 5)
    assert joined.error_code == ErrorCode.NONE
    second = world[first].connect()
    found = second.ask(join_request(), 5)
    second.send(join_request(found.member_id), 5)
    world[first].schedule_turn()
    world.run(1000)
    assert len(second.answers) == 1  # it waits for the first member to join again
    node = world[first].node
    world[first].event(lambda _, now: node.begin_shutdown(now))
    world.run_until(lambda: len(second.answers) == 2)
    assert second.answers[1].error_code == ErrorCode.NOT_COORDINATOR
    moved_from(world, first)


def test_a_member_of_an_unfinished_group_joins_anew_at_the_new_coordinator(
    world: ClusterWorld,
) -> None:
    first = coordinator_of(world)
    client = world[first].connect()
    found = client.ask(join_request(), 5)
    joined = client.ask(join_request(found.member_id), 5)
    # Without an assignment, nothing of the group is stored: the member has to join again.
    world.kill(first, expire=True)
    second = moved_from(world, first)
    world.run(100)
    beat = HeartbeatRequest(
        group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id
    )
    answer = world[second].connect().ask(beat, 4)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_c20_a_member_whose_session_has_just_ended_is_no_member(
    world: ClusterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the request is served before the turn in which its timer would run."""
    first = coordinator_of(world)
    client = world[first].connect()
    found = client.ask(join_request(), 5)
    assert client.ask(join_request(found.member_id), 5).error_code == ErrorCode.NONE
    ends_ms = world[first].now.monotonic_ms + 30_000
    world.run(29_000)
    deletion = DeleteGroupsRequest(groups_names=[GROUP])
    assert client.ask(deletion, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "now", Instant(ends_ms, world[first].now.wall_ms))
        client.send(deletion, 2)
    count = len(client.answers)
    world[first].wait_for(lambda: len(client.answers) > count)
    assert client.answers[-1].results[0].error_code == ErrorCode.NONE


# -- Commits wait for the followers -----------------------------------------------------------


def test_a_commit_is_answered_when_the_followers_have_it(world: ClusterWorld) -> None:
    first = coordinator_of(world)
    others = {1, 2, 3} - {first}
    assert commit(world[first].connect(), 1) == ErrorCode.NONE
    world.cut({first}, others)
    writer, reader = world[first].connect(), world[first].connect()
    writer.send(commit_request(2), 8)
    world[first].schedule_turn()
    world.run(2000)
    assert not writer.answers
    assert committed(reader) == (0, 1)
    world.heal()
    world.run_until(lambda: bool(writer.answers))
    assert writer.answers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed(reader) == (0, 2)


def test_a_commit_that_takes_too_long_counts_all_the_same(
    make: Callable[..., ClusterWorld],
) -> None:
    world = make("offsets.commit.timeout.ms=1000")
    first = coordinator_of(world)
    assert commit(world[first].connect(), 1) == ErrorCode.NONE
    world.cut({first}, {1, 2, 3} - {first})
    assert commit(world[first].connect(), 2) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.heal()
    world.run_until(lambda: committed(world[first].connect()) == (0, 2))


def test_commits_are_settled_in_their_order_when_the_followers_leave(
    make: Callable[..., ClusterWorld],
) -> None:
    """The high watermark passes all of them at once, while another one is appended."""
    world = make("offsets.commit.timeout.ms=60000", "replica.lag.time.max.ms=4000")
    first = coordinator_of(world)
    world.run_until(world.is_settled)
    while world.controller.broker_id != first:
        # Its own controller need not be reached to have the followers leave.
        world.controller.expire()
        world.run(100)
        world.run_until(world.is_settled)
    world.cut({first}, {1, 2, 3} - {first})
    clients = [world[first].connect() for _ in range(5)]
    for offset, client in enumerate(clients):
        client.send(commit_request(offset), 8)
        world[first].schedule_turn()
        world.run(100)
    assert not any(client.answers for client in clients)
    world.run_until(lambda: all(client.answers for client in clients))
    for client in clients:
        assert client.answers[0].topics[0].partitions[0].error_code == ErrorCode.NONE
    world.heal()
    assert committed(world[first].connect()) == (0, 4)


def test_too_few_in_sync_replicas_refuse_a_commit(world: ClusterWorld) -> None:
    change = AlterableConfig(name="min.insync.replicas", config_operation=0, value="2")
    resource = AlterConfigsResource(resource_type=2, resource_name=CONSUMER_OFFSETS)
    resource.configs.append(change)
    world[1].connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    first = coordinator_of(world)
    for other in {1, 2, 3} - {first}:
        world.kill(other, expire=True)
    number = world[first].node.groups.host.partition_for(GROUP)
    world.run_until(lambda: world.partition(CONSUMER_OFFSETS, number).in_sync_replicas == (first,))
    world.run(100)
    assert commit(world[first].connect(), 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE


# -- Loading ----------------------------------------------------------------------------------


def loading_slowly(world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> int:
    """The coordinator has moved to this broker, which reads a record in each step."""
    first = coordinator_of(world)
    for offset in range(50):
        assert commit(world[first].connect(), offset) == ErrorCode.NONE
    monkeypatch.setattr(coordinator_loading, "_RECORDS_PER_STEP", 1)
    world.kill(first, expire=True)
    return moved_from(world, first)


def test_groups_are_loaded_in_steps(world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    second = loading_slowly(world, monkeypatch)
    codes: list[int] = []
    while not codes or codes[-1] in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ):
        world.run(1)
        code, offset = committed(world[second].connect())
        codes.append(code)
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in codes
    assert (codes[-1], offset) == (0, 49)


def test_loading_goes_on_when_retention_takes_what_is_still_to_be_read(
    make: Callable[..., ClusterWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator may let the topic forget by time, too."""
    world = make("offsets.load.buffer.size=1")
    second = loading_slowly(world, monkeypatch)
    client = world[second].connect()
    world.run_until(lambda: bool(world[second].node.groups.host.loading))
    world.run(5)
    assert committed(client)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def retain(node: Node, now: Instant) -> None:
        del now
        for replica in node.replicas:
            if replica.topic_partition.topic == CONSUMER_OFFSETS:
                log = replica.log
                start = max(log.log_start_offset, log.high_watermark - 1)
                log.retention.delete_records_to(Offset(start))

    world[second].event(retain)
    world.run_until(lambda: committed(client) == (0, 49), ms_max=5000)


def test_f47_what_cannot_be_read_is_loaded_by_another(world: ClusterWorld) -> None:
    first = coordinator_of(world)
    for offset in range(5):
        assert commit(world[first].connect(), offset) == ErrorCode.NONE
    topic = world.image.topics[CONSUMER_OFFSETS]
    (state,) = (each for each in topic.partitions.values() if each.leader == first)
    second, third = (each for each in state.replicas if each != first)
    world[second].disk.fail("read", f"/{CONSUMER_OFFSETS}-")
    world.kill(first, expire=True)
    world.run_until(lambda: coordinator_of(world) == third)
    world.run(200)
    assert committed(world[third].connect()) == (0, 4)
    assert not world[second].machine.is_up, "It has no other directory."


def test_what_could_not_be_read_for_want_of_handles_is_read_again(world: ClusterWorld) -> None:
    first = coordinator_of(world)
    for offset in range(5):
        assert commit(world[first].connect(), offset) == ErrorCode.NONE
    topic = world.image.topics[CONSUMER_OFFSETS]
    (state,) = (each for each in topic.partitions.values() if each.leader == first)
    second = next(each for each in state.replicas if each != first)
    world[second].disk.starve()
    world.kill(first, expire=True)
    assert moved_from(world, first) == second
    client = world[second].connect()
    for _ in range(3):
        world.run(1500)
        assert committed(client)[0] == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world[second].disk.starve(0)
    world.run_until(lambda: committed(client) == (0, 4))


def test_loading_ends_with_leadership(world: ClusterWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    first = coordinator_of(world)
    for offset in range(50):
        assert commit(world[first].connect(), offset) == ErrorCode.NONE
    monkeypatch.setattr(coordinator_loading, "_RECORDS_PER_STEP", 1)
    world.kill(first, expire=True)
    second = moved_from(world, first)
    node = world[second].node
    world[second].event(lambda _, now: node.begin_shutdown(now))
    world.run_until(lambda: node.is_shutdown_complete)
    world.run(200)
    third = coordinator_of(world)
    assert third not in (-1, first, second)
    assert committed(world[third].connect()) == (0, 49)
    assert committed(world[second].connect())[0] == ErrorCode.NOT_COORDINATOR
