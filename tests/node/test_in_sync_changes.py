"""Proposals of in-sync sets: to the controller, to this very broker, again, and no more.

The controller is played by hand here (`Remote`), so that answers can be lost, late and wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import pytest

from strandline.cluster.controller import InSyncProposal, PartitionAltered, Refusal
from strandline.cluster.store import SetData, StoreUnavailable
from strandline.cluster.znodes import ControllerEpochNode, ControllerNode
from strandline.errors import ErrorCode
from strandline.node.effects import Ask, Dial
from strandline.node.in_sync_wire import proposals_of, request_of, response_of, results_of
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_request_header, response_frame
from strandline.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from strandline.protocol.schema import decode_from
from strandline.replication.in_sync import Committed, Expanding, InSyncState, Shrinking, Withdrawing
from strandline.types import BrokerId, LeaderEpoch
from tests.node.cluster_world import ClusterWorld
from tests.node.followers import ALL, A, B, C, Cluster
from tests.node.messages import batch, produce
from tests.node.world import joined

LAG_MS = 30_000


@dataclass
class Asked:
    """A request that has reached the controller."""

    link: int
    correlation_id: int
    body: AlterPartitionRequest

    @property
    def sets(self) -> list[set[int]]:
        return [
            {member.broker_id for member in item.new_isr_with_epochs}
            for topic in self.body.topics
            for item in topic.partitions
        ]


class Remote:
    """Another broker as the controller."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.world.node.replicas.host.proposals = self.world.node.in_sync_changes

    def take_office(self, broker_id: BrokerId) -> None:
        """The store says that this broker is the controller now."""
        epoch = self.world.node.metadata.image.controller_epoch
        assert epoch is not None
        self.cluster.write(
            [
                SetData(ControllerEpochNode.path, ControllerEpochNode(epoch.value + 1).encode()),
                SetData(ControllerNode.path, ControllerNode(broker_id).encode()),
            ]
        )
        self.world.turn()

    def asked(self) -> list[Asked]:
        """What was asked since the last call."""
        self.world.turn()
        for effect in list(self.world.links):
            if isinstance(effect, Dial):
                self.world.node.link_opened(effect.link, self.world.now)
        self.world.turn()
        effects, self.world.links[:] = list(self.world.links), []
        return [self._parse(effect) for effect in effects if isinstance(effect, Ask)]

    def only(self) -> Asked:
        (asked,) = self.asked()
        return asked

    def _parse(self, effect: Ask) -> Asked:
        frame = memoryview(b"".join(effect.chunks))[4:]
        header, position = parse_request_header(frame)
        assert (header.api_key, header.api_version) == (ApiKey.ALTER_PARTITION, 3)
        body = decode_from(AlterPartitionRequest, 3, frame, position)[0]
        assert isinstance(body, AlterPartitionRequest)
        return Asked(effect.link, header.correlation_id, body)

    def answer(self, asked: Asked, response: AlterPartitionResponse) -> None:
        api = KNOWN[ApiKey.ALTER_PARTITION]
        frame = joined(response_frame(api, 3, asked.correlation_id, response))
        self.world.node.link_received(asked.link, memoryview(frame)[4:], self.world.now)
        self.world.turn()

    def commit(self, asked: Asked) -> None:
        """Answer with success, and let the metadata follow."""
        self.answer(asked, response_of(self._accepted(asked)))

    def _accepted(self, asked: Asked) -> list[PartitionAltered]:
        return [
            PartitionAltered(
                item.topic_id,
                item.partition,
                None,
                BrokerId(1),
                item.leader_epoch,
                tuple(member for member, _ in item.members),
                item.partition_epoch + 1,
            )
            for item in proposals_of(asked.body, 3)
        ]

    def refuse(self, asked: Asked, code: ErrorCode) -> None:
        results = [
            PartitionAltered(item.topic_id, item.partition, Refusal(code, ""))
            for item in proposals_of(asked.body, 3)
        ]
        self.answer(asked, response_of(results))


@pytest.fixture
def remote(make_cluster: Callable[..., Cluster]) -> Remote:
    """Broker 2 is the controller; broker 1 leads `orders`, with 2 in sync, and 3 not."""
    cluster = make_cluster()
    cluster.create_topic()
    remote = Remote(cluster)
    remote.take_office(B)
    cluster.set_state(isr=(1, 2))
    cluster.fetch(B, 0)
    return remote


def in_sync(remote: Remote, topic: str = "orders") -> InSyncState:
    leader = remote.cluster.replica(topic).leader
    assert leader is not None
    return leader.in_sync


# -- One proposal ------------------------------------------------------------------------------


def test_a_proposal_names_epochs_and_is_committed_by_the_answer(remote: Remote) -> None:
    cluster = remote.cluster
    cluster.fetch(C, 0)
    asked = remote.only()
    state = cluster.state()
    assert asked.body.broker_id == 1
    assert asked.body.broker_epoch == cluster.epoch_of(1)
    (proposal,) = proposals_of(asked.body, 3)
    assert proposal == InSyncProposal(
        cluster.world.node.metadata.image.topics["orders"].topic_id,
        0,
        state.leader_epoch,
        state.partition_epoch,
        [(BrokerId(broker), cluster.epoch_of(broker)) for broker in ALL],
    )
    assert isinstance(in_sync(remote), Expanding)
    remote.commit(asked)
    assert in_sync(remote) == Committed(frozenset({A, B, C}))
    leader = cluster.replica().leader
    assert leader is not None
    assert leader.partition_epoch == state.partition_epoch + 1
    assert not remote.asked()


def test_members_that_lag_are_proposed_to_leave(remote: Remote) -> None:
    remote.cluster.produce()
    remote.world.advance(2 * LAG_MS)
    asked = remote.only()
    assert asked.sets == [{1}]
    remote.commit(asked)
    assert in_sync(remote) == Committed(frozenset({A}))
    assert remote.cluster.offsets() == (1, 0), (
        "the replica that left may be eligible to lead without it"
    )
    remote.cluster.set_state(isr=(1,), new_epoch=False)
    assert remote.cluster.offsets() == (1, 1)


def test_c5_who_left_is_eligible_by_the_controllers_minimum(remote: Remote) -> None:
    """The controller knows already that the minimum was raised, and this leader does not."""
    remote.cluster.produce()
    remote.world.advance(2 * LAG_MS)
    remote.commit(remote.only())
    remote.cluster.set_state(isr=(1,), elr=(B,), new_epoch=False)
    assert remote.cluster.offsets() == (1, 0)
    remote.cluster.set_state(isr=(1,), new_epoch=False)
    assert remote.cluster.offsets() == (1, 1)


@pytest.mark.parametrize("members", [(B,), (1, B, 9), ()])
def test_an_answer_that_cannot_be_is_not_believed(
    remote: Remote, members: tuple[int, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that is not in sync with itself, or strangers: found by fuzzing."""
    cluster = remote.cluster
    cluster.fetch(C, 0)
    asked = remote.only()
    (proposal,) = proposals_of(asked.body, 3)
    wrong = PartitionAltered(
        proposal.topic_id,
        0,
        None,
        BrokerId(1),
        proposal.leader_epoch,
        tuple(map(BrokerId, members)),
        proposal.partition_epoch + 1,
    )
    remote.answer(asked, response_of([wrong]))
    assert in_sync(remote) == Expanding(frozenset({A, B}), C, remote.cluster.epoch_of(C))
    assert "which cannot be" in caplog.text
    remote.world.advance(1000)
    remote.commit(remote.only())
    assert in_sync(remote) == Committed(frozenset({A, B, C}))


def test_a_code_that_is_newer_than_this_broker_is_asked_again(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    remote.answer(remote.only(), AlterPartitionResponse(error_code=999))
    remote.world.advance(5000)
    remote.commit(remote.only())
    assert in_sync(remote) == Committed(frozenset({A, B, C}))


def test_a_definite_refusal_ends_the_proposal(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    remote.refuse(remote.only(), ErrorCode.INELIGIBLE_REPLICA)
    assert in_sync(remote) == Committed(frozenset({A, B}))
    remote.world.advance(5000)
    assert not remote.asked()
    remote.cluster.fetch(C, 0)
    assert remote.only().sets == [set(ALL)]


def test_i16_a_proposal_that_waits_is_for_the_life_that_qualified(remote: Remote) -> None:
    """KIP-903: C qualifies, and loses its log and starts again before the proposal goes out, or
    goes out again. The broker with its id now has nothing of what C had; the controller is to see
    it. Found by the search through all ways of a small cluster.
    """
    cluster = remote.cluster
    cluster.fetch(C, 0)
    (qualified,) = proposals_of(remote.only().body, 3)
    life = dict(qualified.members)[C]
    cluster.produce()
    cluster.register(C)
    cluster.fetch(C, 0)
    remote.take_office(C)
    asked = remote.only()
    (repeated,) = proposals_of(asked.body, 3)
    assert repeated == qualified
    assert dict(repeated.members)[C] == life < cluster.epoch_of(C)
    remote.refuse(asked, ErrorCode.INELIGIBLE_REPLICA)
    # The first request was never answered. It may still be carried out, until the version moves.
    assert in_sync(remote) == Withdrawing(frozenset({A, B}), C)
    cluster.produce()
    cluster.fetch(B, 2)
    assert cluster.offsets()[1] == 0
    withdrawal = remote.only()
    assert withdrawal.sets == [{1, B}]
    remote.refuse(withdrawal, ErrorCode.INELIGIBLE_REPLICA)
    assert in_sync(remote) == Withdrawing(frozenset({A, B}), C)
    cluster.world.advance(200)
    remote.commit(remote.only())
    assert in_sync(remote) == Committed(frozenset({A, B}))
    cluster.fetch(C, 1)
    cluster.fetch(C, 2)
    (proposal,) = proposals_of(remote.only().body, 3)
    assert dict(proposal.members)[C] == cluster.epoch_of(C)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
)
@pytest.mark.parametrize("is_answered", [False, True])
def test_i13_an_attempt_stays_open_behind_a_refusal_that_is_not_definite(
    remote: Remote, code: ErrorCode, is_answered: bool
) -> None:
    """Either the first attempt was never answered, or the refusal does not say that it was not
    carried out. It may be, also after a later one was definitely refused."""
    cluster = remote.cluster
    cluster.fetch(C, 0)
    first = remote.only()
    if not is_answered:
        remote.world.node.link_closed(first.link, "reset", remote.world.now)
        remote.asked()
        remote.world.advance(1000)
        first = remote.only()
    remote.refuse(first, code)
    remote.world.advance(1000)
    cluster.produce()
    remote.refuse(remote.only(), ErrorCode.INELIGIBLE_REPLICA)
    assert in_sync(remote) == Withdrawing(frozenset({A, B}), C)
    cluster.leave(C)
    cluster.fetch(B, 1)
    assert cluster.offsets() == (1, 0)
    remote.commit(remote.only())
    assert cluster.offsets() == (1, 1)


def test_a_withdrawal_that_is_refused_is_asked_for_again_after_a_pause(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    remote.refuse(remote.only(), ErrorCode.NOT_CONTROLLER)
    remote.world.advance(1000)
    remote.refuse(remote.only(), ErrorCode.INELIGIBLE_REPLICA)
    asked = remote.only()
    for _ in range(3):
        remote.refuse(asked, ErrorCode.NOT_CONTROLLER)
        assert not remote.asked()
        remote.world.advance(200)
        asked = remote.only()
        assert asked.sets == [{1, B}]
    remote.commit(asked)
    assert in_sync(remote) == Committed(frozenset({A, B}))


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_r43_a_refusal_for_old_metadata_waits_for_newer_and_is_never_stuck(
    remote: Remote, code: ErrorCode
) -> None:
    """KAFKA-2729: a cached version that is wrong for ever stopped all in-sync changes."""
    remote.cluster.fetch(C, 0)
    remote.refuse(remote.only(), code)
    assert isinstance(in_sync(remote), Expanding)
    assert not remote.asked()
    remote.world.advance(1000)
    again = remote.only()
    assert again.sets == [set(ALL)]
    remote.refuse(again, code)
    remote.cluster.set_state(isr=ALL, new_epoch=False)
    assert in_sync(remote) == Committed(frozenset(ALL))
    remote.world.advance(5000)
    assert not remote.asked()


def test_an_answer_without_the_partition_is_no_answer(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    remote.answer(remote.only(), AlterPartitionResponse())
    assert isinstance(in_sync(remote), Expanding)
    remote.world.advance(1000)
    assert remote.only().sets == [set(ALL)]


# -- Outcomes that are not known ---------------------------------------------------------------


def test_r32_a_lost_answer_is_asked_for_again(remote: Remote) -> None:
    """KAFKA-12686, KAFKA-14144: the repeated proposal is the same, and both sets stay in force."""
    remote.cluster.fetch(C, 0)
    first = remote.only()
    remote.world.node.link_closed(first.link, "reset", remote.world.now)
    assert not [each for each in remote.asked() if each.link == first.link]
    assert isinstance(in_sync(remote), Expanding)
    remote.world.advance(1000)
    again = remote.only()
    assert again.body == first.body
    remote.commit(again)
    assert in_sync(remote) == Committed(frozenset(ALL))


def test_the_metadata_may_be_faster_than_the_answer(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    asked = remote.only()
    remote.cluster.set_state(isr=ALL, new_epoch=False)
    assert in_sync(remote) == Committed(frozenset(ALL))
    remote.refuse(asked, ErrorCode.INELIGIBLE_REPLICA)
    assert in_sync(remote) == Committed(frozenset(ALL))


def test_an_answer_for_a_former_leadership_says_nothing(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    asked = remote.only()
    remote.cluster.set_state(isr=(1,))
    remote.commit(asked)
    assert in_sync(remote) == Committed(frozenset({A}))


def test_the_whole_request_is_repeated_with_growing_pauses(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    pauses = []
    for _ in range(6):
        asked = remote.only()
        remote.answer(asked, AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        assert isinstance(in_sync(remote), Expanding)
        began_ms = remote.world.monotonic_ms
        while not remote.world.links:
            remote.world.advance(10)
        pauses.append(remote.world.monotonic_ms - began_ms)
    assert pauses == [50, 100, 200, 400, 800, 1000]


# -- Which controller --------------------------------------------------------------------------


def test_a_new_controller_is_asked_at_once_and_the_old_one_is_not_heard(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    first = remote.only()
    remote.take_office(C)
    second = remote.only()
    assert second.link != first.link
    assert second.body == first.body
    remote.refuse(first, ErrorCode.INELIGIBLE_REPLICA)
    assert isinstance(in_sync(remote), Expanding)
    remote.commit(second)
    assert in_sync(remote) == Committed(frozenset(ALL))


def test_a_restarted_controller_is_asked_again(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    first = remote.only()
    remote.cluster.register(B)
    second = remote.only()
    assert second.body == first.body
    remote.commit(second)
    assert in_sync(remote) == Committed(frozenset(ALL))


def test_the_controller_decides_about_its_own_partitions_without_a_request(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    remote = Remote(cluster)
    cluster.create_topic()
    cluster.set_state(isr=(1, 2))
    cluster.fetch(B, 0)
    cluster.fetch(C, 0)
    assert not remote.asked()
    assert set(cluster.state().in_sync_replicas) == set(ALL)
    assert in_sync(remote) == Committed(frozenset(ALL))


def test_its_own_decision_waits_for_the_store_too(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    remote = Remote(cluster)
    cluster.create_topic()
    cluster.set_state(isr=(1, 2))
    cluster.fetch(B, 0)
    cluster.world.store_error = StoreUnavailable("away")
    cluster.fetch(C, 0)
    cluster.world.advance(3000)
    assert isinstance(in_sync(remote), Expanding)
    cluster.world.store_error = None
    cluster.world.advance(1000)
    assert in_sync(remote) == Committed(frozenset(ALL))


def silence(remote: Remote, milliseconds: int) -> list[Asked]:
    """The controller does not answer for so long; what it was asked."""
    seen = remote.asked()
    for _ in range(0, milliseconds, 100):
        remote.world.advance(100)
        seen += remote.asked()
    return seen


def test_a_leader_decides_itself_when_the_controller_cannot_be_reached(
    make_cluster: Callable[..., Cluster], caplog: pytest.LogCaptureFixture
) -> None:
    """It reaches the store, and so do all others: without that its wait would never end."""
    cluster = make_cluster("replica.lag.time.max.ms=4000")
    cluster.create_topic()
    remote = Remote(cluster)
    remote.take_office(B)
    cluster.set_state(isr=(1, 2))
    cluster.fetch(B, 0)
    cluster.fetch(C, 0)
    epoch = cluster.state().partition_epoch
    assert len(silence(remote, 1900)) == 1
    assert cluster.state().partition_epoch == epoch
    silence(remote, 300)
    assert set(cluster.state().in_sync_replicas) == set(ALL)
    assert in_sync(remote) == Committed(frozenset(ALL))
    assert "The controller (broker 2) cannot be reached: broker 1 decides" in caplog.text
    # The next one is for the controller again.
    cluster.produce()
    seen = silence(remote, 8000)
    assert seen[0].sets == [{1}]


def test_a_broker_that_stands_in_is_fenced_like_the_controller(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster("replica.lag.time.max.ms=4000")
    cluster.create_topic()
    remote = Remote(cluster)
    remote.take_office(B)
    cluster.set_state(isr=(1, 2))
    cluster.fetch(B, 0)
    cluster.fetch(C, 0)
    remote.asked()
    # Another term has begun, of which this broker does not know yet.
    changes = cluster.world.tree.multi(
        [SetData(ControllerEpochNode.path, ControllerEpochNode(99).encode())]
    ).changes
    assert changes is not None
    silence(remote, 2500)
    assert set(cluster.state().in_sync_replicas) == {1, 2}
    cluster.world.metadata_changed(changes)
    assert isinstance(in_sync(remote), Expanding)
    assert remote.only().sets == [set(ALL)]


# -- Several partitions ------------------------------------------------------------------------


def test_what_is_proposed_meanwhile_goes_with_the_next_request(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    for name in ("a", "b", "c"):
        cluster.create_topic(name)
    remote = Remote(cluster)
    remote.take_office(B)
    for name in ("a", "b", "c"):
        cluster.set_state(name, isr=(1, 2))
    cluster.fetch(C, 0, "a")
    first = remote.only()
    cluster.fetch(C, 0, "b")
    cluster.fetch(C, 0, "c")
    assert not remote.asked()
    remote.commit(first)
    second = remote.only()
    assert len(second.sets) == 2
    remote.commit(second)
    for name in ("a", "b", "c"):
        assert in_sync(remote, name) == Committed(frozenset(ALL))


def test_what_was_overtaken_is_not_proposed_any_more(remote: Remote) -> None:
    remote.cluster.fetch(C, 0)
    first = remote.only()
    remote.world.node.in_sync_changes.propose(remote.cluster.replica(), remote.world.now)
    remote.commit(first)
    remote.world.advance(1000)
    assert not remote.asked()


# -- The wire ----------------------------------------------------------------------------------


def test_both_messages_keep_their_meaning() -> None:
    one, other = uuid4(), uuid4()
    proposals = [
        InSyncProposal(one, 0, LeaderEpoch(3), 7, [(BrokerId(1), 11), (BrokerId(2), -1)]),
        InSyncProposal(one, 4, LeaderEpoch(0), 0, [], is_recovering=True),
        InSyncProposal(other, 0, LeaderEpoch(1), 2, [(BrokerId(3), 5)]),
    ]
    request = request_of(BrokerId(1), 11, proposals)
    assert (request.broker_id, request.broker_epoch) == (1, 11)
    assert proposals_of(request, 3) == proposals
    results = [
        PartitionAltered(one, 0, None, BrokerId(1), LeaderEpoch(3), (BrokerId(1), BrokerId(2)), 8),
        PartitionAltered(one, 4, Refusal(ErrorCode.INELIGIBLE_REPLICA, "")),
        PartitionAltered(other, 0, None, BrokerId(3), LeaderEpoch(1), (BrokerId(3),), 3, True),
    ]
    assert results_of(response_of(results)) == results


def test_version_2_knows_no_epochs_of_members() -> None:
    proposal = InSyncProposal(uuid4(), 0, LeaderEpoch(3), 7, [(BrokerId(1), 11)])
    request = request_of(BrokerId(1), 11, [proposal])
    request.topics[0].partitions[0].new_isr = [1, 2]
    (seen,) = proposals_of(request, 2)
    assert seen.members == [(1, -1), (2, -1)]


# -- Real controllers --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_own", [False, True], ids=["remote", "own"])
def test_a_follower_that_is_cut_off_leaves_and_comes_back(
    make_world: Callable[..., ClusterWorld], seed: int, is_own: bool
) -> None:
    world = make_world(seed=seed)
    controller = int(world.controller.broker_id)
    leader = controller if is_own else controller % 3 + 1
    follower = next(b for b in (1, 2, 3) if b not in (leader, controller))
    third = next(b for b in (1, 2, 3) if b not in (leader, follower))
    world.create_topic("t", (leader, follower, third))
    world.cut({leader}, {follower})
    world[leader].connect().ask(produce(batch(b"x"), "t", acks=1), 9)
    world.run_until(lambda: follower not in world.partition("t").in_sync_replicas)
    assert world.image.is_alive(BrokerId(follower))
    world.run_until(lambda: world.offsets(leader, "t") == (1, 1))
    world.heal()
    world.run_until(lambda: follower in world.partition("t").in_sync_replicas)
    assert world.partition("t").leader_epoch == 0


def test_a_proposal_survives_the_controller(make_world: Callable[..., ClusterWorld]) -> None:
    world = make_world()
    controller = int(world.controller.broker_id)
    leader, follower = (b for b in (1, 2, 3) if b != controller)
    world.create_topic("t", (leader, follower))
    # The controller hears nothing of the leader, and dies before it does.
    world.cut({leader}, {controller, follower})
    world[leader].connect().ask(produce(batch(b"x"), "t", acks=1), 9)
    replica = world.replica(leader, "t")
    world.run_until(
        lambda: replica.leader is not None and isinstance(replica.leader.in_sync, Shrinking)
    )
    world.kill(controller)
    world.run_until(lambda: world.partition("t").in_sync_replicas == (leader,))
    world.heal()
    world.start(controller)
    world.run_until(world.is_settled)


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_reaches_the_store_only_goes_on_alone(
    make_world: Callable[..., ClusterWorld], seed: int
) -> None:
    world = make_world(seed=seed)
    controller = int(world.controller.broker_id)
    leader = controller % 3 + 1
    others = {1, 2, 3} - {leader}
    world.create_topic("t", (leader, *others))
    world.cut({leader}, others)
    client = world[leader].connect()
    client.send(produce(batch(b"x"), "t", acks=-1, timeout_ms=60_000), 9)
    world[leader].schedule_turn()
    world.run_until(lambda: bool(client.answers))
    assert client.answers[0].responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert world.partition("t").in_sync_replicas == (leader,)
    world.heal()
    world.run_until(lambda: len(world.partition("t").in_sync_replicas) == 3)
