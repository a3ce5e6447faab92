"""Kafka's tools for clusters, with three brokers: moves, elections, verification."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from strandline.testing import Cluster, ClusterStatus
from tests.java.processes import Outcome, ToolServer, Workshop
from tests.java.tables import CONFIGS, OFFSETS, TOOLS, TOPICS, fields

REASSIGN = TOOLS + "reassign.ReassignPartitionsCommand"
ELECT = TOOLS + "LeaderElectionCommand"
CLUSTER = TOOLS + "ClusterTool"
VERIFY = TOOLS + "ReplicaVerificationTool"
IN_SYNC_S = 120.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers that all tests of the file share; each leaves them running and in sync."""
    with Cluster(brokers=3, settings={"auto.leader.rebalance.enable": False}) as running:
        yield running


class Tools:
    """The tools, told where the brokers are."""

    def __init__(self, server: ToolServer, cluster: Cluster) -> None:
        self._server = server
        self._cluster = cluster

    def __call__(self, main: str, *arguments: str | Path) -> Outcome:
        return self._server.run(
            main, *arguments, "--bootstrap-server", self._cluster.bootstrap_servers
        )

    def reassign(self, plan: Path, *arguments: str) -> Outcome:
        return self(REASSIGN, "--reassignment-json-file", plan, *arguments)

    def elect(self, kind: str, topic: str) -> Outcome:
        return self(ELECT, "--election-type", kind, "--topic", topic, "--partition", "0")

    def partitions(self, *filters: str) -> list[dict[str, str]]:
        """Lines of the description that are about partitions."""
        said = self(TOPICS, "--describe", *filters).succeeded()
        lines = [fields(line) for line in said.splitlines() if line.strip()]
        return [line for line in lines if "Leader" in line]

    def settings(self, kind: str, name: str) -> dict[str, str]:
        """The dynamic settings of a topic or a broker."""
        said = self(CONFIGS, "--describe", "--entity-type", kind, "--entity-name", name)
        pairs = (line.split()[0].split("=", 1) for line in said.succeeded().splitlines()[1:])
        return {pair[0]: pair[1] for pair in pairs}


@pytest.fixture(scope="module")
def run(tools: ToolServer, cluster: Cluster) -> Tools:
    return Tools(tools, cluster)


def fill(cluster: Cluster, topic: str, count: int, size: int = 10, acks: str = "all") -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": acks})
    for _ in range(count):
        producer.produce(topic, bytes(size), partition=0)
    assert producer.flush(IN_SYNC_S) == 0


def plan_of(path: Path, topic: str, replicas: Sequence[int]) -> Path:
    partition = {"topic": topic, "partition": 0, "replicas": replicas}
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return path


def moved(cluster: Cluster, topic: str, replicas: tuple[int, ...]) -> None:
    cluster.wait_until(
        lambda status: (
            status.partition(topic).assigned == replicas
            and {*status.partition(topic).in_sync} == {*replicas}
        ),
        f"{topic} is on {replicas}",
    )


def test_a_throttled_move_is_watched_hurried_and_cleaned_up(
    run: Tools, cluster: Cluster, tmp_path: Path
) -> None:
    cluster.create_topic("hurried", assignment={0: [1, 2]})
    fill(cluster, "hurried", 60, 50_000)
    plan = plan_of(tmp_path / "plan.json", "hurried", [3, 2])
    said = run.reassign(plan, "--execute", "--throttle", "1000").succeeded()
    assert "Successfully started partition reassignment for hurried-0" in said
    assert "The inter-broker throttle limit was set to 1000 B/s" in said
    listed = run(REASSIGN, "--list").succeeded()
    assert "hurried-0: replicas: 3,2,1. adding: 3. removing: 1." in listed
    assert "is still in progress" in run.reassign(plan, "--verify").succeeded()
    again = run.reassign(plan, "--execute").failed()
    assert "there is an existing partition assignment" in again
    assert run.settings("topics", "hurried") == {
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    rates = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
    assert run.settings("brokers", "2") == dict.fromkeys(rates, "1000")
    newcomer = cluster.status().partition("hurried").replica(3)
    assert newcomer is None or newcomer.log_end < 60, "the throttle holds nothing back"

    run.reassign(plan, "--execute", "--additional", "--throttle", "100000000").succeeded()
    moved(cluster, "hurried", (3, 2))
    done = run.reassign(plan, "--verify").succeeded()
    assert "Reassignment of partition hurried-0 is completed." in done
    assert "Clearing topic-level throttles on topic hurried" in done
    assert not run.settings("topics", "hurried")
    assert not any(run.settings("brokers", str(each)) for each in (1, 2, 3))
    assert "hurried:0:60" in run(OFFSETS, "--topic", "hurried").succeeded()


def test_a_move_is_cancelled(run: Tools, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("cancelled", assignment={0: [1, 2]})
    fill(cluster, "cancelled", 60, 50_000)
    plan = plan_of(tmp_path / "plan.json", "cancelled", [2, 3])
    run.reassign(plan, "--execute", "--throttle", "1000").succeeded()
    said = run.reassign(plan, "--cancel").succeeded()
    assert "Successfully cancelled partition reassignment for: cancelled-0" in said
    assert "Clearing broker-level throttles on brokers 1,2,3" in said
    assert "No partition reassignments found." in run(REASSIGN, "--list").succeeded()
    moved(cluster, "cancelled", (2, 1))
    assert not run.settings("topics", "cancelled")
    assert "None of the specified partition moves are active" in (
        run.reassign(plan, "--cancel").succeeded()
    )
    (line,) = run.partitions("--topic", "cancelled")
    assert (line["Leader"], line["Replicas"]) == ("1", "2,1")
    assert {*line["Isr"].split(",")} == {"1", "2"}


def test_a_plan_is_proposed_and_followed(run: Tools, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("planned", assignment={0: [1], 1: [1], 2: [1]})
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "planned"}]}))
    arguments = ("--generate", "--broker-list", "2,3")
    said = run(REASSIGN, *arguments, "--topics-to-move-json-file", topics).succeeded()
    *_, proposal = [line for line in said.splitlines() if line.startswith("{")]
    plan = tmp_path / "plan.json"
    plan.write_text(proposal)
    run.reassign(plan, "--execute").succeeded()
    wanted = {each["partition"]: each["replicas"] for each in json.loads(proposal)["partitions"]}

    def is_placed(number: int, replicas: list[int], status: ClusterStatus) -> bool:
        return [*status.partition("planned", number).assigned] == replicas

    for number, replicas in wanted.items():
        cluster.wait_until(
            partial(is_placed, number, replicas),
            f"planned-{number} is on {replicas}",
        )
    assert run.reassign(plan, "--verify").succeeded().count("is completed") == 3


def test_moves_that_cannot_be(run: Tools, cluster: Cluster, tmp_path: Path) -> None:
    cluster.create_topic("stays", assignment={0: [1, 2]})
    nowhere = plan_of(tmp_path / "nowhere.json", "stays", [1, 9])
    assert "9" in run.reassign(nowhere, "--execute").failed()
    nothing = plan_of(tmp_path / "nothing.json", "absent", [1])
    assert "absent" in run.reassign(nothing, "--execute").failed()
    assert "No partition reassignments found." in run(REASSIGN, "--list").succeeded()


def test_a_preferred_leader_is_elected(run: Tools, cluster: Cluster) -> None:
    cluster.create_topic("preferred", assignment={0: [1, 2]})
    cluster.restart(1)
    cluster.wait_until_in_sync("preferred", timeout_s=IN_SYNC_S)
    assert cluster.leader_of("preferred") == 2
    said = run.elect("preferred", "preferred").succeeded()
    assert "Successfully completed leader election (PREFERRED) for partitions preferred-0" in said
    assert cluster.leader_of("preferred") == 1
    again = run.elect("preferred", "preferred").succeeded()
    assert "Valid replica already elected for partitions preferred-0" in again
    cluster.wait_until_in_sync(timeout_s=IN_SYNC_S)


def test_an_unclean_leader_is_elected_when_asked_for(run: Tools, cluster: Cluster) -> None:
    cluster.create_topic("unclean", assignment={0: [1, 2]})
    fill(cluster, "unclean", 3)
    cluster.kill(2)
    cluster.wait_until(lambda status: status.partition("unclean").in_sync == (1,), "1 is alone")
    lines = run.partitions("--under-replicated-partitions")
    (line,) = (each for each in lines if each["Topic"] == "unclean")
    assert (line["Leader"], line["Replicas"], line["Isr"]) == ("1", "1,2", "1")
    fill(cluster, "unclean", 2, acks="1")
    cluster.kill(1)
    cluster.start(2)
    cluster.wait_until(lambda status: status.partition("unclean").leader is None, "no leader")
    (line,) = (
        each for each in run.partitions("--unavailable-partitions") if each["Topic"] == "unclean"
    )
    assert line["Leader"] == "none"
    assert "PreferredLeaderNotAvailable" in run.elect("preferred", "unclean").failed()
    said = run.elect("unclean", "unclean").succeeded()
    assert "Successfully completed leader election (UNCLEAN) for partitions unclean-0" in said
    assert "unclean:0:3" in run(OFFSETS, "--topic", "unclean").succeeded()
    assert "already elected" in run.elect("unclean", "unclean").succeeded()
    cluster.start(1)
    cluster.wait_until_in_sync(timeout_s=IN_SYNC_S)
    assert not run.partitions("--under-replicated-partitions")
    assert cluster.leader_of("unclean") == 2
    ends = {each.log_end for each in cluster.status().partition("unclean").replicas}
    assert ends == {3}, "what only the lost leader had is still somewhere"


def test_replicas_are_verified(workshop: Workshop, cluster: Cluster) -> None:
    cluster.create_topic("verified", partitions=2, replication_factor=3)
    fill(cluster, "verified", 10)
    servers = cluster.bootstrap_servers
    verifier = workshop.java(
        VERIFY, "--broker-list", servers, "--topics-include", "verified",
        "--report-interval-ms", "10",
    )  # fmt: skip
    said: list[str] = []
    while "max lag" not in (line := verifier.line() or "the end"):
        assert line != "the end", (said, verifier.complaint())
        said.append(line)
    assert "max lag is 0 for partition verified-" in line
    assert line.endswith("among 2 partitions")
    verifier.end()


def test_members_that_are_down_are_listed_and_unregistered(tools: ToolServer) -> None:
    with Cluster(brokers=2) as cluster:
        cluster.stop(2)
        where = ("--bootstrap-server", cluster.bootstrap_servers)
        listed = tools.run(
            CLUSTER, "list-endpoints", *where, "--include-fenced-brokers"
        ).succeeded()
        states = {line.split()[0]: line.split()[4] for line in listed.splitlines()[1:] if line}
        assert states == {"1": "unfenced", "2": "fenced"}
        tools.run(CLUSTER, "unregister", *where, "--id", "2").succeeded()
        listed = tools.run(
            CLUSTER, "list-endpoints", *where, "--include-fenced-brokers"
        ).succeeded()
        assert [line.split()[0] for line in listed.splitlines()[1:] if line] == ["1"]
