"""`why`: each rule is really caused, and finds its cause; the page is what the rules say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from strandline.cluster.features import SHARE_VERSION
from strandline.cluster.store import SetData
from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.cluster.znodes import ControllerEpochNode, ControllerNode
from strandline.config.checks import AUTHORIZERS
from strandline.config.load import load_broker_config
from strandline.errors import ErrorCode
from strandline.node import coordinator_loading
from strandline.node.authentication.failed_handshakes import HandshakeKind
from strandline.node.authorization.authority import Authority
from strandline.node.outbox import Origin, Refused
from strandline.node.status.broker_document import Certificate
from strandline.node.why import refusals
from strandline.node.why.document import page
from strandline.node.why.refusals import CHARACTERS_MAX, ENTRIES_MAX, LOG_INTERVAL_MS
from strandline.node.why.rule import Scope
from strandline.node.why.table import BY_CODE, RULES
from strandline.protocol.messages.alter_partition import AlterPartitionRequest
from strandline.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from strandline.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.describe_groups import DescribeGroupsRequest
from strandline.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.heartbeat import HeartbeatRequest
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.inspect import InspectRequest
from strandline.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from strandline.protocol.messages.sync_group import SyncGroupRequest
from strandline.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.types import (
    USER,
    BrokerId,
    LeaderEpoch,
    Offset,
    Principal,
    ProducerEpoch,
    ProducerId,
)
from tests.node.followers import Cluster
from tests.node.messages import batch, fetch, list_offsets, produce
from tests.node.world import WALL_MS, Client, World, failing

DOCS = Path(__file__).parents[2] / "docs"
Cause: TypeAlias = Callable[[Cluster, pytest.MonkeyPatch], None]
CAUSES: dict[str, tuple[Cause, ErrorCode | None]] = {}


def causes(rule: str, code: ErrorCode | None = None) -> Callable[[Cause], Cause]:
    """Marks what causes that which a rule explains, and the error that a client gets, if any."""

    def mark(cause: Cause) -> Cause:
        CAUSES[rule] = (cause, code)
        return cause

    return mark


def why(world: World, **arguments: object) -> list[Any]:
    request = InspectRequest(subject="why", arguments=json.dumps(arguments).encode())
    answer = world.connect().ask(request, 0)
    assert answer.error_code == 0, answer
    found: list[Any] = json.loads(answer.document)["findings"]
    return found


@causes("log-moves", ErrorCode.LOG_DIR_NOT_FOUND)
def move_to_no_directory(cluster: Cluster, _: Any) -> None:
    named = AlterReplicaLogDirTopic(name="orders", partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/no", topics=[named])])
    cluster.world.connect().ask(request, 2)


def send(cluster: Cluster, *values: bytes, **more: Any) -> None:
    """Produce to `orders`, whatever comes of it."""
    topic, acks = more.pop("topic", "orders"), more.pop("acks", 1)
    timeout_ms = more.pop("timeout_ms", 0)
    request = produce(batch(*values, **more), topic, acks=acks, timeout_ms=timeout_ms)
    cluster.world.connect().ask(request, 9)


def refuse(cluster: Cluster, code: ErrorCode) -> None:
    """As a handler does that needs a transaction under way (`test_transactions_in_cluster`)."""
    world = cluster.world
    origin = Origin("client", world.connect().connection)
    refused = Refused(code, "TXN", ("orders", 0, None), origin, None)
    world.node.telemetry.refusals.note_refused([refused], world.now)


def new_topic(cluster: Cluster, **configs: str) -> None:
    """A topic `mine` on this broker alone."""
    cluster.create_topic("mine", (1,), **configs)


# -- Partitions ------------------------------------------------------------------------------


@causes("too-few-in-sync", ErrorCode.NOT_ENOUGH_REPLICAS)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("strict", min_insync_replicas="2")
    cluster.set_state("strict", isr=(1,), new_epoch=False)
    send(cluster, b"m", topic="strict", acks=-1)


@causes("held-back")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    send(cluster, b"m0", b"m1")
    cluster.fetch(2, 2)


@causes("new-leader-unsure", ErrorCode.OFFSET_NOT_AVAILABLE)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    send(cluster, b"m0")
    cluster.set_state()
    request = list_offsets(-1)
    request.replica_id = -1
    cluster.world.connect().ask(request, 7)


@causes("no-leader")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic("others", (2, 3))
    cluster.leave(BrokerId(2))
    cluster.leave(BrokerId(3))
    cluster.world.turn()


@causes("out-of-sync")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.set_state(isr=(1, 2), new_epoch=False)


@causes("not-leader", ErrorCode.NOT_LEADER_OR_FOLLOWER)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.set_state(leader=2)
    send(cluster, b"m")


@causes("leader-epoch", ErrorCode.UNKNOWN_LEADER_EPOCH)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.fetch(2, 0, leader_epoch=9)


@causes("bad-disk", ErrorCode.KAFKA_STORAGE_ERROR)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.world.files.on_call = failing({"append"}, "orders-0")
    send(cluster, b"m")
    cluster.world.files.on_call = None


@causes("timed-out", ErrorCode.REQUEST_TIMED_OUT)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    client = cluster.world.connect()
    for _ in range(2):  # the second by the fast path
        client.ask(produce(batch(b"m"), acks=-1, timeout_ms=0), 9)


# -- Reading ---------------------------------------------------------------------------------


@causes("offset-out-of-range", ErrorCode.OFFSET_OUT_OF_RANGE)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.world.connect().ask(fetch(("orders", 0, 99)), 12)


@causes("open-transaction")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    new_topic(cluster)
    data = build_batch(
        [Record(Offset(0), WALL_MS, None, b"m")],
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
        leader_epoch=LeaderEpoch(0),
    )
    replica = cluster.replica("mine")
    replica.log.appender.append_as_follower(data, WALL_MS, leader_epoch=replica.leader_epoch)
    replica.log.advance_high_watermark_to(replica.log.log_end_offset)


@causes("nothing-to-read")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.world.connect().send(fetch(("orders", 0, 0), max_wait_ms=60_000), 12)


@causes("unknown-topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    send(cluster, b"m", topic="ordres")


# -- Writing ---------------------------------------------------------------------------------


@causes("invalid-record", ErrorCode.INVALID_RECORD)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    new_topic(cluster, cleanup_policy="compact")
    send(cluster, b"without a key", topic="mine")


@causes("timestamp-refused", ErrorCode.INVALID_TIMESTAMP)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    new_topic(cluster, message_timestamp_before_max_ms="1000")
    send(cluster, b"m", topic="mine", timestamp=WALL_MS - 60_000)


@causes("damaged-batch", ErrorCode.CORRUPT_MESSAGE)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(batch(b"m"))
    data[-1] ^= 1
    cluster.world.connect().ask(produce(bytes(data), acks=1), 9)


@causes("too-large", ErrorCode.MESSAGE_TOO_LARGE)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    new_topic(cluster, max_message_bytes="100")
    send(cluster, b"m" * 200, topic="mine")


@causes("policy-violation", ErrorCode.POLICY_VIOLATION)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    new_topic(cluster, cleanup_policy="compact")
    partitions = [DeleteRecordsPartition(partition_index=0, offset=0)]
    topics = [DeleteRecordsTopic(name="mine", partitions=partitions)]
    cluster.world.connect().ask(DeleteRecordsRequest(topics=topics, timeout_ms=0), 2)


@causes("out-of-sequence", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    send(cluster, b"m", producer_id=5, epoch=0, sequence=0)
    send(cluster, b"m", producer_id=5, epoch=0, sequence=9)


@causes("producer-fenced", ErrorCode.INVALID_PRODUCER_EPOCH)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    send(cluster, b"m", producer_id=5, epoch=1, sequence=0)
    send(cluster, b"m", producer_id=5, epoch=0, sequence=0)


@causes("transaction-ending", ErrorCode.CONCURRENT_TRANSACTIONS)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(cluster, ErrorCode.CONCURRENT_TRANSACTIONS)


@causes("offsets-undecided", ErrorCode.UNSTABLE_OFFSET_COMMIT)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    refuse(cluster, ErrorCode.UNSTABLE_OFFSET_COMMIT)


@causes("transaction-refused", ErrorCode.INVALID_TRANSACTION_TIMEOUT)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=0)
    cluster.world.connect().ask(request, 5)


@causes("bad-request", ErrorCode.INVALID_REQUIRED_ACKS)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    send(cluster, b"m", acks=5)


# -- Groups ----------------------------------------------------------------------------------


def coordinate(cluster: Cluster) -> None:
    """This broker coordinates all groups and transactions."""
    for broker_id in (2, 3):
        cluster.leave(BrokerId(broker_id))
    for key_type in (0, 1):
        request = FindCoordinatorRequest(key="g", key_type=key_type)
        answer = cluster.world.connect().ask(request, 2)
        cluster.world.turn()
        assert answer.node_id == 1


def join(member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def commit(cluster: Cluster) -> None:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    cluster.world.connect().ask(OffsetCommitRequest(group_id="g", topics=topics), 8)


@causes("rebalancing")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    first = cluster.world.connect()
    first.send(join(), 2)
    cluster.world.advance(10_000)
    (member,) = first.answers
    sync = SyncGroupRequest(
        group_id="g", generation_id=member.generation_id, member_id=member.member_id
    )
    assert first.ask(sync, 2).error_code == 0
    cluster.world.connect().send(join(), 2)


@causes("coordinator-loading", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    commit(cluster)
    commit(cluster)
    monkeypatch.setattr(coordinator_loading, "_RECORDS_PER_STEP", 1)
    cluster.world.restart()
    cluster.world.connect().ask(join(), 2)


@causes("no-coordinator", ErrorCode.NOT_COORDINATOR)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.create_topic(CONSUMER_OFFSETS, (2, 3))
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    cluster.world.connect().ask(request, 4)


@causes("member-gone", ErrorCode.UNKNOWN_MEMBER_ID)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    request = HeartbeatRequest(group_id="g", member_id="m", generation_id=1)
    cluster.world.connect().ask(request, 4)


def beat(cluster: Cluster, member_id: str, epoch: int = 0, **more: Any) -> Any:
    """The answer to a heartbeat of the consumer protocol."""
    fields: dict[str, Any] = {
        "group_id": "g",
        "member_id": member_id,
        "member_epoch": epoch,
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": ["orders"],
        "topic_partitions": [],
    }
    return cluster.world.connect().ask(ConsumerGroupHeartbeatRequest(**(fields | more)), 1)


@causes("reconciling")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    beat(cluster, "first")
    cluster.world.advance(2_000)
    beat(cluster, "second")


@causes("member-fenced", ErrorCode.FENCED_MEMBER_EPOCH)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    beat(cluster, "first")
    beat(cluster, "first", epoch=9)


@causes("member-not-admitted", ErrorCode.UNSUPPORTED_ASSIGNOR)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    beat(cluster, "first", server_assignor="sticky")


def switch_share_groups_off(cluster: Cluster) -> Client:
    client = cluster.world.connect()
    off = FeatureUpdateKey(feature=SHARE_VERSION, max_version_level=0, upgrade_type=2)
    answer = client.ask(UpdateFeaturesRequest(feature_updates=[off]), 1)
    assert answer.error_code == ErrorCode.NONE
    return client


@causes("not-served", ErrorCode.UNSUPPORTED_VERSION)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    switch_share_groups_off(cluster).ask(ShareGroupHeartbeatRequest(group_id="g"), 1)


@causes("group-empty")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinate(cluster)
    commit(cluster)


# -- The cluster -----------------------------------------------------------------------------


def expire(cluster: Cluster) -> None:
    """The session of this broker ends, and it cannot write to the store yet."""
    cluster.world.holds_metadata = True
    changes = cluster.world.tree.expire_session(cluster.world.session).changes
    assert changes is not None
    cluster.world.metadata_changed(changes)


@causes("no-controller", ErrorCode.NOT_CONTROLLER)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    expire(cluster)
    cluster.world.connect().ask(ElectLeadersRequest(topic_partitions=None), 2)


def secure(cluster: Cluster) -> Client:
    """Switch ACLs on, and connect as a client that has none."""
    node = cluster.world.node
    settings = (f"authorizer.class.name={AUTHORIZERS[0]}", "super.users=User:ANONYMOUS")
    config = load_broker_config(None, settings).config
    node.authority = node.parts.authority = Authority(config, node.metadata, node.connections)
    node.routes._made.clear()
    return cluster.world.connect(Principal(USER, "alice"))


@causes("topic-permission", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    secure(cluster).ask(produce(batch(b"a"), "orders", acks=1), 9)
    (found,) = [e for e in why(cluster.world, topic="orders") if e["rule"] == "topic-permission"]
    assert found["cause"] == (
        "User:alice at test-host lacks Write of Topic 'orders': no ACL covers it"
    )
    assert found["remedy"] == (
        "`strandline acls add --allow-principal User:alice --operation Write --topic orders`"
    )


@causes("group-permission", ErrorCode.GROUP_AUTHORIZATION_FAILED)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    secure(cluster).ask(HeartbeatRequest(group_id="g", member_id="m"), 4)


@causes("cluster-permission", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    secure(cluster).ask(ElectLeadersRequest(topic_partitions=None), 2)


@causes("not-registered")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    expire(cluster)


@causes("election-refused", ErrorCode.ELECTION_NOT_NEEDED)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [TopicPartitions(topic="orders", partitions=[0])]
    cluster.world.connect().ask(ElectLeadersRequest(topic_partitions=wanted), 2)


@causes("compaction")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    world = cluster.world
    world.create_topic("table", cleanup_policy="compact")
    log = world.replica("table").log
    world.node.background.cleaning.uncleanable[log] = "A batch is damaged."


@causes("certificate-expires")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms, day_ms = cluster.world.now.wall_ms, 86_400_000
    own = [
        Certificate(
            listener=name,
            subject=f"CN={name}",
            kept_in=f"/{name}.pem",
            begins_wall_ms=now_ms + begins * day_ms,
            expires_wall_ms=now_ms + expires * day_ms,
        )
        for name, begins, expires in (
            ("SOON", -9, 29),
            ("LATER", -9, 31),
            ("PAST", -9, -1),
            ("EARLY", 1, 31),
        )
    ]
    cluster.world.node.parts.certificates = lambda: own
    found = [each for each in why(cluster.world) if each["rule"] == "certificate-expires"]
    assert [each["about"] for each in found] == [
        f"listener {name} of broker 1" for name in ("SOON", "PAST", "EARLY")
    ]
    assert found[1]["cause"].startswith("its certificate (/PAST.pem) has expired")


@causes("handshake-failed")
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = HandshakeKind("SSL", "10.0.0.7", "peer did not return a certificate")
    cluster.world.node.authentication.handshake_failed(kind, cluster.world.now)


@causes("change-refused", ErrorCode.STALE_BROKER_EPOCH)
def _(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    request = AlterPartitionRequest(broker_id=2, broker_epoch=1)
    cluster.world.connect().ask(request, 3)


# -- The rules -------------------------------------------------------------------------------


def test_every_rule_has_a_cause_here() -> None:
    assert CAUSES.keys() == {rule.name for rule in RULES}
    codes = [code for rule in RULES for code in rule.codes]
    assert len(codes) == len(set(codes)) == len(BY_CODE)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_finds_its_cause(
    rule: Any, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [each for each in why(cluster.world) if each["rule"] == rule.name]
    assert before == [], "it finds something where nothing is wrong"
    cause, code = CAUSES[rule.name]
    cause(cluster, monkeypatch)
    (found, *_) = [each for each in why(cluster.world) if each["rule"] == rule.name]
    assert found["cause"]
    assert found["remedy"]
    assert found["title"] == rule.title
    if code is not None:
        assert code in rule.codes
        by_error = why(cluster.world, error=code.name)
        assert rule.name in {each["rule"] for each in by_error}
        assert any(code.name in line for each in by_error for line in each["evidence"])
    if rule.scope is Scope.GROUP:
        mine = why(cluster.world, group="g")
        assert rule.name in {each["rule"] for each in mine}
        assert {each["rule"] for each in mine} <= {r.name for r in RULES if r.scope is Scope.GROUP}
    elif rule.scope is Scope.PARTITION and "-" in found["about"]:
        topic, _, number = found["about"].rpartition("-")
        mine = why(cluster.world, topic=topic, partition=int(number))
        assert rule.name in {each["rule"] for each in mine}
        assert {each["about"] for each in mine} == {found["about"]}


def test_the_page_is_what_the_rules_say() -> None:
    assert (DOCS / "why.md").read_text() == page()


def test_a_healthy_broker_has_nothing_to_explain(cluster: Cluster) -> None:
    assert why(cluster.world) == []


def test_who_holds_the_high_watermark_back_is_named(cluster: Cluster) -> None:
    send(cluster, b"m0", b"m1")
    cluster.fetch(2, 2)
    cluster.fetch(3, 1)
    cluster.world.advance(5000)
    (found,) = why(cluster.world, topic="orders")
    assert found["rule"] == "held-back"
    assert found["cause"].endswith("until broker 3 has fetched further")
    assert any("broker 3 (registered) is at offset 1, 1 records behind" in e
               for e in found["evidence"])  # fmt: skip
    assert not any("broker 2" in line for line in found["evidence"])


def test_c1_a_greater_minimum_at_the_controller_is_told(cluster: Cluster) -> None:
    """Files that differ, as in a rolling change: this broker would go on with one in sync."""
    cluster.create_topic("strict", min_insync_replicas="1")
    epoch = cluster.world.node.metadata.image.controller_epoch
    assert epoch is not None
    cluster.write(
        [
            SetData(ControllerEpochNode.path, ControllerEpochNode(epoch.value + 1).encode()),
            SetData(ControllerNode.path, ControllerNode(BrokerId(2)).encode()),
        ]
    )
    cluster.set_state("strict", isr=(1,), elr=(2,), new_epoch=False)
    send(cluster, b"m", topic="strict", acks=-1)
    found = next(e for e in why(cluster.world, topic="strict") if e["rule"] == "too-few-in-sync")
    assert found["cause"].startswith("only 1 of 2 replicas that acks=all needs")
    assert any("is 1 here and greater at the controller" in each for each in found["evidence"])


def test_why_too_few_are_in_sync_is_told_with_the_missing_broker(cluster: Cluster) -> None:
    cluster.create_topic("strict", min_insync_replicas="3")
    cluster.leave(BrokerId(3))
    cluster.world.turn()
    send(cluster, b"m", topic="strict", acks=-1)
    found = next(e for e in why(cluster.world, topic="strict") if e["rule"] == "too-few-in-sync")
    assert "broker 3 is not registered: it died, or is cut off" in found["cause"]
    assert found["remedy"].startswith("Bring broker 3 back")
    assert found["since_wall_ms"] == cluster.world.now.wall_ms


def test_a_missing_topic_is_explained_without_a_request_for_it(cluster: Cluster) -> None:
    (found,) = why(cluster.world, topic="ordres")
    assert "did you mean 'orders'?" in found["cause"]


def test_a_missing_partition_is_explained_although_no_client_asked_for_it(
    cluster: Cluster,
) -> None:
    (found,) = why(cluster.world, topic="orders", partition=9)
    assert (found["about"], found["rule"]) == ("orders-9", "unknown-topic")
    assert "the topic has the partitions 0 to" in found["cause"]
    assert why(cluster.world, topic="orders", partition=0) == []


def test_a_code_without_a_rule_is_told_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(BY_CODE, ErrorCode.INVALID_REQUIRED_ACKS)
    send(cluster, b"m", acks=5)
    found = [each for each in why(cluster.world) if each["rule"] is None]
    assert len(found) == 1
    assert "INVALID_REQUIRED_ACKS" in found[0]["cause"]


def test_an_error_that_kafka_does_not_have(cluster: Cluster) -> None:
    request = InspectRequest(subject="why", arguments=b'{"error": "NONSENSE"}')
    answer = cluster.world.connect().ask(request, 0)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert "NONSENSE" in answer.error_message


def test_c17_a_group_protocol_that_is_not_served_is_explained(cluster: Cluster) -> None:
    client = switch_share_groups_off(cluster)
    request = ShareGroupHeartbeatRequest(group_id="shared", member_id="m")
    assert client.ask(request, 1).error_code == ErrorCode.UNSUPPORTED_VERSION
    (found,) = [e for e in why(cluster.world, group="shared") if e["rule"] == "not-served"]
    assert found["cause"].startswith("Share groups are not served")


def test_what_a_member_waits_for_is_told(cluster: Cluster) -> None:
    coordinate(cluster)
    cluster.world.create_topic("wide", 2)
    both: dict[str, Any] = {"subscribed_topic_names": ["orders", "wide"]}
    first = beat(cluster, "first", **both)
    cluster.world.advance(2_000)
    assert beat(cluster, "second", **both).member_epoch == first.member_epoch + 1

    def found() -> Any:
        (only,) = [e for e in why(cluster.world, group="g") if e["rule"] == "reconciling"]
        return only

    assert "2 of 2 members do not own yet" in found()["cause"]
    assert any("waits for" in each and "of first" in each for each in found()["evidence"])
    owned = first.assignment.topic_partitions
    beat(cluster, "first", epoch=first.member_epoch, topic_partitions=owned)
    assert any("has to give up" in each for each in found()["evidence"])


def test_who_looks_which_protocol_a_group_speaks_is_no_member_that_is_refused(
    cluster: Cluster,
) -> None:
    coordinate(cluster)
    cluster.world.advance(2_000)
    beat(cluster, "first")
    (found,) = cluster.world.connect().ask(DescribeGroupsRequest(groups=["g"]), 6).groups
    assert found.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert not [e for e in why(cluster.world, group="g") if e["rule"] == "member-not-admitted"]


def test_a_protocol_that_is_switched_off_is_explained(cluster: Cluster) -> None:
    world = World("group.coordinator.rebalance.protocols=classic")
    request = ConsumerGroupHeartbeatRequest(group_id="new")
    answer = world.connect().ask(request, 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    (found,) = [each for each in why(world, group="new") if each["rule"] == "not-served"]
    assert "group.coordinator.rebalance.protocols" in found["cause"]


# -- The log, and bounds ---------------------------------------------------------------------


def test_the_log_tells_each_kind_once_a_minute(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", refusals.__name__)

    def told() -> list[str]:
        return [r.getMessage() for r in caplog.records if r.name == refusals.__name__]

    for number in range(3):
        send(cluster, b"m", topic=f"missing-{number}")
    (first,) = told()
    assert "UNKNOWN_TOPIC_OR_PARTITION: A topic or partition is unknown" in first
    assert "missing-0-0" in first
    cluster.set_state(leader=2)
    send(cluster, b"m")
    assert len(told()) == 2
    cluster.world.advance(LOG_INTERVAL_MS)
    send(cluster, b"m", topic="missing-4")
    assert len(told()) == 3
    assert "2 others since the last message" in told()[-1]


def test_what_is_remembered_is_bounded(cluster: Cluster) -> None:
    for number in range(ENTRIES_MAX + 5):
        send(cluster, b"m", topic=f"missing-{number}")
    kept = cluster.world.node.telemetry.refusals
    assert len(kept) == ENTRIES_MAX
    assert next(iter(kept)).about.topic == "missing-5"


def test_names_that_are_remembered_are_cut(cluster: Cluster) -> None:
    """Clients choose them; no topic has one that long."""
    send(cluster, b"m", topic="m" * 32_000)
    [refusal] = cluster.world.node.telemetry.refusals
    assert refusal.about.topic == "m" * CHARACTERS_MAX + "..."
    assert len(refusal.message or "") <= CHARACTERS_MAX + 3
