"""ACLs on a node: changed over the protocol, followed by sessions and fast paths, audited."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from strandline.authorization.acls import CLUSTER_NAME, Operation, PatternType, ResourceType
from strandline.authorization.authorizer import Verdict
from strandline.errors import ErrorCode
from strandline.node.authorization.audit import LINES_PER_SECOND, Asked, Audit
from strandline.node.consumer_fast_path import ConsumerFastPath
from strandline.node.produce_fast_path import ProduceFastPath
from strandline.protocol.messages import create_acls, delete_acls, describe_acls
from strandline.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.types import ANONYMOUS, USER, Instant, Principal
from tests.node.cluster_world import ClusterWorld
from tests.node.messages import batch, fetch, produce, produced
from tests.node.test_authorization import ALICE, ON, ROOT, Secured, codes
from tests.node.world import Client, World

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def secured() -> Iterator[Secured]:
    made = Secured()
    yield made
    made.world.check()


def creation(**changes: Any) -> create_acls.AclCreation:
    values: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "ord",
        "resource_pattern_type": PatternType.PREFIXED,
        "principal": "User:alice",
        "host": "*",
        "operation": READ,
        "permission_type": 3,
    }
    return create_acls.AclCreation(**{**values, **changes})


def create(client: Client, *creations: create_acls.AclCreation, version: int = 3) -> list[Any]:
    answer = client.ask(create_acls.CreateAclsRequest(creations=list(creations)), version)
    return [ErrorCode(each.error_code) for each in answer.results]


def filters(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return {**values, **changes}


def described(client: Client, version: int = 3, **changes: Any) -> Any:
    return client.ask(describe_acls.DescribeAclsRequest(**filters(**changes)), version)


def names(client: Client, *topics: str, version: int = 13) -> dict[str, int]:
    asked = [MetadataRequestTopic(name=name) for name in topics] or None
    answer = client.ask(MetadataRequest(topics=asked), version)
    return {each.name: each.error_code for each in answer.topics}


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted(secured: Secured, version: int) -> None:
    root = secured.root
    bad = creation(resource_type=CLUSTER, resource_pattern_type=3)
    unknown = creation(operation=77)
    assert create(root, creation(), bad, unknown, creation(host="h"), version=version) == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    [resource] = described(root, version).resources
    assert (resource.resource_type, resource.resource_name, resource.pattern_type) == (2, "ord", 4)
    assert [(each.principal, each.host) for each in resource.acls] == [
        ("User:alice", "*"),
        ("User:alice", "h"),
    ]
    matched = described(root, version, resource_name_filter="orders", pattern_type_filter=2)
    assert len(matched.resources) == 1
    assert not described(root, version, principal_filter="User:bob").resources
    assert described(root, version, operation=99).error_code == ErrorCode.INVALID_REQUEST
    asked = [
        delete_acls.DeleteAclsFilter(**filters(host_filter="h")),
        delete_acls.DeleteAclsFilter(**filters(permission_type=9)),
        delete_acls.DeleteAclsFilter(**filters(resource_name_filter="nothing")),
    ]
    first, broken, none = root.ask(
        delete_acls.DeleteAclsRequest(filters=asked), version
    ).filter_results
    assert [(each.resource_name, each.host) for each in first.matching_acls] == [("ord", "h")]
    assert (broken.error_code, none.matching_acls) == (ErrorCode.INVALID_REQUEST, [])
    assert len(described(root, version).resources[0].acls) == 1


def test_without_an_authorizer_security_is_disabled(world: World) -> None:
    client = world.connect()
    assert create(client, creation()) == [ErrorCode.SECURITY_DISABLED]
    answer = described(client)
    assert (answer.error_code, answer.error_message) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured.",
    )
    [result] = client.ask(
        delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**filters())]), 3
    ).filter_results
    assert result.error_code == ErrorCode.SECURITY_DISABLED
    assert not world.node.metadata.image.acls


def test_acls_outlive_the_process(secured: Secured) -> None:
    create(secured.root, creation())
    secured.world.restart()
    alice = secured.world.connect(ALICE)
    assert names(alice, "orders") == {"orders": ErrorCode.NONE}
    assert names(alice) == {"orders": ErrorCode.NONE}, "the others are hidden"


def test_what_may_not_be_seen_does_not_differ_from_what_is_not_there(secured: Secured) -> None:
    alice = secured.world.connect(ALICE)
    assert names(alice, "orders", "missing") == {"orders": DENIED, "missing": DENIED}
    assert "missing" not in secured.world.node.metadata.image.topics, "and is not created"
    assert names(alice) == {}
    for version in (0, 1):
        assert names(alice, "orders", version=version) == {"orders": DENIED}


def test_one_topic_of_a_request_may_be_denied(secured: Secured) -> None:
    secured.allow((WRITE, TOPIC, "orders"))
    alice = secured.world.connect(ALICE)
    both = produce({("orders", 0): batch(b"a"), ("payments", 0): batch(b"b")})
    answer = alice.ask(both, 9)
    assert {t.name: t.partition_responses[0].error_code for t in answer.responses} == {
        "orders": ErrorCode.NONE,
        "payments": DENIED,
    }
    assert secured.world.replica("payments").log.log_end_offset == 0
    assert alice.connection.fast_path is None, "nothing is learned of such a request"


def test_a_silent_producer_is_disconnected(secured: Secured) -> None:
    secured.allow((WRITE, TOPIC, "orders"))
    alice = secured.world.connect(ALICE)
    both = produce({("orders", 0): batch(b"a"), ("payments", 0): batch(b"b")}, acks=0)
    alice.send(both, 9, silent=True)
    secured.world.turn()
    assert alice.closed == "a produce with acks=0 failed with TOPIC_AUTHORIZATION_FAILED"
    assert secured.world.replica("orders").log.log_end_offset == 1


def test_the_fast_path_ends_with_the_permission(secured: Secured) -> None:
    secured.allow((WRITE, TOPIC, "orders"))
    alice = secured.world.connect(ALICE)
    for _ in range(3):
        assert produced(alice.ask(produce(batch(b"a"), acks=1), 9)).error_code == ErrorCode.NONE
    assert isinstance(alice.connection.fast_path, ProduceFastPath)
    before = secured.world.node.outbox.produced_at_once
    assert before
    secured.allow()
    assert produced(alice.ask(produce(batch(b"a"), acks=1), 9)).error_code == DENIED
    secured.allow((WRITE, TOPIC, "orders"))
    assert produced(alice.ask(produce(batch(b"a"), acks=1), 9)).error_code == ErrorCode.NONE
    assert secured.world.replica("orders").log.log_end_offset == 4


def test_the_fast_path_of_a_consumer_ends_with_the_permission(secured: Secured) -> None:
    """At once, and for a request of a known shape that waits."""
    secured.allow((READ, TOPIC, "orders"))
    secured.root.ask(produce(batch(b"a"), acks=1), 9)
    alice, world = secured.world.connect(ALICE), secured.world
    for _ in range(2):
        answer = alice.ask(fetch(("orders", 0, 0), max_wait_ms=5000), 11)
        assert answer.responses[0].partitions[0].records
    assert isinstance(alice.connection.fast_path, ConsumerFastPath)
    assert world.node.outbox.fetched_at_once == 1
    alice.send(fetch(("orders", 0, 1), max_wait_ms=5000), 11)
    world.turn()
    assert len(world.node.purgatory) == 1, "it waits"
    secured.allow()
    secured.root.ask(produce(batch(b"b"), acks=1), 9)
    world.advance(5000)
    for answer in (alice.answers[-1], alice.ask(fetch(("orders", 0, 0)), 11)):
        [partition] = answer.responses[0].partitions
        assert (partition.error_code, partition.records or b"") == (DENIED, b"")


def test_a_session_of_a_consumer_ends_reading_with_the_permission(secured: Secured) -> None:
    secured.allow((READ, TOPIC, "orders"))
    secured.root.ask(produce(batch(b"a"), acks=1), 9)
    alice = secured.world.connect(ALICE)
    first = alice.ask(fetch((secured.topic_id, 0, 0), session=(0, 0)), 14)
    [partition] = first.responses[0].partitions
    assert partition.error_code == ErrorCode.NONE
    assert partition.records
    at_end = fetch((secured.topic_id, 0, 1), session=(first.session_id, 1), max_wait_ms=5000)
    alice.send(at_end, 14)
    secured.world.turn()
    assert len(secured.world.node.purgatory) == 1, "it waits"
    secured.allow()
    secured.root.ask(produce(batch(b"b"), acks=1), 9)
    secured.world.advance(5000)
    [partition] = alice.answers[-1].responses[0].partitions
    assert (partition.error_code, partition.records or b"") == (DENIED, b"")


def test_a_client_that_claims_to_be_a_broker_gets_no_session(secured: Secured) -> None:
    secured.allow((READ, TOPIC, "orders"))
    alice = secured.world.connect(ALICE)
    asked = fetch((secured.topic_id, 0, 0), session=(0, 0), replica_id=2)
    answer = alice.ask(asked, 14)
    assert codes(answer) == {ErrorCode.NONE, DENIED}
    assert answer.session_id == 0
    assert not len(secured.world.node.routes.fetch_sessions or ())
    again = alice.ask(fetch(session=(7, 3), replica_id=2), 14)
    assert again.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_operations_that_are_told_are_those_that_are_allowed(secured: Secured) -> None:
    secured.allow((READ, TOPIC, "orders"), (Operation.CREATE, CLUSTER, CLUSTER_NAME))
    alice = secured.world.connect(ALICE)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name="orders")],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = alice.ask(request, 10)
    assert answer.topics[0].topic_authorized_operations == 1 << READ | 1 << DESCRIBE
    assert answer.cluster_authorized_operations == 0, "without Describe nothing is told"
    secured.allow((DESCRIBE, CLUSTER, CLUSTER_NAME))
    assert alice.ask(request, 10).cluster_authorized_operations == 1 << DESCRIBE


def test_pages_of_all_topics_have_those_that_may_be_seen(secured: Secured) -> None:
    alice = secured.world.connect(ALICE)
    assert alice.ask(DescribeTopicPartitionsRequest(topics=[]), 0).topics == []
    secured.allow((DESCRIBE, TOPIC, "payments"), (DESCRIBE, TOPIC, "orders"))
    page = alice.ask(DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1), 0)
    assert [each.name for each in page.topics] == ["orders"]
    rest = DescribeTopicPartitionsRequest(
        topics=[], cursor=Cursor(topic_name=page.next_cursor.topic_name, partition_index=0)
    )
    assert [each.name for each in alice.ask(rest, 0).topics] == ["payments"]


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        json.loads(record.getMessage())
        for record in caplog.records
        if record.name == "strandline.audit"
    ]


def test_denials_are_audited_once_a_minute(
    secured: Secured, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "strandline.audit")
    bob = secured.world.connect(Principal(USER, "bob"))
    for _ in range(3):
        bob.ask(produce(batch(b"a"), acks=1), 9)
    [line] = lines(caplog)
    assert line.pop("time").endswith("Z")
    assert line == {
        "broker": 1,
        "principal": "User:bob",
        "host": "test-host",
        "listener": "PLAINTEXT",
        "client_id": "test",
        "api": "PRODUCE",
        "operation": "Write",
        "resource_type": "Topic",
        "resource": "orders",
        "allowed": False,
        "reason": "no ACL covers it",
    }
    secured.world.advance(60_000)
    bob.ask(produce(batch(b"a"), acks=1), 9)
    assert lines(caplog)[-1]["repeated"] == 2


def test_what_is_allowed_is_audited_on_demand(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline.audit")
    world = World(*ON, "strandline.audit.log.allowed=true")
    names(world.connect(ROOT), "orders")
    assert [(line["allowed"], line["reason"]) for line in lines(caplog)] == [
        (True, "it is one of super.users")
    ] * len(lines(caplog))
    assert lines(caplog)
    consumer = world.connect(ROOT)
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    consumer.ask(CreateTopicsRequest(topics=[topic]), 5)
    for _ in range(2):
        consumer.ask(fetch(("orders", 0, 0)), 11)
    assert consumer.connection.fast_path is None, "each fetch is a line, or counted in one"
    consumer.ask(DeleteTopicsRequest(topic_names=["orders"]), 5)
    assert lines(caplog)[-1]["api"] == "DELETE_TOPICS"
    world.check()


def test_the_audit_log_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline.audit")
    audit = Audit(1, tells_allowed=False)

    def deny(count: int, at_ms: int) -> None:
        for number in range(count):
            asked = Asked(ANONYMOUS, "h", "PRODUCE", WRITE, TOPIC, f"{at_ms}-{number}".ljust(1000))
            audit.note(
                asked,
                verdict=Verdict(False, "no"),
                listener="L",
                client_id="x" * 10_000,
                now=Instant(at_ms, 0),
            )

    deny(5000, 1000)
    assert len(lines(caplog)) == LINES_PER_SECOND
    assert len(audit.denials) == 1000
    assert max(len(each.resource) for each in audit.denials) == 300
    deny(1, 2000)
    assert lines(caplog)[-1]["suppressed"] == 5000 - LINES_PER_SECOND
    assert max(len(record.getMessage()) for record in caplog.records) < 1000


def test_brokers_replicate_with_cluster_action_and_nothing_else(
    make_world: Callable[..., ClusterWorld],
) -> None:
    """The principal of a broker is no super user: what it needs is exactly this."""
    cluster = make_world(2, ON[0], "super.users=User:root")

    def ask(broker_id: int, message: Any, version: int) -> Any:
        client = cluster[broker_id].connect()
        client.connection.principal = ROOT
        return client.ask(message, version)

    def allow(*permissions: tuple[Operation, ResourceType, str]) -> None:
        creations = [
            creation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=3,
                principal=str(ANONYMOUS),
                operation=operation,
            )
            for operation, kind, name in permissions
        ]
        answer = ask(1, create_acls.CreateAclsRequest(creations=creations), 3)
        assert {each.error_code for each in answer.results} == {ErrorCode.NONE}

    controller = cluster.controller.broker_id
    topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=2)
    answer = ask(controller, CreateTopicsRequest(topics=[topic]), 7)
    assert answer.topics[0].error_code == ErrorCode.NONE
    cluster.run(1000)
    leader = cluster.leader_of("orders").broker_id
    follower = 3 - leader
    stored = ask(leader, produce(batch(b"a"), acks=1), 9)
    assert produced(stored).error_code == ErrorCode.NONE
    cluster.run(3000)
    assert cluster.replica(follower, "orders").log.log_end_offset == 0, "it is denied"
    allow((Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME))
    cluster.run_until(lambda: cluster.replica(follower, "orders").log.log_end_offset == 1)
    cluster.run_until(lambda: len(cluster.partition("orders").in_sync_replicas) == 2)
    denied = {
        (asked.operation, asked.resource_type)
        for broker_id in (1, 2)
        for authority in [cluster[broker_id].node.authority]
        if authority is not None
        for asked in authority.audit.denials
    }
    assert denied == {(Operation.CLUSTER_ACTION, CLUSTER)}


def test_a_pattern_matches_what_its_member_may_see(secured: Secured) -> None:
    secured.allow((READ, ResourceType.GROUP, "k"), (DESCRIBE, TOPIC, "orders"))
    alice = secured.world.connect(ALICE)
    beat = ConsumerGroupHeartbeatRequest(
        group_id="k",
        member_id="m",
        rebalance_timeout_ms=1000,
        subscribed_topic_regex=".*",
        topic_partitions=[],
    )
    epoch = alice.ask(beat, 1).member_epoch
    assigned: set[Any] = set()
    for _ in range(5):
        secured.world.advance(2000)
        answer = alice.ask(
            ConsumerGroupHeartbeatRequest(group_id="k", member_id="m", member_epoch=epoch), 1
        )
        assert answer.error_code == ErrorCode.NONE
        epoch = answer.member_epoch
        if answer.assignment is not None:
            assigned |= {each.topic_id for each in answer.assignment.topic_partitions}
    assert assigned == {secured.topic_id}
