"""Elections and moves from the command line, on three brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.testing import Cluster
from tests.cli.conftest import Ended, run_here


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, racks=("a", "b", "c")) as running:
        yield running


def run(cluster: Cluster, *arguments: str) -> Ended:
    return run_here(arguments, cluster.bootstrap_servers)


def assigned(cluster: Cluster, topic: str, partition: int = 0) -> tuple[int, ...]:
    return cluster.status().partition(topic, partition).assigned


def test_a_topic_is_described_with_leaders_and_replicas(cluster: Cluster, name: str) -> None:
    made = run(cluster, "topics", "create", name, "--partitions", "2")
    assert made.out == f"Created topic '{name}' with 2 partitions of 3 replicas each.\n"
    (described,) = run(cluster, "topics", "describe", name, "--json").json
    assert described["replication_factor"] == 3
    for number, partition in enumerate(described["partitions"]):
        status = cluster.status().partition(name, number)
        assert partition["leader"] == status.leader
        assert partition["leader_epoch"] == status.leader_epoch
        assert tuple(partition["replicas"]) == status.assigned
    text = run(cluster, "topics", "describe", name).out
    assert "LEADER  EPOCH  REPLICAS  IN SYNC  OFFLINE" in text
    brokers = run(cluster, "cluster", "describe").out
    assert all(each.address in brokers for each in cluster.brokers)
    assert len(brokers.splitlines()) == 1 + 4 + 1 + 4


def test_partitions_are_moved(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, partitions=2, replication_factor=1)
    ended = run(cluster, "topics", "move", name, "--to", "1,2", "--wait")
    assert ended == (0, f"Moving {name}-0.\nMoving {name}-1.\nMoved 2 partitions.\n", "")
    assert assigned(cluster, name, 0) == (1, 2)
    assert assigned(cluster, name, 1) == (2, 1)
    assert run(cluster, "topics", "move", f"{name}:1", "--to", "3", "--wait").code == 0
    assert assigned(cluster, name, 1) == (3,)
    assert cluster.leader_of(name, 1) == 3
    assert run(cluster, "topics", "moves") == (0, "", "")


def test_a_move_that_cannot_end_is_shown_and_called_off(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, partitions=1, replication_factor=1)
    (here,) = assigned(cluster, name)
    target = here % 3 + 1
    cluster.partition({here}, {1, 2, 3} - {here}, metadata_with={1, 2, 3})
    assert run(cluster, "topics", "move", name, "--to", str(target)).code == 0
    moving = run(cluster, "topics", "moves", "--json").json
    assert moving == [
        {
            "topic": name,
            "partition": 0,
            "replicas": [target, here],
            "adding": [target],
            "removing": [here],
        }
    ]
    assert f"{name}-0" in run(cluster, "topics", "moves").out
    ended = run(cluster, "topics", "move", name, "--cancel")
    assert ended == (0, f"Called the move of {name}-0 off.\n", "")
    cluster.heal()
    assert run(cluster, "topics", "moves", "--json").json == []
    assert assigned(cluster, name) == (here,)
    again = run(cluster, "topics", "move", name, "--cancel")
    assert again.code == 1
    assert again.err.startswith(f"The move of {name}-0 was not called off: ")


def test_the_preferred_leader_is_elected(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, partitions=1)
    preferred = assigned(cluster, name)[0]
    needless = run(cluster, "topics", "elect", name)
    assert needless == (0, f"{name}-0 needs no election.\n", "")
    cluster.restart(preferred)
    cluster.wait_until_in_sync(name)
    assert cluster.leader_of(name) != preferred
    assert run(cluster, "topics", "elect", name).out == f"Elected the leader of {name}-0.\n"
    assert cluster.leader_of(name) == preferred
    run(cluster, "topics", "elect", "--all")
    assert run(cluster, "topics", "elect", "--all").out == "No partition needs an election.\n"


def test_mistakes(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name)
    assert run(cluster, "topics", "elect").code == 2
    assert run(cluster, "topics", "elect", name, "--all").code == 2
    assert run(cluster, "topics", "move", name).code == 2
    assert run(cluster, "topics", "move", name, "--to", "1", "--cancel").code == 2
    assert "not '1,x'" in run(cluster, "topics", "move", name, "--to", "1,x").err
    unknown = run(cluster, "topics", "move", name, "--to", "1,9")
    assert unknown.code == 1
    assert unknown.err.startswith(f"{name}-0 is not moved: ")
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run(cluster, "topics", "elect", f"{name}:7").err
