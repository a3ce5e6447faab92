"""The status document: what it says of leaders, followers, waits, groups and refusals; its page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.node.status import document, metrics, reference
from strandline.protocol.messages.inspect import InspectRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.storage.files import DiskFull
from strandline.types import BrokerId
from tests.node.followers import Cluster
from tests.node.messages import batch, fetch, produce
from tests.node.test_follower_sessions import Follower
from tests.node.world import World, failing

DOCS = Path(__file__).parents[2] / "docs"


def status(world: World, **arguments: object) -> Any:
    request = InspectRequest(subject="status", arguments=json.dumps(arguments).encode())
    answer = world.connect().ask(request, 0)
    assert answer.error_code == 0, answer
    return json.loads(answer.document)


def test_the_page_is_what_the_declarations_say() -> None:
    assert (DOCS / "status.md").read_text() == reference.page()


def test_a_replica_alone(world: World) -> None:
    world.connect().ask(produce(batch(b"a", b"b")), 9)
    found = status(world)
    assert found["version"] == document.VERSION
    assert found["broker"] == 1
    assert found["registered"]
    assert found["controller"]["here"]
    (replica,) = found["replicas"]
    assert (replica["topic"], replica["partition"], replica["role"]) == ("orders", 0, "leader")
    assert replica["log_end_offset"] == replica["high_watermark"] == 2
    assert replica["epochs"] == [{"epoch": replica["leader_epoch"], "start_offset": 0}]
    assert found["traffic"] == [
        {
            "topic": "orders",
            "records_in": 2,
            "bytes_in": len(batch(b"a", b"b")),
            "bytes_out": 0,
            "replication_bytes_in": 0,
            "replication_bytes_out": 0,
        }
    ]
    assert found["totals"]["leading"] == found["totals"]["partitions"] == 1
    assert found["totals"]["under_replicated"] == 0


def test_both_ways_of_a_produce_are_counted(world: World) -> None:
    client = world.connect()
    for _ in range(3):
        client.ask(produce(batch(b"a")), 9)
    found = status(world)
    (produces,) = [each for each in found["requests"] if each["api"] == "PRODUCE"]
    assert produces["count"] == 3
    assert sum(produces["buckets"]) == 3
    assert found["traffic"][0]["records_in"] == 3


def test_questions_can_be_limited(world: World) -> None:
    world.create_topic("others", partitions=3)

    def partitions(**arguments: object) -> set[tuple[str, int]]:
        found = status(world, **arguments)
        hosted = {(each["topic"], each["partition"]) for each in found["replicas"]}
        assert hosted == {(each["topic"], each["partition"]) for each in found["partitions"]}
        return hosted

    assert len(partitions()) == 4
    assert partitions(topics=["others"]) == {("others", number) for number in range(3)}
    assert partitions(topics=["others"], partition=2) == {("others", 2)}
    assert partitions(topics=["nothing"]) == set()
    brief = status(world, brief=True)
    assert brief["replicas"] == brief["partitions"] == brief["changes"] == []
    assert brief["totals"]["partitions"] == 4


def test_what_retention_and_compaction_would_do(world: World) -> None:
    world.create_topic("compacted", cleanup_policy="compact")
    world.connect().ask(produce(batch(b"a")), 9)
    (replica,) = status(world, topics=["orders"])["replicas"]
    assert (replica["retention"], replica["compaction"]) == (None, None)
    (replica,) = status(world, topics=["orders"], partition=0)["replicas"]
    assert replica["retention"]["segments"] == 0
    assert replica["retention"]["changes_wall_ms"] > world.now.wall_ms
    (replica,) = status(world, topics=["compacted"])["replicas"]
    assert set(replica["compaction"].values()) == {None}


def test_a_leader_tells_of_its_followers(cluster: Cluster) -> None:
    cluster.world.connect().send(produce(batch(b"a", b"b"), acks=-1, timeout_ms=60_000), 9)
    cluster.world.turn()
    cluster.fetch(2, 1)
    found = status(cluster.world)
    (replica,) = found["replicas"]
    assert (replica["high_watermark"], replica["log_end_offset"]) == (0, 2)
    assert replica["waiting_produces"] == 1
    leading = replica["leading"]
    assert leading["in_sync"] == [1, 2, 3]
    by_broker = {each["broker"]: each for each in leading["followers"]}
    assert by_broker[2]["log_end_offset"] == 1
    assert by_broker[2]["lag"] == 1
    assert by_broker[2]["fetched_ago_ms"] == 0
    assert by_broker[3]["log_end_offset"] is None
    assert by_broker[3]["lag"] is None
    assert all(each["counted"] and each["in_sync"] for each in by_broker.values())
    assert leading["low_watermark"] is None, "broker 3 was never heard of"
    cluster.fetch(3, 0)
    cluster.world.turn()
    found = status(cluster.world)
    assert found["replicas"][0]["leading"]["low_watermark"] == 0
    assert 'strandline_low_watermark{broker="1",topic="orders",partition="0"} 0' in (
        metrics.exposition(found).splitlines()
    )


def test_a_follower_that_has_nothing_to_fetch_is_heard_of_all_the_same(cluster: Cluster) -> None:
    """Of a quiet partition nothing is noted; a status request meanwhile must not take it for
    lost."""
    follower = Follower(cluster, BrokerId(2), ("orders",))
    for _ in range(3):
        follower.fetch()
    cluster.world.advance(60_000)
    follower.fetch()
    cluster.world.advance(1_000)
    (replica,) = status(cluster.world)["replicas"]
    seen = {each["broker"]: each for each in replica["leading"]["followers"]}
    assert (seen[2]["caught_up_ago_ms"], seen[2]["fetched_ago_ms"]) == (1_000, 1_000)
    assert seen[3]["fetched_ago_ms"] is None
    cluster.client_of(2).send(follower.request(max_wait_ms=60_000), 17)
    cluster.world.turn()
    cluster.world.advance(30_000)
    (replica,) = status(cluster.world)["replicas"]
    seen = {each["broker"]: each for each in replica["leading"]["followers"]}
    assert (seen[2]["caught_up_ago_ms"], seen[2]["fetched_ago_ms"]) == (0, 0)


def test_what_waits_says_for_what(world: World) -> None:
    world.connect().send(fetch(("orders", 0, 0), max_wait_ms=500, min_bytes=10), 12)
    world.turn()
    world.advance(100)
    (waiting,) = status(world)["parked"]
    assert waiting["api"] == "FETCH"
    assert waiting["partitions"] == ["orders-0 from 0"]
    assert waiting["waits_for"] == "10 bytes to read"
    assert waiting["deadline_wait_ms"] == 400


def test_refusals_are_counted_by_what_they_are_about(world: World) -> None:
    for _ in range(2):
        world.connect().ask(produce(batch(b"a"), topic="missing"), 9)
    world.connect().ask(fetch(("orders", 0, 99)), 12)
    ask_for = [MetadataRequestTopic(name="missing too")]
    world.connect().ask(MetadataRequest(topics=ask_for, allow_auto_topic_creation=False), 9)
    found = {
        (each["error"], each["api"], each["about"]): each for each in status(world)["refusals"]
    }
    twice = found["UNKNOWN_TOPIC_OR_PARTITION", "PRODUCE", "missing-0"]
    assert twice["count"] == 2
    assert (twice["client_id"], twice["client_host"]) == ("test", "test-host")
    assert ("OFFSET_OUT_OF_RANGE", "FETCH", "orders-0") in found
    assert any(api == "METADATA" and "missing too" in about for _, api, about in found)
    errors = {(each["api"], each["error"]): each["count"] for each in status(world)["errors"]}
    assert errors["PRODUCE", "UNKNOWN_TOPIC_OR_PARTITION"] == 2


def unusable(found: Any) -> list[tuple[str, bool]]:
    """The partitions whose replicas cannot be used, and whether they wait for room."""
    return [
        (each["topic"], each["delayed"])
        for each in found["partitions"]
        if each["unavailable"] is not None
    ]


def test_replicas_that_wait_for_room_are_counted_and_named(world: World) -> None:
    world.files.on_call = failing({"create"}, "/late-0/", DiskFull)
    world.create_topic("late")
    found = status(world)
    assert (found["totals"]["delayed_replicas"], found["totals"]["offline_replicas"]) == (1, 0)
    assert unusable(found) == [("late", True)]
    assert 'strandline_delayed_replicas{broker="1"} 1' in metrics.exposition(found).splitlines()
    world.files.on_call = None
    world.advance(10_000)
    found = status(world)
    assert (found["totals"]["delayed_replicas"], unusable(found)) == (0, [])
    del found["totals"]["delayed_replicas"]  # as of a broker that does not say it
    assert "strandline_delayed_replicas{" not in metrics.exposition(found)


def test_a_replica_whose_disk_failed_is_offline_and_waits_for_nothing(world: World) -> None:
    world.files.on_call = failing({"create"}, "/late-0/")
    world.create_topic("late")
    found = status(world)
    assert (found["totals"]["delayed_replicas"], found["totals"]["offline_replicas"]) == (0, 1)
    assert unusable(found) == [("late", False)]
    world.files.on_call = None


def test_changes_have_reasons(cluster: Cluster) -> None:
    node = cluster.world.node
    node.replicas.host.proposals = node.in_sync_changes
    cluster.world.connect().send(produce(batch(b"a", b"b")), 9)
    cluster.world.turn()
    cluster.fetch(2, 1)
    cluster.leave(BrokerId(3))
    cluster.world.advance(60_000)
    found = status(cluster.world)
    gone, behind = (each for each in found["changes"] if each["kind"] == "in_sync")
    assert (gone["before"], gone["after"]) == ([1, 2, 3], [1, 2])
    assert gone["reason"] == "broker 3 is not registered: it died, or is cut off"
    assert (behind["before"], behind["after"]) == ([1, 2], [1])
    assert "fell behind for 30000 ms (replica.lag.time.max.ms)" in behind["reason"]
    assert "at offset 1 of 2" in behind["reason"]
    left = [each for each in found["changes"] if each["kind"] == "broker"][-1]
    assert (left["before"], left["after"]) == ([3], [])
    assert found["totals"]["in_sync_shrinks"] == 2
    assert found["totals"]["under_replicated"] == 1


def test_elections_have_reasons(cluster: Cluster) -> None:
    cluster.set_state(leader=2)
    cluster.set_state(leader=1)
    found = status(cluster.world)
    reasons = [each for each in found["changes"] if each["kind"] == "leader"]
    assert [(each["before"], each["after"]) for each in reasons] == [([1], [2]), ([2], [1])]
    assert reasons[1]["reason"] == "broker 1 is the preferred leader"
    assert found["totals"]["leader_elections"] == 2


def test_metrics_are_the_same_facts(cluster: Cluster) -> None:
    cluster.world.connect().send(produce(batch(b"a", b"b")), 9)
    cluster.world.turn()
    text = metrics.exposition(status(cluster.world))
    lines = text.splitlines()
    assert 'strandline_log_end_offset{broker="1",topic="orders",partition="0"} 2' in lines
    assert 'strandline_under_replicated_partitions{broker="1"} 0' in lines
    assert "# TYPE strandline_requests_total counter" in lines
    for metric in metrics.METRICS:
        assert f"# TYPE {metric.name} {metric.kind}" in lines
        assert metric.kind in ("gauge", "counter", "histogram")
        assert metric.name.endswith("_total") == (metric.kind == "counter")


def test_metrics_of_several_brokers_have_each_head_once(world: World) -> None:
    found = status(world)
    text = metrics.merged([found, {**found, "broker": 2}])
    assert text.count("# TYPE strandline_partitions gauge") == 1
    assert 'strandline_partitions{broker="2"} 1' in text.splitlines()


@pytest.mark.parametrize(
    ("text", "expected"), [('a"b', 'a\\"b'), ("a\\b", "a\\\\b"), ("a\nb", "a\\nb")]
)
def test_labels_are_escaped(world: World, text: str, expected: str) -> None:
    found = status(world)
    found["traffic"] = [{**found["traffic"][0], "topic": text}]
    wanted = f'strandline_bytes_in_total{{broker="1",topic="{expected}"}} 0'
    assert wanted in metrics.exposition(found).splitlines()


def test_a_histogram_counts_up_to_all(world: World) -> None:
    world.connect().ask(produce(batch(b"a")), 9)
    lines = metrics.exposition(status(world)).splitlines()
    of_produce = [line for line in lines if 'request="PRODUCE"' in line and "_seconds" in line]
    assert of_produce[0].endswith('le="0.001"} 1')
    assert of_produce[-3].endswith('le="+Inf"} 1')
    assert of_produce[-2].startswith("strandline_request_seconds_sum{")
    assert of_produce[-1].startswith("strandline_request_seconds_count{")
