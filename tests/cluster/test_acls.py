"""ACLs in the metadata: Kafka's nodes, the image, and the decisions that change them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.authorization.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from strandline.authorization.filters import AclFilter
from strandline.cluster.controller import create_acls, delete_acls
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import MalformedNode, MultiRefused
from strandline.cluster.tree import is_valid_path
from strandline.cluster.znodes import AclNode, acl_path, resource_of
from strandline.errors import ErrorCode
from tests.cluster.story import Story

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TRANSACTIONAL_ID, "tx/", PatternType.PREFIXED)
READS = AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW)
NO_WRITES = AclEntry("User:bob", "10.0.0.1", Operation.WRITE, Permission.DENY)

KAFKAS = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow",'
    b'"operation":"Read","host":"*"},{"principal":"User:bob","permissionType":"Deny",'
    b'"operation":"Write","host":"10.0.0.1"}]}'
)


@pytest.fixture
def story() -> Story:
    return Story(1)


def test_a_node_is_as_kafka_writes_it() -> None:
    node = AclNode.decode(ORDERS, KAFKAS)
    assert node == AclNode(ORDERS, (READS, NO_WRITES))
    assert node.encode() == KAFKAS
    assert node.path == "/kafka-acl/Topic/orders"
    assert acl_path(PREFIX) == "/kafka-acl-extended/prefixed/TransactionalId/tx%2F"
    configs = AclEntry("User:a", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW)
    assert b'"DescribeConfigs"' in AclNode(ORDERS, (configs,)).encode()
    assert resource_of(PatternType.LITERAL, "Unheard", "x") is None


def test_an_acl_that_is_there_twice_counts_once() -> None:
    twice = KAFKAS.replace(b"]}", b"," + KAFKAS[KAFKAS.index(b"[") + 1 :], 1)
    assert AclNode.decode(ORDERS, twice).entries == (READS, NO_WRITES)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":["x"]}',
        KAFKAS.replace(b'"Read"', b'"Reed"'),
        KAFKAS.replace(b'"Read"', b'"Any"'),
        KAFKAS.replace(b'"Deny"', b'"Any"'),
        KAFKAS.replace(b'"Deny"', b"1"),
        KAFKAS.replace(b"host", b"hosts"),
    ],
)
def test_other_content_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedNode):
        AclNode.decode(ORDERS, data)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.sampled_from(PatternType))
def test_every_name_has_a_path_and_comes_back(name: str, pattern: PatternType) -> None:
    if pattern in (PatternType.ANY, PatternType.MATCH):
        pattern = PatternType.LITERAL
    resource = ResourcePattern(ResourceType.GROUP, name, pattern)
    path = acl_path(resource)
    assert is_valid_path(path)
    kind, node = path.split("/")[-2:]
    assert resource_of(pattern, kind, node) == resource


def test_acls_come_and_go(story: Story) -> None:
    both = [AclBinding(ORDERS, READS), AclBinding(ORDERS, NO_WRITES), AclBinding(PREFIX, READS)]
    assert story.follow(create_acls(story.image, both)) == (None, None, None)
    assert story.image.acls[ORDERS].value.entries == (READS, NO_WRITES)
    assert set(story.image.acls) == {ORDERS, PREFIX}
    assert not create_acls(story.image, both).operations, "they are there"
    everything = story.follow(delete_acls(story.image, [AclFilter(principal="User:bob")]))
    assert everything == ((AclBinding(ORDERS, NO_WRITES),),)
    assert story.image.acls[ORDERS].value.entries == (READS,)
    story.follow(delete_acls(story.image, [AclFilter(), AclFilter(name="orders")]))
    assert not story.image.acls
    assert ClusterImage.from_view(story.tree.view()) == story.image


def test_two_brokers_do_not_overwrite_each_others_acls(story: Story) -> None:
    story.follow(create_acls(story.image, [AclBinding(ORDERS, READS)]))
    before = story.image
    story.follow(create_acls(before, [AclBinding(ORDERS, NO_WRITES)]))
    for late in (
        create_acls(before, [AclBinding(ORDERS, READS._replace(host="h"))]),
        delete_acls(before, [AclFilter()]),
    ):
        with pytest.raises(MultiRefused):
            story.tree.multi(late.operations)


@pytest.mark.parametrize(
    ("binding", "sentence"),
    [
        (AclBinding(ORDERS._replace(name=""), READS), "Invalid empty resource name"),
        (AclBinding(ORDERS._replace(type=ResourceType.ANY), READS), "one type"),
        (AclBinding(ORDERS._replace(pattern=PatternType.MATCH), READS), "literal or prefixed"),
        (AclBinding(ORDERS, READS._replace(operation=Operation.ANY)), "one operation"),
        (AclBinding(ORDERS, READS._replace(permission=Permission.ANY)), "allows or denies"),
        (AclBinding(ORDERS, READS._replace(principal="alice")), "'alice' is not of the form"),
        (AclBinding(ORDERS, READS._replace(host="")), "The host"),
        (
            AclBinding(ResourcePattern(ResourceType.CLUSTER, "x"), READS),
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
    ],
)
def test_an_acl_that_cannot_be_keeps_no_other_from_being_made(
    story: Story, binding: AclBinding, sentence: str
) -> None:
    problem, other = story.follow(create_acls(story.image, [binding, AclBinding(ORDERS, READS)]))
    assert other is None
    assert problem is not None
    assert problem.code is ErrorCode.INVALID_REQUEST
    assert sentence in problem.message
    assert list(story.image.acls) == [ORDERS]
