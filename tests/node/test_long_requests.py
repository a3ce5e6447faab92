"""Requests that write more than the metadata store takes at once, or whose answer has to wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.authorization.acls import Operation, PatternType, Permission, ResourceType
from strandline.broker.zookeeper_requests import REQUEST_BYTES_MAX, Multi
from strandline.cluster.controller.topic_writes import REMOVALS_PER_MULTI
from strandline.cluster.store import Delete, MultiTooLarge, SetData, StoreUnavailable
from strandline.cluster.znodes import ConfigResource, ControllerNode, ResourceKind
from strandline.errors import ErrorCode
from strandline.node.handlers.topics import LOOK_AGAIN_MS
from strandline.protocol.messages import alter_client_quotas as quotas
from strandline.protocol.messages import alter_user_scram_credentials as scram
from strandline.protocol.messages import create_acls, delete_acls
from strandline.protocol.messages import incremental_alter_configs as configs
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from strandline.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.node.test_unreadable_nodes import change
from tests.node.world import World

MANY = 250
LONG = "x" * 200
TOPIC = 2


@pytest.fixture
def world() -> Iterator[World]:
    """A node whose store takes as much at once as ZooKeeper. Logs need little disk."""
    world = World(
        "authorizer.class.name=kafka.security.authorizer.AclAuthorizer",
        "super.users=User:ANONYMOUS",
        "log.index.size.max.bytes=4096",
    )
    yield world
    world.check()


def ask(world: World, message: object, version: int, *, fails_at: int = -1) -> tuple[Any, int]:
    """The answer, and how many writes it took, none of which is large. The store is away when it
    gets write number `fails_at`."""
    client = world.connect()
    world.holds_metadata = True
    client.send(message, version)
    world.turn()
    written = 0
    while not client.answers:
        world.advance(1)
        while world.held:
            write = world.held.popleft()
            assert len(Multi(write.operations).serialize()) < REQUEST_BYTES_MAX / 2
            world.store_error = StoreUnavailable("It is gone.") if written == fails_at else None
            world.write_metadata(write)
            world.store_error = None
            written += 1
            world.turn()
    world.holds_metadata = False
    world.turn()
    return client.answers[0], written


def many(count: int = MANY) -> list[str]:
    return [f"{number:04}.{LONG}" for number in range(count)]


def creation(names: list[str], partitions: int = 1) -> CreateTopicsRequest:
    settings = {"cleanup.policy": "compact", "retention.ms": "604800000", "segment.ms": "86400000"}
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=text) for key, text in settings.items()],
        )
        for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=1000)


def retention(names: list[str]) -> configs.IncrementalAlterConfigsRequest:
    value = configs.AlterableConfig(name="retention.ms", config_operation=0, value="1000")
    resources = [
        configs.AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[value])
        for name in names
    ]
    return configs.IncrementalAlterConfigsRequest(resources=resources)


def deletion(*names: str, timeout_ms: int = 1000) -> DeleteTopicsRequest:
    topics = [DeleteTopicState(name=name) for name in names]
    return DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def readers(names: list[str]) -> create_acls.CreateAclsRequest:
    creations = [
        create_acls.AclCreation(
            resource_type=ResourceType.TOPIC,
            resource_name=name,
            resource_pattern_type=PatternType.LITERAL,
            principal=f"User:{name}",
            host="*",
            operation=Operation.READ,
            permission_type=Permission.ALLOW,
        )
        for name in names
    ]
    return create_acls.CreateAclsRequest(creations=creations)


def removal(*names: str | None) -> delete_acls.DeleteAclsRequest:
    filters = [
        delete_acls.DeleteAclsFilter(
            resource_type_filter=ResourceType.ANY,
            resource_name_filter=name,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        for name in names
    ]
    return delete_acls.DeleteAclsRequest(filters=filters)


def codes(results: list[Any]) -> list[int]:
    return [result.error_code for result in results]


def test_many_topics_are_made_changed_and_deleted_in_parts(world: World) -> None:
    names = many()
    answer, writes = ask(world, creation([*names, names[0]]), 7)
    assert codes(answer.topics) == [ErrorCode.INVALID_REQUEST, *[ErrorCode.NONE] * (MANY - 1)]
    assert writes > 2
    answer, _ = ask(world, creation(names[:1]), 7)
    image = world.node.metadata.image
    assert image.topics.keys() == set(names)

    answer, writes = ask(world, retention(names), 1)
    assert (codes(answer.responses), writes) == ([ErrorCode.NONE] * MANY, 3)

    grown = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in names]
    answer, _ = ask(world, CreatePartitionsRequest(topics=grown, timeout_ms=1000), 3)
    assert codes(answer.results) == [ErrorCode.NONE] * MANY

    by_id = DeleteTopicState(name=None, topic_id=image.topics[names[0]].topic_id)
    request_all = deletion(*names)
    request_all.topics.append(by_id)
    answer, writes = ask(world, request_all, 6)
    assert codes(answer.responses) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        *[ErrorCode.NONE] * (MANY - 1),
    ]
    assert world.node.metadata.image.topics.keys() == {names[0]}


def test_topics_that_are_used_are_made_in_parts(world: World) -> None:
    names = many()
    wanted = [MetadataRequestTopic(name=name) for name in names]
    answer, writes = ask(world, MetadataRequest(topics=wanted), 9)
    assert codes(answer.topics) == [ErrorCode.NONE] * MANY
    assert writes > 2


def test_an_answer_tells_what_was_done_before_the_store_failed(world: World) -> None:
    names = many()
    ask(world, creation(names), 7)
    answer, _ = ask(world, deletion(*names), 6, fails_at=1)
    of_topics = {each.name: each.error_code for each in answer.responses}
    left = [name for name, code in of_topics.items() if code == ErrorCode.KAFKA_STORAGE_ERROR]
    assert world.node.metadata.image.topics.keys() == set(left) == set(names[100:])
    assert set(of_topics.values()) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize("is_half_done", [True, False])
def test_a_request_is_to_be_repeated_only_if_nothing_is_done(
    world: World, is_half_done: bool
) -> None:
    names = many()
    client = world.connect()
    world.holds_metadata = True
    if is_half_done:
        client.send(creation(names), 7)
        world.turn()
        world.write_metadata(world.held.popleft())
    change(world, Delete(ControllerNode.path))
    if not is_half_done:
        client.send(creation(names), 7)
    world.advance(1)
    (answer,) = client.answers
    made = world.node.metadata.image.topics
    code = ErrorCode.REQUEST_TIMED_OUT if is_half_done else ErrorCode.NOT_CONTROLLER
    assert codes(answer.topics) == [0 if name in made else code for name in names]
    assert bool(made) is is_half_done
    world.holds_metadata = False


@pytest.mark.parametrize("validate_only", [True, False])
def test_names_that_exclude_each_other_do_so_however_far_apart(
    world: World, validate_only: bool
) -> None:
    world.node.settings.ignores_case = True
    request = creation(["a.b", "orders", *many(), "a_b", "Orders", "A.B"])
    request.validate_only = validate_only
    answer, _ = ask(world, request, 7)
    refused = {each.name: each.error_code for each in answer.topics if each.error_code}
    assert refused == dict.fromkeys(("a_b", "Orders", "A.B"), ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_what_cannot_be_written_is_refused_alone(world: World) -> None:
    names = many()
    ask(world, creation(names), 7)
    bad = names[30]
    spoilt = ConfigResource(ResourceKind.TOPIC, bad).path
    change(world, SetData(spoilt, b"oops"))
    answer, writes = ask(world, retention(names), 1)
    of_topics = {each.resource_name: each.error_code for each in answer.responses}
    assert of_topics == {**dict.fromkeys(names, 0), bad: ErrorCode.KAFKA_STORAGE_ERROR}
    assert list(of_topics) == names
    assert writes < 20
    answer, _ = ask(world, deletion(*names), 6)
    assert codes(answer.responses) == [ErrorCode.NONE] * MANY


def test_a_single_change_that_is_too_large_is_refused(world: World) -> None:
    world.create_topic("orders")
    world.store_error = MultiTooLarge(request_bytes=2_000_000, request_bytes_max=1_000_000)
    answer = world.connect().ask(retention(["orders"]), 1)
    assert codes(answer.responses) == [ErrorCode.INVALID_REQUEST]
    world.store_error = None


def test_a_request_in_parts_may_make_as_many_partitions_as_one_in_one(world: World) -> None:
    answer, _ = ask(world, creation(many(101), 100), 7)
    assert set(codes(answer.topics)) == {ErrorCode.POLICY_VIOLATION}
    names = many(102)
    ask(world, creation(names), 7)
    grown = [CreatePartitionsTopic(name=name, count=101, assignments=None) for name in names]
    request = CreatePartitionsRequest(topics=grown, timeout_ms=1000, validate_only=True)
    answer, _ = ask(world, request, 3)
    assert codes(answer.results) == [
        *[ErrorCode.NONE] * 100,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.POLICY_VIOLATION,
    ]


def test_topics_are_gone_when_their_deletion_is_answered(world: World) -> None:
    """All together more than one write removes, and one by itself."""
    names = many(12)
    ask(world, creation(names, 100), 7)
    ask(world, creation(["huge"], REMOVALS_PER_MULTI + 1), 7)
    answer, _ = ask(world, deletion("huge", *names), 6)
    assert codes(answer.responses) == [ErrorCode.NONE] * 13
    image = world.node.metadata.image
    assert (image.topics, image.requested_deletions) == ({}, {})


def test_a_deletion_that_takes_longer_than_the_client_waits_goes_on(world: World) -> None:
    ask(world, creation(["huge"], REMOVALS_PER_MULTI + 1), 7)
    answer, _ = ask(world, deletion("huge", timeout_ms=0), 6)
    assert codes(answer.responses) == [ErrorCode.REQUEST_TIMED_OUT]
    assert not world.node.metadata.image.topics


def test_no_look_is_taken_at_a_deletion_whose_client_has_gone(world: World) -> None:
    ask(world, creation(["huge"], REMOVALS_PER_MULTI + 1), 7)
    client = world.connect()
    client.send(deletion("huge", timeout_ms=1_000_000), 6)
    world.holds_metadata = True
    world.turn()
    world.write_metadata(world.held.popleft())
    world.advance(100)
    client.close()
    world.advance(LOOK_AGAIN_MS)
    deadline_ms = world.node.next_deadline_ms()
    assert deadline_ms is None or deadline_ms > world.monotonic_ms + LOOK_AGAIN_MS


def test_many_acls_are_made_and_deleted_in_parts(world: World) -> None:
    names = many(1000)
    answer, writes = ask(world, readers([*names[:1], "", *names, *names[:1]]), 3)
    assert codes(answer.results) == [0, ErrorCode.INVALID_REQUEST, *[0] * 1001]
    assert writes == 11
    answer, writes = ask(world, removal(None, None), 3)
    deleted = [
        [acl.resource_name for acl in result.matching_acls] for result in answer.filter_results
    ]
    assert deleted == [names, names]
    assert not world.node.metadata.image.acls


def test_deleted_acls_are_told_when_the_store_fails_on_the_way(world: World) -> None:
    names = many()
    ask(world, readers(names), 3)
    answer, _ = ask(world, removal(*names, "none", None), 3, fails_at=1)
    *of_names, of_none, of_all = [
        (result.error_code, [acl.resource_name for acl in result.matching_acls])
        for result in answer.filter_results
    ]
    left = {resource.name for resource in world.node.metadata.image.acls}
    assert of_names == [
        (ErrorCode.KAFKA_STORAGE_ERROR, []) if name in left else (ErrorCode.NONE, [name])
        for name in names
    ]
    assert left == set(names[100:])
    assert (of_none, of_all) == ((ErrorCode.NONE, []), (ErrorCode.KAFKA_STORAGE_ERROR, []))


def test_many_quotas_and_credentials_are_written_in_parts(world: World) -> None:
    names = many()
    limits = [quotas.OpData(key="producer_byte_rate", value=1000.0)]
    entries = [
        quotas.EntryData(
            entity=[quotas.EntityData(entity_type="user", entity_name=name)], ops=limits
        )
        for name in [*names, names[0]]
    ]
    answer, writes = ask(world, quotas.AlterClientQuotasRequest(entries=entries), 1)
    assert codes(answer.entries) == [*[0] * MANY, ErrorCode.INVALID_REQUEST]
    assert writes == 3
    upsertions = [
        scram.ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=b"s" * 16, salted_password=b"p" * 32
        )
        for name in names
    ]
    request = scram.AlterUserScramCredentialsRequest(upsertions=upsertions)
    answer, writes = ask(world, request, 0)
    assert (codes(answer.results), writes) == ([0] * MANY, 3)
