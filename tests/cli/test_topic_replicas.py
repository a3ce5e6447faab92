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


@pytest.fixture(autouse=True)
def healed(cluster: Cluster) -> Iterator[None]:
    """A test that fails half-way takes no other one with it."""
    yield
    cluster.heal()


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


def test_a_broker_that_is_down_is_shown_and_can_be_unregistered() -> None:
    with Cluster(brokers=2) as cluster:
        refused = run(cluster, "cluster", "unregister", "2")
        assert refused.code == 1
        assert "Broker 2 is running: stop it before." in refused.err
        cluster.stop(2)
        found = run(cluster, "cluster", "describe", "--json").json
        assert [each["id"] for each in found["brokers"]] == [1]
        assert [each["id"] for each in found["down"]] == [2]
        (line,) = [
            line
            for line in run(cluster, "cluster", "describe").out.splitlines()
            if line.strip().startswith("2")
        ]
        assert line.rstrip().endswith("down")
        done = run(cluster, "cluster", "unregister", "2")
        assert done.out == "Broker 2 is not a member of the cluster any more.\n"
        assert run(cluster, "cluster", "describe", "--json").json["down"] == []
        assert "There is no broker 2." in run(cluster, "cluster", "unregister", "2").err


def test_levels_of_features_are_shown_and_changed(cluster: Cluster) -> None:
    def level() -> int:
        found = run(cluster, "cluster", "features", "--json").json
        levels: dict[str, int] = {each["name"]: each["level"] for each in found}
        return levels["transaction.version"]

    (line,) = [
        line
        for line in run(cluster, "cluster", "features").out.splitlines()
        if "transaction.version" in line
    ]
    assert line.split()[1:] == ["2", "0", "2"]
    tried = run(cluster, "cluster", "features", "--set", "transaction.version=1", "--dry-run")
    assert tried == (0, "Would set 1 level.\n", "")
    assert level() == 2
    done = run(cluster, "cluster", "features", "--set", "transaction.version=1")
    assert done == (0, "Set 1 level.\n", "")
    while level() != 1:  # the broker that is asked may hear of it later
        pass
    unknown = run(cluster, "cluster", "features", "--set", "metadata.version=7")
    assert unknown.code == 1
    assert "does not support this feature" in unknown.err
    assert run(cluster, "cluster", "features", "--set", "transaction.version=x").code == 2
    assert run(cluster, "cluster", "features", "--dry-run").code == 2
    assert run(cluster, "cluster", "features", "--set", "transaction.version=2").code == 0


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


def throttled(cluster: Cluster, topic: str, *brokers: int) -> tuple[dict[str, str], list[str]]:
    """The topic's throttled replicas, and the rates of brokers."""
    (described,) = run(cluster, "topics", "describe", topic, "--json").json
    rates = []
    for broker in brokers:
        shown = run(cluster, "configs", "describe", "--broker", str(broker), "--json").json
        rates += [each["value"] for each in shown if each["name"].endswith(".throttled.rate")]
    return described["configs"], rates


def test_a_throttled_move_leaves_nothing_behind(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, assignment={0: (1,), 1: (1,)})
    run(
        cluster,
        *("topics", "alter", name),
        *("--config", "leader.replication.throttled.replicas=1:1"),
    )
    # Broker 2 copies nothing while it cannot reach the leader: there is time to look.
    cluster.partition({1}, {2, 3}, metadata_with={1, 2, 3})
    move = ("topics", "move", f"{name}:0", "--to", "2", "--throttle", "1048576")
    begun = run(cluster, *move)
    assert begun.out == (
        f"Moving {name}-0.\nEach broker sends and receives at most 1.0 MiB per second.\n"
    )
    assert throttled(cluster, name, 1, 2) == (
        {
            "follower.replication.throttled.replicas": "0:2",
            "leader.replication.throttled.replicas": "0:1,1:1",
        },
        ["1048576"] * 4,
    )
    assert throttled(cluster, name, 3)[1] == []
    cluster.heal()
    assert run(cluster, *move, "--wait").code == 0
    assert assigned(cluster, name) == (2,)
    # What an operator has set is still there.
    assert throttled(cluster, name, 1, 2, 3) == (
        {"leader.replication.throttled.replicas": "1:1"},
        [],
    )


def test_a_throttle_of_a_finished_move_is_removed_by_the_same_command(
    cluster: Cluster, name: str
) -> None:
    cluster.create_topic(name, assignment={0: (1,)})
    move = ("topics", "move", name, "--to", "2", "--throttle", "1048576")
    assert run(cluster, *move).code == 0
    cluster.wait_until(
        lambda status: status.partition(name, 0).assigned == (2,), "the partition has moved"
    )
    assert throttled(cluster, name)[0].keys() == {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
    }
    assert run(cluster, *move, "--wait").code == 0
    assert throttled(cluster, name, 1, 2) == ({}, [])


def test_a_move_that_is_refused_leaves_no_throttle(cluster: Cluster, name: str) -> None:
    cluster.create_topic(name, assignment={0: (1,)})
    refused = run(cluster, "topics", "move", name, "--to", "1,9", "--throttle", "1000")
    assert refused.code == 1
    assert refused.err.startswith(f"{name}-0 is not moved: ")
    assert throttled(cluster, name, 1) == ({}, [])
    needless = run(cluster, "topics", "move", name, "--cancel", "--throttle", "1000")
    assert needless.code == 2


def test_eligible_leaders_are_shown_when_there_are_any(cluster: Cluster, name: str) -> None:
    """Two of three replicas die; the minimum of two keeps one of them eligible (KIP-966)."""
    cluster.create_topic(name, assignment={0: (1, 2, 3)}, min_insync_replicas=2)
    assert "ELIGIBLE" not in run(cluster, "topics", "describe", name).out
    cluster.stop(3)
    cluster.stop(2)
    (described,) = run(cluster, "topics", "describe", name, "--json").json
    (partition,) = described["partitions"]
    assert partition["in_sync"] == [1]
    assert partition["eligible_leaders"] == [2]
    lines = run(cluster, "topics", "describe", name).out.splitlines()
    header, row = (line.split() for line in lines[-2:])
    assert row[header.index("ELIGIBLE") - 1] == "2"
    cluster.start(2, 3)
    cluster.wait_until_in_sync(name)
    assert "ELIGIBLE" not in run(cluster, "topics", "describe", name).out


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
