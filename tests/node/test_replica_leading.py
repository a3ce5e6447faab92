"""A leader and its followers: high watermark, in-sync set, acks=all (specification 1.2 to 2.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from strandline.cluster.controller import announce_shutdown, report_offline
from strandline.errors import ErrorCode
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.replication.in_sync import Committed, Expanding, Shrinking
from strandline.replication.policies import AnswerWatermark, Policies
from tests.node.followers import ALL, FETCH_VERSION, A, B, C, Cluster
from tests.node.messages import batch, fetch, fetched, produce, produced, values
from tests.node.world import Client

MakeCluster: TypeAlias = Callable[..., Cluster]


def in_sync(cluster: Cluster) -> Any:
    leader = cluster.replica().leader
    assert leader is not None
    return leader.in_sync


# -- The high watermark ----------------------------------------------------------------------


def test_x02_the_walk_of_three_replicas(cluster: Cluster) -> None:
    """Log end/high watermark of the leader, its remote state, and what each answer says."""
    cluster.produce(b"m0")
    assert (cluster.offsets(), cluster.remote()) == ((1, 0), {2: -1, 3: -1})
    answer = cluster.fetch(B, 0)
    assert (answer.high_watermark, len(answer.records) > 0) == (0, True)
    assert (cluster.offsets(), cluster.remote()) == ((1, 0), {2: 0, 3: -1})
    cluster.fetch(C, 0)
    assert cluster.fetch(B, 1).high_watermark == 0
    assert (cluster.offsets(), cluster.remote()) == ((1, 0), {2: 1, 3: 0})
    assert cluster.fetch(C, 1).high_watermark == 1
    assert (cluster.offsets(), cluster.remote()) == ((1, 1), {2: 1, 3: 1})
    cluster.produce(b"m1")
    assert cluster.offsets() == (2, 1)
    # An answer that carries records carries the high watermark, too.
    answer = cluster.fetch(B, 1)
    assert (answer.high_watermark, len(answer.records) > 0) == (1, True)


@pytest.mark.parametrize(("policy", "told"), [(AnswerWatermark.POST, 2), (AnswerWatermark.PRE, 0)])
def test_d01_which_high_watermark_an_answer_has(
    policy: AnswerWatermark, told: int, make_cluster: MakeCluster
) -> None:
    cluster = make_cluster()
    cluster.create_topic(replicas=(1, 2))
    cluster.world.node.replicas.host.policies = Policies(answer_watermark=policy)
    cluster.produce(b"m0", b"m1")
    assert cluster.fetch(B, 2).high_watermark == told
    assert cluster.offsets() == (2, 2)


def test_the_state_is_moved_once_per_request(cluster: Cluster) -> None:
    """A parked fetch that is read again acknowledges nothing anew."""
    client = cluster.client_of(B)
    client.send(cluster.fetch_request(B, 0, max_wait_ms=500), FETCH_VERSION)
    leader = cluster.replica().leader
    assert leader is not None
    asked_ms = leader.progress[B].last_fetch_ms
    cluster.world.advance(200)
    cluster.produce(b"m0")
    assert len(client.answers) == 1
    assert leader.progress[B].last_fetch_ms == asked_ms
    assert leader.progress[B].last_fetch_leader_end == 0


def test_a_diverging_fetch_changes_nothing(cluster: Cluster) -> None:
    cluster.produce(b"m0")
    cluster.fetch(B, 1)
    cluster.set_state()
    cluster.produce(b"m1")
    before = cluster.remote()
    answer = cluster.fetch(B, 2, last_fetched_epoch=0)
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 1)
    assert not answer.records
    assert cluster.remote() == before


@pytest.mark.parametrize("offset", [2, 500])
def test_a_fetch_out_of_range_changes_nothing(cluster: Cluster, offset: int) -> None:
    cluster.produce(b"m0")
    answer = cluster.fetch(B, offset)
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.remote() == {2: -1, 3: -1}


# -- Who may fetch ---------------------------------------------------------------------------


def test_a_fetch_of_another_leader_epoch(cluster: Cluster) -> None:
    cluster.set_state()
    assert cluster.fetch(B, 0, leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert cluster.fetch(B, 0, leader_epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert cluster.fetch(B, 0, leader_epoch=1).error_code == 0
    assert cluster.fetch(B, 0, leader_epoch=-1).error_code == 0


def test_a_fetch_by_a_broker_that_has_no_replica(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create_topic(replicas=(1, 2))
    assert cluster.fetch(C, 0).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    answer = cluster.fetch(C, 0, leader_epoch=-1)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_r34_a_fetch_from_before_a_restart_is_refused(cluster: Cluster) -> None:
    """D-04, KIP-903: what a former life of the follower had says nothing about this one."""
    cluster.produce(b"m0")
    former = cluster.epoch_of(B)
    cluster.register(B)
    answer = cluster.fetch(B, 1, broker_epoch=former)
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.remote() == {2: -1, 3: -1}
    assert cluster.fetch(B, 0).error_code == 0


def test_only_a_leader_answers_followers(cluster: Cluster) -> None:
    cluster.set_state(leader=2)
    assert cluster.fetch(C, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- acks=all --------------------------------------------------------------------------------


def waiting_produce(cluster: Cluster, *, timeout_ms: int = 1000, short: bool = False) -> Client:
    """A client whose produce with acks=all waits; by the fast path if asked for."""
    client = cluster.world.connect()
    message = produce(batch(b"v"), acks=-1, timeout_ms=timeout_ms)
    if short:
        client.ask(produce(batch(b"v"), acks=-1, timeout_ms=0), 9)
        assert produced(client.answers.pop()).error_code == ErrorCode.REQUEST_TIMED_OUT
    ways = client.connection.fast_path
    ends = cluster.offsets()[0]
    client.send(message, 9)
    cluster.world.turn()
    assert client.answers == []
    assert cluster.offsets()[0] == ends + 1
    assert (ways is not None) is short
    return client


WAYS = pytest.mark.parametrize("short", [False, True], ids=["general", "short"])


@WAYS
def test_a_produce_waits_for_all_in_sync_replicas(cluster: Cluster, short: bool) -> None:
    client = waiting_produce(cluster, short=short)
    end = cluster.offsets()[0]
    cluster.fetch(B, end)
    assert client.answers == []
    cluster.fetch(C, end)
    answer = produced(client.answers[0])
    assert (answer.error_code, answer.base_offset, answer.log_start_offset) == (0, end - 1, 0)
    cluster.world.advance(5_000)
    assert len(client.answers) == 1


@WAYS
def test_answers_keep_the_order_of_their_requests(cluster: Cluster, short: bool) -> None:
    client = waiting_produce(cluster, short=short)
    client.send(produce(batch(b"w"), acks=1), 9)
    client.send(produce(batch(b"x"), acks=-1), 9)
    cluster.world.turn()
    assert client.answers == []
    end = cluster.offsets()[0]
    for follower in (B, C):
        cluster.fetch(follower, end - 1)
    offsets = [produced(answer).base_offset for answer in client.answers]
    assert offsets == [end - 3, end - 2]
    for follower in (B, C):
        cluster.fetch(follower, end)
    assert produced(client.answers[2]).base_offset == end - 1


@WAYS
def test_a_produce_that_is_not_replicated_in_time(cluster: Cluster, short: bool) -> None:
    client = waiting_produce(cluster, timeout_ms=1000, short=short)
    cluster.world.advance(999)
    assert client.answers == []
    cluster.world.advance(1)
    assert produced(client.answers[0]).error_code == ErrorCode.REQUEST_TIMED_OUT
    # Its outcome was unknown: here it is committed after all, and there is no second answer.
    end = cluster.offsets()[0]
    for follower in (B, C):
        cluster.fetch(follower, end)
    assert cluster.offsets() == (end, end)
    assert len(client.answers) == 1


@WAYS
def test_a_commit_in_the_turn_of_the_deadline_is_in_time(cluster: Cluster, short: bool) -> None:
    client = waiting_produce(cluster, timeout_ms=100, short=short)
    end = cluster.offsets()[0]
    cluster.world.monotonic_ms += 100
    for follower in (B, C):
        cluster.client_of(follower).send(cluster.fetch_request(follower, end), FETCH_VERSION)
    cluster.world.turn()
    assert produced(client.answers[0]).error_code == 0


@WAYS
@pytest.mark.parametrize("acks", [-1, 1])
def test_too_few_in_sync_replicas_refuse_before_anything_is_appended(
    short: bool, acks: int, make_cluster: MakeCluster
) -> None:
    """I-41: this refusal is definite."""
    cluster = make_cluster()
    cluster.create_topic(min_insync_replicas="2")
    client = cluster.world.connect()
    if short:
        client.ask(produce(batch(b"v"), acks=acks, timeout_ms=0), 9)
    ends = cluster.offsets()[0]
    cluster.set_state(isr=(1,), new_epoch=False)
    client.send(produce(batch(b"v"), acks=acks, timeout_ms=0), 9)
    cluster.world.turn()
    answer = produced(client.answers[-1])
    if acks == 1:
        assert answer.error_code == 0
        assert cluster.offsets()[0] == ends + 1
    else:
        assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert answer.base_offset == -1
        assert cluster.offsets()[0] == ends


def test_a_topic_with_fewer_replicas_than_its_minimum_needs_all(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create_topic(replicas=(1,), min_insync_replicas="3")
    assert cluster.produce(b"v", acks=-1).error_code == 0


@WAYS
def test_replicas_that_leave_after_the_append(short: bool, make_cluster: MakeCluster) -> None:
    """The high watermark has passed, but before that is told the set has become too small."""
    cluster = make_cluster()
    cluster.create_topic(min_insync_replicas="2")
    client = waiting_produce(cluster, short=short)
    end = cluster.offsets()[0]
    for follower in (B, C):
        request = cluster.fetch_request(follower, end)
        cluster.client_of(follower).send(request, FETCH_VERSION)
    cluster.set_state(isr=(1,), new_epoch=False)
    cluster.world.turn()
    answer = produced(client.answers[0])
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert cluster.offsets() == (end, end)


@WAYS
def test_leadership_is_lost_while_a_produce_waits(cluster: Cluster, short: bool) -> None:
    client = waiting_produce(cluster, short=short)
    cluster.set_state(leader=2)
    cluster.world.turn()
    assert produced(client.answers[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    client.send(produce(batch(b"v"), acks=-1), 9)
    cluster.world.turn()
    assert produced(client.answers[1]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.world.advance(5_000)
    assert len(client.answers) == 2


@WAYS
def test_leadership_that_comes_back_in_the_same_turn(cluster: Cluster, short: bool) -> None:
    """What was appended may have been cut meanwhile: only its own leadership can commit it."""
    client = waiting_produce(cluster, short=short)
    cluster.set_state(leader=2)
    cluster.set_state(leader=1)
    cluster.world.turn()
    assert produced(client.answers[0]).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.replica().is_leading


@WAYS
def test_a_leader_elected_again_still_commits(cluster: Cluster, short: bool) -> None:
    client = waiting_produce(cluster, short=short)
    cluster.set_state(leader=1)
    cluster.world.turn()
    assert client.answers == []
    end = cluster.offsets()[0]
    for follower in (B, C):
        cluster.fetch(follower, end)
    assert produced(client.answers[0]).error_code == 0


@WAYS
def test_the_topic_is_deleted_while_a_produce_waits(cluster: Cluster, short: bool) -> None:
    client = waiting_produce(cluster, short=short)
    cluster.world.connect().ask(DeleteTopicsRequest(topic_names=["orders"], timeout_ms=1000), 5)
    assert produced(client.answers[0]).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_answer_for_many_partitions(cluster: Cluster) -> None:
    """It comes when the last partition is decided; each has its own outcome."""
    cluster.create_topic("alone", replicas=(1,))
    cluster.create_topic("pair", replicas=(1, 2))
    client = cluster.world.connect()
    message = produce(batch(b"a"), "alone", acks=-1)
    for topic in ("pair", "orders", "missing"):
        message.topic_data += produce(batch(b"b"), topic, acks=-1).topic_data
    client.send(message, 9)
    cluster.world.turn()
    assert client.answers == []
    cluster.fetch(B, 1, "pair")
    assert client.answers == []
    cluster.set_state("orders", leader=3)
    cluster.world.turn()
    codes = {
        topic.name: topic.partition_responses[0].error_code for topic in client.answers[0].responses
    }
    assert codes == {
        "alone": 0,
        "pair": 0,
        "orders": ErrorCode.NOT_LEADER_OR_FOLLOWER,
        "missing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_client_that_goes_away_leaves_nothing_behind(cluster: Cluster) -> None:
    client = waiting_produce(cluster)
    client.close()
    for follower in (B, C):
        cluster.fetch(follower, 1)
    assert client.answers == []
    assert cluster.offsets() == (1, 1)


def test_a_duplicate_waits_for_the_commit_of_the_first(cluster: Cluster) -> None:
    first, second = cluster.world.connect(), cluster.world.connect()
    message = produce(batch(b"v", producer_id=7, epoch=0, sequence=0), acks=-1)
    for client in (first, second):
        client.send(message, 9)
    cluster.world.turn()
    assert cluster.offsets() == (1, 0)
    assert second.answers == []
    for follower in (B, C):
        cluster.fetch(follower, 1)
    assert [produced(client.answers[0]).base_offset for client in (first, second)] == [0, 0]


# -- Who is woken by what --------------------------------------------------------------------


def test_consumers_wait_for_the_commit_and_followers_for_the_append(cluster: Cluster) -> None:
    consumer, follower = cluster.world.connect(), cluster.client_of(B)
    consumer.send(fetch(("orders", 0, 0), max_wait_ms=500), 11)
    follower.send(cluster.fetch_request(B, 0, max_wait_ms=500), FETCH_VERSION)
    cluster.produce(b"m0")
    assert (len(consumer.answers), len(follower.answers)) == (0, 1)
    follower.send(cluster.fetch_request(B, 1, max_wait_ms=500), FETCH_VERSION)
    cluster.fetch(C, 1)
    # The high watermark alone is no reason to answer a follower (KAFKA-9952).
    assert (len(consumer.answers), len(follower.answers)) == (1, 1)
    assert values(consumer.answers[0]) == [b"m0"]
    cluster.world.advance(500)
    assert fetched(follower.answers[1])[cluster.replica().topic_id, 0].high_watermark == 1


def test_lost_leadership_answers_every_parked_fetch(cluster: Cluster) -> None:
    consumer, follower = cluster.world.connect(), cluster.client_of(B)
    consumer.send(fetch(("orders", 0, 0), max_wait_ms=500, leader_epoch=0), 11)
    follower.send(cluster.fetch_request(B, 0, max_wait_ms=500), FETCH_VERSION)
    cluster.set_state(leader=2)
    cluster.world.turn()
    codes = [
        next(iter(fetched(client.answers[0]).values())).error_code
        for client in (consumer, follower)
    ]
    assert codes == [ErrorCode.FENCED_LEADER_EPOCH] * 2


def test_a_follower_does_not_wait_for_its_own_earlier_fetch(cluster: Cluster) -> None:
    cluster.create_topic("more")
    client = cluster.client_of(B)
    client.send(cluster.fetch_request(B, 0, max_wait_ms=500, session=(0, 0)), FETCH_VERSION)
    cluster.world.turn()
    assert client.answers == []
    more = cluster.fetch_request(B, 0, "more", max_wait_ms=500, session=(0, 0))
    client.send(more, FETCH_VERSION)
    cluster.world.turn()
    assert len(client.answers) == 1
    session_id = client.answers[0].session_id
    assert session_id > 0
    cluster.produce(b"m", topic="more")
    assert values(client.answers[1]) == [b"m"]


# -- The in-sync set -------------------------------------------------------------------------


def test_a_follower_that_falls_behind_is_to_leave(make_cluster: MakeCluster) -> None:
    cluster = make_cluster("replica.lag.time.max.ms=1000")
    cluster.create_topic()
    for follower in (B, C):
        cluster.fetch(follower, 0)
    cluster.produce(b"m0")
    for _ in range(5):
        cluster.world.advance(500)
        cluster.fetch(B, 1)
    assert cluster.recorder.sets == [{1, 2}]
    assert in_sync(cluster) == Shrinking(frozenset(ALL), frozenset({C}))
    # Until the controller has committed that, the former set holds the high watermark.
    assert cluster.offsets() == (1, 0)
    cluster.set_state(isr=(1, 2), new_epoch=False)
    assert cluster.offsets() == (1, 1)
    assert in_sync(cluster) == Committed(frozenset({A, B}))


def test_a_follower_at_the_end_never_falls_behind(make_cluster: MakeCluster) -> None:
    """KAFKA-7152: with nothing to fetch, an old fetch is as good as a new one."""
    cluster = make_cluster("replica.lag.time.max.ms=1000")
    cluster.create_topic()
    for follower in (B, C):
        cluster.fetch(follower, 0)
    cluster.world.advance(60_000)
    assert cluster.recorder.sets == []


def test_a_follower_that_caught_up_is_to_join(cluster: Cluster) -> None:
    cluster.set_state(isr=(1, 2))
    cluster.produce(b"m0")
    cluster.fetch(B, 1)
    assert cluster.offsets() == (1, 1)
    cluster.fetch(C, 0)
    assert cluster.recorder.sets == []
    cluster.fetch(C, 1)
    assert cluster.recorder.sets == [{1, 2, 3}]
    assert in_sync(cluster) == Expanding(frozenset({A, B}), C, cluster.epoch_of(C))
    cluster.fetch(C, 1)
    assert len(cluster.recorder.sets) == 1


def test_x07_no_one_joins_before_the_start_of_the_epoch(make_cluster: MakeCluster) -> None:
    """KAFKA-7128: the high watermark of a new leader may lag behind what is committed."""
    cluster = make_cluster()
    cluster.create_topic()
    for _ in range(10):
        cluster.produce()
    for follower in (B, C):
        cluster.fetch(follower, 5)
    cluster.set_state(isr=(1, 2))
    assert cluster.offsets() == (10, 5)
    cluster.fetch(C, 5)
    assert cluster.recorder.sets == []
    cluster.fetch(C, 9)
    assert cluster.recorder.sets == []
    cluster.fetch(C, 10)
    assert cluster.recorder.sets == [{1, 2, 3}]


def test_x08_a_proposed_member_is_waited_for(make_cluster: MakeCluster) -> None:
    """KIP-497: the controller may have committed the new set although the leader has no answer
    yet."""
    cluster = make_cluster()
    cluster.create_topic()
    cluster.set_state(isr=(1, 2))
    cluster.fetch(C, 0)
    assert in_sync(cluster) == Expanding(frozenset({A, B}), C, cluster.epoch_of(C))
    for _ in range(10):
        cluster.produce()
    cluster.fetch(B, 10)
    assert cluster.offsets() == (10, 0)
    cluster.fetch(C, 10)
    assert cluster.offsets() == (10, 10)


@pytest.mark.parametrize(
    ("code", "is_definite"),
    [
        (ErrorCode.INELIGIBLE_REPLICA, True),
        (ErrorCode.OPERATION_NOT_ATTEMPTED, True),
        (ErrorCode.INVALID_UPDATE_VERSION, False),
        (ErrorCode.FENCED_LEADER_EPOCH, False),
    ],
)
def test_a_refused_change_is_undone_only_if_it_certainly_failed(
    cluster: Cluster, code: ErrorCode, is_definite: bool
) -> None:
    cluster.set_state(isr=(1, 2))
    cluster.fetch(C, 0)
    cluster.produce(b"m0")
    cluster.fetch(B, 1)
    cluster.world.advance(31_000)  # so that C is not waited for as one about to join
    assert cluster.offsets() == (1, 0)
    cluster.replica().in_sync_refused(code, cluster.world.now)
    assert isinstance(in_sync(cluster), Committed if is_definite else Expanding)
    assert cluster.offsets() == ((1, 1) if is_definite else (1, 0))


def test_a_refused_set_is_proposed_again_if_another_member_stops_too(cluster: Cluster) -> None:
    """And not for ever: without other metadata the next refusal is the last."""
    for broker in (B, C):
        cluster.write(announce_shutdown(cluster.world.node.metadata.image, broker))
    assert cluster.recorder.sets == [{1, 3}]
    for _ in range(2):
        cluster.replica().in_sync_refused(ErrorCode.INELIGIBLE_REPLICA, cluster.world.now)
    assert cluster.recorder.sets == [{1, 3}, {1}]
    assert in_sync(cluster) == Committed(frozenset(ALL))


def nearly_in_sync(make_cluster: MakeCluster) -> Cluster:
    """Broker 3 is no member, but caught up a moment ago: it is waited for, so that it can join.

    It could not yet, as the leaving of broker 2 was under way when it fetched.
    """
    cluster = make_cluster("replica.lag.time.max.ms=1000")
    cluster.create_topic()
    cluster.set_state(isr=(1, 2))
    cluster.produce(b"m0")
    cluster.world.advance(2_000)
    assert cluster.recorder.sets == [{1}]
    cluster.fetch(C, 1)
    cluster.produce(b"m1")
    cluster.set_state(isr=(1,), new_epoch=False)
    assert cluster.offsets() == (2, 1)
    return cluster


def test_d03_a_replica_that_stops_counts_no_longer(make_cluster: MakeCluster) -> None:
    """It holds the high watermark back for a while, not until the next request."""
    cluster = nearly_in_sync(make_cluster)
    cluster.world.advance(2_000)
    assert cluster.offsets() == (2, 2)


def test_r35_a_replica_that_shuts_down_does_not_hold_the_high_watermark(
    make_cluster: MakeCluster,
) -> None:
    """KAFKA-15021: waiting for one that may not join would be waiting in vain."""
    cluster = nearly_in_sync(make_cluster)
    cluster.write(announce_shutdown(cluster.world.node.metadata.image, C))
    assert cluster.offsets() == (2, 2)


def test_a_replica_that_died_does_not_hold_the_high_watermark(make_cluster: MakeCluster) -> None:
    cluster = nearly_in_sync(make_cluster)
    cluster.leave(C)
    assert cluster.offsets() == (2, 2)


def test_a_replica_on_a_failed_disk_neither_holds_the_high_watermark_nor_joins(
    make_cluster: MakeCluster,
) -> None:
    """KIP-112: its broker lives, but the partition is not there any more."""
    cluster = nearly_in_sync(make_cluster)
    failed = frozenset({cluster.replica().topic_partition})
    cluster.write(report_offline(cluster.world.node.metadata.image, C, failed))
    assert cluster.offsets() == (2, 2)
    cluster.fetch(C, 2)
    assert cluster.recorder.sets == [{1}]
    cluster.write(report_offline(cluster.world.node.metadata.image, C, frozenset()))
    cluster.fetch(C, 2)
    assert cluster.recorder.sets == [{1}, {1, 3}]


def test_r34_a_replica_that_restarted_may_join_only_as_itself(cluster: Cluster) -> None:
    """KIP-903: what its former life had is nothing that it has now."""
    cluster.set_state(isr=(1, 2))
    former = cluster.epoch_of(C)
    cluster.register(C)
    assert cluster.fetch(C, 0, broker_epoch=former).error_code
    assert cluster.recorder.sets == []
    cluster.fetch(C, 0)
    assert cluster.recorder.sets == [{1, 2, 3}]


def test_r34_a_fetch_ahead_of_our_own_knowledge_is_served_but_joins_nothing(
    cluster: Cluster,
) -> None:
    """The follower may know of its new registration before this node does."""
    cluster.set_state(isr=(1, 2))
    assert cluster.fetch(C, 0, broker_epoch=cluster.epoch_of(C) + 1000).error_code == 0
    assert cluster.recorder.sets == []


def test_r34_a_process_that_has_not_heard_of_its_registration_joins_nothing(
    cluster: Cluster,
) -> None:
    """By the time at which the proposal is decided it may be another process, with less."""
    cluster.set_state(isr=(1, 2))
    assert cluster.fetch(C, 0, broker_epoch=-1).error_code == 0
    assert cluster.recorder.sets == []
    cluster.fetch(C, 0)
    assert cluster.recorder.sets == [{1, 2, 3}]


def test_strict_minimum_holds_the_high_watermark(make_cluster: MakeCluster) -> None:
    """KAFKA-15583: below the minimum nothing is committed, whichever replicas have it."""
    cluster = make_cluster()
    cluster.create_topic(min_insync_replicas="2")
    cluster.set_state(isr=(1,))
    cluster.produce(b"m0")
    cluster.fetch(B, 1)
    assert cluster.offsets() == (1, 0)
    cluster.set_state(isr=(1, 2), new_epoch=False)
    assert cluster.offsets() == (1, 1)


def test_a_lower_minimum_counts_at_once(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.create_topic(min_insync_replicas="2")
    cluster.set_state(isr=(1,))
    cluster.produce(b"m0")
    assert cluster.offsets() == (1, 0)
    replica = cluster.replica()
    config = cluster.world.node.settings.broker.topic_defaults
    cluster.world.node.replicas.reconfigure(replica.topic_partition, config, cluster.world.now)
    assert cluster.offsets() == (1, 1)


def test_a_replica_that_is_taken_off_is_not_waited_for(cluster: Cluster) -> None:
    cluster.set_state(isr=(1,))
    cluster.produce(b"m0")
    cluster.reassign((1,))
    assert cluster.remote() == {}
    cluster.produce(b"m1")
    assert cluster.offsets() == (2, 2)
