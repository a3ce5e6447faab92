"""A cluster with users and ACLs, whose brokers log in with each other: clients are held to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

import strandline
from strandline import Acl
from strandline.testing import Cluster

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root;User:broker",
}
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    users = {"root": "r", "alice": "a"}
    with Cluster(brokers=2, security="SASL_PLAINTEXT", users=users, settings=SETTINGS) as cluster:
        cluster.create_topic("orders", replication_factor=2, min_insync_replicas=2)
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[strandline.Admin]:
    with strandline.Admin(cluster.client_config("root")) as admin:
        yield admin
        admin.delete_acls(admin.list_acls())


def outcome(cluster: Cluster, **settings: Any) -> int | None:
    """The error with which a record of alice comes back, or None if it is stored."""
    errors: list[KafkaError | None] = []
    producer = confluent_kafka.Producer({**cluster.client_config("alice"), **settings})
    try:
        producer.produce("orders", b"v", on_delivery=lambda error, _: errors.append(error))
    except confluent_kafka.KafkaException as refused:
        return int(refused.args[0].code())
    assert producer.flush(PATIENCE_S) == 0
    [error] = errors
    return None if error is None else int(error.code())


def first_of(cluster: Cluster, group: str) -> tuple[bytes | None, int | None]:
    """The first record that alice reads as a member, or the error that she gets."""
    consumer = confluent_kafka.Consumer(
        {
            **cluster.client_config("alice"),
            "group.id": group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["orders"])
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, "neither a record nor an error"
            error = message.error()
            if error is None or not error.retriable():
                return message.value(), None if error is None else int(error.code())
    finally:
        consumer.close()


def test_a_producer_needs_write(cluster: Cluster, admin: strandline.Admin) -> None:
    assert outcome(cluster) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    admin.create_acls([Acl("User:alice", "Write", "Topic", "ord", "Prefixed")])
    assert outcome(cluster) is None
    assert outcome(cluster, **{"enable.idempotence": True}) is None, "to write some topic is enough"
    admin.create_acls([Acl("User:*", "All", "Topic", "orders", permission="Deny")])
    assert outcome(cluster) == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_consumer_needs_its_group_and_its_topic(
    cluster: Cluster, admin: strandline.Admin
) -> None:
    with strandline.Producer(cluster.client_config("root")) as producer:
        producer.send("orders", b"v")
    admin.create_acls([Acl("User:alice", "Describe", "Topic", "orders")])
    assert first_of(cluster, "g1")[1] == KafkaError.GROUP_AUTHORIZATION_FAILED
    admin.create_acls([Acl("User:alice", "Read", "Group", "g1")])
    assert first_of(cluster, "g1")[1] == KafkaError.TOPIC_AUTHORIZATION_FAILED
    admin.create_acls([Acl("User:alice", "Read", "Topic", "orders")])
    assert first_of(cluster, "g1") == (b"v", None)


def test_only_super_users_write_acls(cluster: Cluster, admin: strandline.Admin) -> None:
    with (
        strandline.Admin(cluster.client_config("alice")) as mine,
        pytest.raises(strandline.ProtocolError, match="Cluster authorization failed"),
    ):
        mine.create_acls([Acl("User:alice", "All", "Topic", "*")])
    assert admin.list_acls() == []
