"""What clients are promised while too few replicas are there: `min.insync.replicas`, who may lead.

Three brokers with sockets and files; two of them die.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from strandline.errors import ErrorCode
from strandline.testing import Cluster
from tests.broker.harness import Wire
from tests.node.messages import batch, fetch, produce, produced, values

PATIENCE_S = 120.0
TOPIC = "orders"
UNCLEAN: Mapping[str, Any] = {"unclean_leader_election_enable": "true"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Brokers whose leaders stay where they are while they can."""
    with Cluster(brokers=3, settings={"auto.leader.rebalance.enable": False}) as running:
        yield running


@pytest.fixture
def leader(cluster: Cluster) -> int:
    """The leader of the topic, which wants two of its three replicas in sync."""
    controller = cluster.wait_for_controller()
    others = sorted({1, 2, 3} - {controller})
    # The controller is a follower: its death delays what follows from the death of others.
    cluster.create_topic(TOPIC, assignment={0: [*others, controller]}, min_insync_replicas=2)
    return others[0]


def port_of(cluster: Cluster, broker_id: int) -> int:
    return int(cluster.brokers[broker_id - 1].address.rpartition(":")[2])


def write(wire: Wire, value: bytes, *, acks: int, topic: str = TOPIC) -> tuple[ErrorCode, int]:
    """Produce one record; what is answered, and its offset."""
    answer = produced(wire.ask(produce(batch(value), topic, acks=acks, timeout_ms=60_000), 9))
    return ErrorCode(answer.error_code), answer.base_offset


def ends(cluster: Cluster, topic: str = TOPIC) -> set[tuple[int, int]]:
    """High watermarks and log ends of all replicas that run."""
    return {
        (each.high_watermark, each.log_end) for each in cluster.status().partition(topic).replicas
    }


def alone(cluster: Cluster, leader: int) -> None:
    cluster.wait_until(
        lambda status: status.partition(TOPIC).in_sync == (leader,), "the leader is alone"
    )


def equal(cluster: Cluster, topic: str, end: int) -> None:
    """Wait until all replicas have everything, and know it."""
    cluster.wait_until_in_sync(topic)
    cluster.wait_until(
        lambda status: (
            {(each.high_watermark, each.log_end) for each in status.partition(topic).replicas}
            == {(end, end)}
        ),
        f"all replicas of {topic} are at {end}",
    )


def test_too_few_in_sync_replicas_refuse_acks_all_and_nothing_else(
    cluster: Cluster, leader: int
) -> None:
    followers = {1, 2, 3} - {leader}
    with Wire(port_of(cluster, leader)) as wire:
        assert write(wire, b"m0", acks=-1) == (ErrorCode.NONE, 0)
        cluster.kill(*followers)
        alone(cluster, leader)
        code, _ = write(wire, b"never", acks=-1)
        assert code is ErrorCode.NOT_ENOUGH_REPLICAS
        assert ends(cluster) == {(1, 1)}, "what was refused was appended"
        assert write(wire, b"m1", acks=1) == (ErrorCode.NONE, 1)
        # It is not committed as long as the leader is alone (strict min ISR), so no consumer reads
        # it.
        assert ends(cluster) == {(1, 2)}
        cluster.start(*followers)
        equal(cluster, TOPIC, 2)
        assert write(wire, b"m2", acks=-1) == (ErrorCode.NONE, 2)
        # m2 is answered when it is committed, so it can be read now, and all before it.
        assert values(wire.ask(fetch((TOPIC, 0, 0)), 12)) == [b"m0", b"m1", b"m2"]
    assert {*cluster.status().partition(TOPIC).in_sync} == {1, 2, 3}


@pytest.mark.parametrize("is_patient", [True, False])
def test_a_record_that_loses_its_replicas_on_the_way_is_neither_refused_nor_committed(
    cluster: Cluster, leader: int, is_patient: bool
) -> None:
    timeout_ms = 60_000 if is_patient else 100
    with Wire(port_of(cluster, leader)) as wire:
        cluster.pause(*{1, 2, 3} - {leader})
        wire.send((produce(batch(b"m0"), TOPIC, timeout_ms=timeout_ms), 9))
        alone(cluster, leader)
        status = cluster.status().partition(TOPIC).replica(leader)
        assert status is not None
        assert (status.high_watermark, status.log_end) == (0, 1), "one replica has committed it"
        if not is_patient:
            # Strict min ISR: it may be committed later or not.
            assert produced(wire.receive()).error_code == ErrorCode.REQUEST_TIMED_OUT
        cluster.resume()
        if is_patient:
            assert produced(wire.receive()).error_code == ErrorCode.NONE
        equal(cluster, TOPIC, 1)


def test_a_producer_waits_until_enough_replicas_are_there(cluster: Cluster, leader: int) -> None:
    outcomes: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "retry.backoff.ms": 50,
            "reconnect.backoff.max.ms": 300,
            "log_level": 0,
        }
    )
    followers = {1, 2, 3} - {leader}
    cluster.kill(*followers)
    alone(cluster, leader)
    for number in range(10):
        producer.produce(
            TOPIC,
            str(number).encode(),
            partition=0,
            on_delivery=lambda error, message: outcomes.append(error or message.offset()),
        )
    producer.poll(0.3)
    assert not outcomes
    cluster.start(*followers)
    assert producer.flush(PATIENCE_S) == 0
    assert outcomes == list(range(10))
    equal(cluster, TOPIC, 10)


def allow_unclean_elections(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    entry = ConfigEntry(
        "unclean.leader.election.enable",
        "true",
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(PATIENCE_S)


def wait_for_leaders(cluster: Cluster, topics: Sequence[str], leader: int | None) -> None:
    cluster.wait_until(
        lambda status: all(status.partition(each).leader == leader for each in topics),
        f"{topics} are led by {leader}",
    )


def test_a_replica_that_was_not_in_sync_leads_only_where_it_is_allowed_to(
    cluster: Cluster,
) -> None:
    controller = cluster.wait_for_controller()
    first, second = sorted({1, 2, 3} - {controller})
    topics = ("waits", "allowed", "allowed-later")
    cluster.create_topic("allowed", assignment={0: [first, second]}, **UNCLEAN)
    for each in ("waits", "allowed-later"):
        cluster.create_topic(each, assignment={0: [first, second]})
    with Wire(port_of(cluster, first)) as wire:
        for each in topics:
            assert write(wire, b"both", acks=-1, topic=each) == (ErrorCode.NONE, 0)
        cluster.kill(second)
        cluster.wait_until(
            lambda status: all(status.partition(each).in_sync == (first,) for each in topics),
            "the first is alone",
        )
        for each in topics:
            assert write(wire, b"first", acks=-1, topic=each) == (ErrorCode.NONE, 1)
    cluster.kill(first)
    wait_for_leaders(cluster, topics, None)
    cluster.start(second)
    wait_for_leaders(cluster, ["allowed"], second)
    wait_for_leaders(cluster, ["waits", "allowed-later"], None)
    allow_unclean_elections(cluster, "allowed-later")
    wait_for_leaders(cluster, ["allowed-later"], second)
    wait_for_leaders(cluster, ["waits"], None)
    cluster.start(first)
    wait_for_leaders(cluster, ["waits"], first)
    equal(cluster, "waits", 2)
    for each in ("allowed", "allowed-later"):
        equal(cluster, each, 1)
        assert cluster.leader_of(each) == second
