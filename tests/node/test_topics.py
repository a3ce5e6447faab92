"""Topics come, change and go: auto-creation, deletion, settings altered live."""

from __future__ import annotations

import pytest

from strandline.cluster.store import (
    Create,
    InvalidPath,
    MultiTooLarge,
    OutcomeUnknown,
    StoreError,
    StoreUnavailable,
)
from strandline.errors import ErrorCode
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.node.messages import batch, fetch, fetched, produce, produced
from tests.node.world import Client, World, partition

TOPIC, BROKER = 2, 4


def ask_for(client: Client, *names: str, create: bool = True) -> list[tuple[str | None, int, int]]:
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )
    return [(t.name, t.error_code, len(t.partitions)) for t in client.ask(request, 9).topics]


def alter(client: Client, kind: int, name: str, **configs: str | None) -> int:
    entries = [
        AlterableConfig(
            name=key.replace("_", "."), value=value, config_operation=1 if value is None else 0
        )
        for key, value in configs.items()
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=kind, resource_name=name, configs=entries)]
    )
    return int(client.ask(request, 1).responses[0].error_code)


def test_metadata_waits_for_the_topic_it_creates(world: World) -> None:
    world.holds_metadata = True
    client = world.connect()
    request = MetadataRequest(topics=[MetadataRequestTopic(name="new")])
    client.send(request, 9)
    world.turn()
    assert client.answers == []
    world.write_metadata(world.held.popleft())
    world.turn()
    (topic,) = client.answers[0].topics
    assert (topic.error_code, len(topic.partitions)) == (0, 1)
    assert topic.partitions[0].leader_id == 1
    world.holds_metadata = False
    assert produced(client.ask(produce(batch(b"a"), "new"), 9)).error_code == 0


def test_the_client_may_be_gone_when_its_topic_is_created(world: World) -> None:
    world.holds_metadata = True
    client = world.connect()
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9)
    world.turn()
    client.close()
    world.write_metadata(world.held.popleft())
    world.turn()
    assert client.answers == []
    assert world.replica("new").log.log_end_offset == 0


def test_two_clients_who_create_the_same_topic_both_get_it(world: World) -> None:
    world.holds_metadata = True
    clients = [world.connect(), world.connect()]
    for client in clients:
        client.send(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 9)
    world.turn()
    world.holds_metadata = False
    while world.held:
        world.write_metadata(world.held.popleft())
        world.turn()
    assert [client.answers[0].topics[0].error_code for client in clients] == [0, 0]
    ids = {client.answers[0].topics[0].partitions[0].leader_epoch for client in clients}
    assert len(ids) == 1


def test_creation_can_be_declined_by_client_and_broker(world: World) -> None:
    client = world.connect()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ask_for(client, "new", create=False) == [("new", unknown, 0)]
    assert alter(client, BROKER, "", auto_create_topics_enable="false") != 0
    quiet = World("auto.create.topics.enable=false")
    assert ask_for(quiet.connect(), "new") == [("new", unknown, 0)]


def test_names_that_are_not_allowed_are_not_created(world: World) -> None:
    invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
    for name in ("", ".", "..", "a/b", "x" * 250, "ü"):
        assert ask_for(world.connect(), name) == [(name, invalid, 0)]


def test_creation_while_the_store_is_away_is_a_retriable_error(world: World) -> None:
    client = world.connect()
    for error in (StoreUnavailable("away"), OutcomeUnknown("who knows")):
        world.store_error = error
        ((_, code, _),) = ask_for(client, "new")
        assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.store_error = None
    assert ask_for(client, "new") == [("new", 0, 1)]


def test_creating_topics_while_the_store_is_away(world: World) -> None:
    world.store_error = StoreUnavailable("away")
    topic = CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    answer = world.connect().ask(CreateTopicsRequest(topics=[topic], timeout_ms=10), 5)
    assert answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.store_error = None


def test_new_partitions_can_be_used_at_once(world: World) -> None:
    client = world.connect()
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)], timeout_ms=10
    )
    assert client.ask(request, 3).results[0].error_code == 0
    for number in range(3):
        assert produced(client.ask(produce(batch(b"a"), "orders", number), 9)).error_code == 0
    answer = produced(client.ask(produce(batch(b"a"), "orders", 3), 9))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_fast_path_forgets_a_deleted_topic(world: World) -> None:
    client = world.connect()
    for _ in range(3):
        client.ask(produce(batch(b"a")), 9)
    world.delete_topic("orders")
    answer = produced(client.ask(produce(batch(b"a")), 9))
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    world.create_topic("orders")
    for base in range(3):
        assert produced(client.ask(produce(batch(b"a")), 9)).base_offset == base


def test_files_of_a_deleted_topic_go_after_the_delay(world: World) -> None:
    world.connect().ask(produce(batch(b"a")), 9)
    world.delete_topic("orders")
    names = world.files.list_directory("/data")
    assert "orders-0" not in names
    assert [name.endswith("-delete") for name in names if name.startswith("orders")] == [True]
    world.advance(120_000)
    assert not [name for name in world.files.list_directory("/data") if "orders" in name]
    assert world.node.replicas.logs.removed == []


def test_settings_of_a_topic_reach_its_log_live(world: World) -> None:
    client = world.connect()
    client.ask(produce(batch(b"x" * 500)), 9)
    client.ask(produce(batch(b"x" * 500)), 9)
    assert alter(client, TOPIC, "orders", max_message_bytes="100") == 0
    answer = produced(client.ask(produce(batch(b"x" * 500)), 9))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert alter(client, TOPIC, "orders", max_message_bytes=None) == 0
    assert produced(client.ask(produce(batch(b"x" * 500)), 9)).error_code == 0


def test_log_append_time_reaches_the_fast_path(world: World) -> None:
    client = world.connect()
    for _ in range(3):
        assert produced(client.ask(produce(batch(b"a")), 9)).log_append_time_ms == -1
    assert alter(client, TOPIC, "orders", message_timestamp_type="LogAppendTime") == 0
    answer = produced(client.ask(produce(batch(b"a")), 9))
    assert answer.log_append_time_ms == world.now.wall_ms


def test_retention_moves_the_start_and_wakes_who_waits(world: World) -> None:
    client = world.connect()
    assert alter(client, TOPIC, "orders", segment_bytes="1048576", retention_ms="1000") == 0
    client.ask(produce(batch(b"x" * 700_000)), 9)
    client.ask(produce(batch(b"x" * 700_000)), 9)
    waiting = world.connect()
    waiting.send(fetch(("orders", 0, 1), max_wait_ms=2**31 - 1, min_bytes=10_000_000), 11)
    world.advance(400_000)
    answer = fetched(waiting.answers[0])["orders", 0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.replica("orders").log.log_start_offset == 2


def test_a_broker_setting_reaches_every_topic_without_one_of_its_own(world: World) -> None:
    client = world.connect()
    assert alter(client, BROKER, "", message_max_bytes="150") == 0
    answer = produced(client.ask(produce(batch(b"x" * 500)), 9))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    world.restart()
    answer = produced(world.connect().ask(produce(batch(b"x" * 500)), 9))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_deleting_and_creating_in_a_row_leaves_one_directory_each(world: World) -> None:
    for _ in range(5):
        world.delete_topic("orders")
        world.create_topic("orders")
    assert partition("orders") in world.directory.logs
    assert len(world.node.replicas) == 1
    names = [n for n in world.files.list_directory("/data") if n.startswith("orders")]
    assert len(names) == 6


@pytest.mark.parametrize(
    "error",
    [
        MultiTooLarge(request_bytes=2_000_000, request_bytes_max=1_000_000),
        InvalidPath("/brokers/topics/x", 0),
    ],
)
def test_a_request_that_the_store_can_never_write_is_not_to_be_repeated(
    world: World, error: StoreError
) -> None:
    world.store_error = error
    topic = CreatableTopic(name="x", num_partitions=1, replication_factor=1)
    (answer,) = world.connect().ask(CreateTopicsRequest(topics=[topic]), 5).topics
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_an_unreadable_topic_node_is_left_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    changes = world.tree.multi(
        [
            Create("/config/topics/orders", b"no json"),
            Create("/config/topics/later", b'{"version":1,"config":{"retention.ms":"7"}}'),
        ]
    ).changes
    assert changes is not None
    world.metadata_changed(changes)
    assert "'/config/topics/orders' is unusable" in caplog.text
    image = world.node.metadata.image
    assert image.zxid == changes.zxid
    assert [resource.name for resource in image.configs] == ["later"]
    alteration = AlterableConfig(name="retention.ms", config_operation=0, value="9")
    resource = AlterConfigsResource(
        resource_type=TOPIC, resource_name="orders", configs=[alteration]
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = world.connect().ask(request, 1).responses
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert "'/config/topics/orders' is unusable" in answer.error_message


def test_names_that_differ_only_in_case_are_refused_where_they_are_one_directory() -> None:
    """macOS and Windows make one directory of `Orders-0` and `orders-0`: two logs in one."""
    world = World()
    client = world.connect()
    assert ask_for(client, "orders") == [("orders", 0, 1)]
    world.node.settings.ignores_case = True
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in ("Orders", "New", "NEW", "orders2")
    ]
    answer = client.ask(CreateTopicsRequest(topics=topics), 7)
    assert [(each.name, each.error_code) for each in answer.topics] == [
        ("Orders", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("New", 0),
        ("NEW", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("orders2", 0),
    ]
    assert "differs only in case from the topic 'orders'" in answer.topics[0].error_message
    assert ask_for(client, "ORDERS") == [("ORDERS", ErrorCode.INVALID_TOPIC_EXCEPTION, 0)]


def test_names_that_differ_only_in_case_are_two_topics_elsewhere(world: World) -> None:
    client = world.connect()
    names = ("orders", "Orders", "ORDERS")
    assert ask_for(client, *names) == [(name, 0, 1) for name in names]


def test_a_log_is_never_made_in_the_directory_of_another_case(world: World) -> None:
    """Another broker of the cluster, on another file system, may have allowed the name."""
    world.directory.ignores_case = True
    client = world.connect()
    assert ask_for(client, "orders") == [("orders", 0, 1)]
    ask_for(client, "Orders")
    assert produced(client.ask(produce(batch(b"a"), "Orders"), 9)).error_code != 0
    assert produced(client.ask(produce(batch(b"a"), "orders"), 9)).error_code == 0
    assert not world.files.exists("/data/Orders-0")
