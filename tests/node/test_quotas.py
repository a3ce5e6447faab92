"""Quotas over the protocol, and what they do to clients that are beyond them."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest

from strandline.cluster.store import SetData
from strandline.errors import ErrorCode
from strandline.node.client_quotas import REMEMBERED_MAX
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import alter_client_quotas as altering
from strandline.protocol.messages import describe_client_quotas as describing
from strandline.protocol.messages import share_fetch as sharing
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from strandline.types import USER, Principal
from tests.current import current
from tests.node.messages import batch, fetch, produce, produced, values
from tests.node.world import Client, World

ALICE = Principal(USER, "alice")
KB = b"x" * 1000


def entity(**parts: str | None) -> list[altering.EntityData]:
    return [
        altering.EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in parts.items()
    ]


def alter(
    world: World, parts: list[altering.EntityData], version: int = 1, **limits: float | None
) -> Any:
    ops = [
        altering.OpData(key=name, value=value or 0.0, remove=value is None)
        for name, value in limits.items()
    ]
    request = altering.AlterClientQuotasRequest(entries=[altering.EntryData(entity=parts, ops=ops)])
    [result] = world.connect().ask(request, version).entries
    return result


def described(world: World, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    request = describing.DescribeClientQuotasRequest(
        components=[
            describing.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    answer = world.connect().ask(request, 1)
    if answer.entries is None:
        return ErrorCode(answer.error_code)
    return {
        tuple((part.entity_type, part.entity_name) for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }


def throttled(client: Client, size: int = 1000, *, acks: int = 1) -> int:
    """How long a produce request of about that size is to wait."""
    answer = client.ask(produce(batch(b"x" * size), acks=acks), 9)
    assert produced(answer).error_code == ErrorCode.NONE
    wait_ms: int = answer.throttle_time_ms
    return wait_ms


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(world: World, version: int) -> None:
    user, default = entity(user="a/b"), entity(client_id=None)
    assert alter(world, user, version, producer_byte_rate=1000.0).error_code == ErrorCode.NONE
    alter(world, user, version, consumer_byte_rate=2000.0)
    alter(world, default, version, consumer_byte_rate=3000.0)
    mine = {(("user", "a/b"),): {"consumer_byte_rate": 2000.0, "producer_byte_rate": 1000.0}}
    others = {(("client-id", None),): {"consumer_byte_rate": 3000.0}}
    assert described(world) == mine | others
    assert described(world, ("user", 0, "a/b"), strict=True) == mine
    assert described(world, ("user", 2, None)) == mine
    assert described(world, ("client-id", 1, None)) == others
    assert described(world, ("user", 0, "c")) == described(world, ("ip", 2, None)) == {}
    world.restart()
    alter(world, user, version, producer_byte_rate=None, consumer_byte_rate=None)
    assert described(world) == others
    assert described(world, ("x", 2, None)) is ErrorCode.UNSUPPORTED_VERSION
    for wrong in (
        [("user", 7, None)],
        [("", 2, None)],
        [("user", 2, None), ("user", 0, "u")],
        [("user", 0, None)],
        [("user", 1, "u")],
        [("ip", 2, None), ("user", 2, None)],
    ):
        assert described(world, *wrong) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("parts", "limits", "sentence"),
    [
        (entity(user="u"), {"nonsense": 1.0}, "Invalid configuration key nonsense"),
        (entity(user="u"), {"producer_byte_rate": 0.0}, "must be greater than 0"),
        (entity(user="u"), {"request_percentage": -0.5}, "must be greater than 0"),
        (entity(user="u"), {"producer_byte_rate": 1.5}, "cannot be a fractional value."),
        (entity(user="u"), {"producer_byte_rate": 1e-7}, "cannot be a fractional value."),
        (entity(user="u"), {"producer_byte_rate": 1e19}, "is too large for a LONG."),
        (entity(user="u"), {"producer_byte_rate": float("nan")}, "must be a number"),
        (entity(user="u"), {"connection_creation_rate": 5.0}, "Invalid configuration key"),
        (entity(ip="10.0.0.1"), {"producer_byte_rate": 5.0}, "Invalid configuration key"),
        (entity(ip="10.0.0.1"), {"connection_creation_rate": 3e9}, "is too large for an INT."),
        (entity(ip="a.host"), {"connection_creation_rate": 1.0}, "a.host is not an IP address"),
        (entity(ip="::1", user="u"), {"connection_creation_rate": 1.0}, "should not be combined"),
        (entity(user=""), {"producer_byte_rate": 1.0}, "Empty user not supported"),
        (entity(x="y"), {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: x"),
        ([], {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
    ],
)
def test_what_cannot_be_a_quota(
    world: World, parts: list[altering.EntityData], limits: dict[str, Any], sentence: str
) -> None:
    result = alter(world, parts, **limits)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert sentence in result.error_message
    assert described(world) == {}


def test_quotas_of_client_ids_of_users_and_of_addresses(world: World) -> None:
    both, others = entity(user="a/b", client_id="c/%"), entity(user="a/b", client_id=None)
    everyone = entity(user=None, client_id="c/%")
    alter(world, both, producer_byte_rate=1.0, request_percentage=0.5)
    alter(world, others, controller_mutation_rate=0.25)
    alter(world, everyone, consumer_byte_rate=6.0)
    alter(world, entity(ip="2001:DB8:0::1"), connection_creation_rate=5.0)
    alter(world, entity(ip=None), connection_creation_rate=7.0)
    exact = {
        (("user", "a/b"), ("client-id", "c/%")): {
            "producer_byte_rate": 1.0,
            "request_percentage": 0.5,
        }
    }
    of_user = exact | {(("user", "a/b"), ("client-id", None)): {"controller_mutation_rate": 0.25}}
    of_id = {(("user", None), ("client-id", "c/%")): {"consumer_byte_rate": 6.0}}
    addresses = {
        (("ip", "2001:db8::1"),): {"connection_creation_rate": 5.0},
        (("ip", None),): {"connection_creation_rate": 7.0},
    }
    world.restart()
    assert described(world) == of_user | of_id | addresses
    assert described(world, ("user", 0, "a/b")) == of_user
    assert described(world, ("user", 0, "a/b"), strict=True) == {}
    assert described(world, ("client-id", 0, "c/%"), ("user", 0, "a/b"), strict=True) == exact
    assert described(world, ("ip", 2, None)) == addresses
    assert {"/config/users/a%2Fb/clients/c%2F%25", "/config/users/<default>/clients/c%2F%25"} < {
        node.path for node in world.tree.view().nodes
    }
    # The nodes above go with the last of those below, unless the user has settings itself.
    alter(world, entity(user="a/b"), producer_byte_rate=9.0)
    alter(world, both, producer_byte_rate=None, request_percentage=None)
    alter(world, entity(user="a/b"), producer_byte_rate=None)
    assert described(world, ("user", 0, "a/b")).keys() == of_user.keys() - exact.keys()
    alter(world, others, controller_mutation_rate=None)
    alter(world, everyone, consumer_byte_rate=None)
    left = [n.path for n in world.tree.view().nodes if n.path.startswith("/config/users/")]
    assert left == []


def test_quotas_of_names_that_no_path_may_have(world: World) -> None:
    ops = [altering.OpData(key="producer_byte_rate", value=5.0, remove=False)]
    parts = (
        entity(client_id="good"),
        entity(client_id=".."),
        entity(user="."),
        entity(user="..", client_id="."),
    )
    entries = [altering.EntryData(entity=part, ops=ops) for part in parts]
    answer = world.connect().ask(altering.AlterClientQuotasRequest(entries=entries), 1)
    assert [each.error_code for each in answer.entries] == [ErrorCode.NONE] * 4
    world.restart()
    assert described(world).keys() == {
        (("client-id", "good"),),
        (("client-id", ".."),),
        (("user", "."),),
        (("user", ".."), ("client-id", ".")),
    }


def test_several_quotas_of_a_user_in_one_request(world: World) -> None:
    def ask(value: float) -> None:
        ops = [altering.OpData(key="producer_byte_rate", value=value, remove=not value)]
        parts = (entity(user="u", client_id="a"), entity(user="u"), entity(user="u", client_id="b"))
        entries = [altering.EntryData(entity=part, ops=ops) for part in parts]
        answer = world.connect().ask(altering.AlterClientQuotasRequest(entries=entries), 1)
        assert [each.error_code for each in answer.entries] == [ErrorCode.NONE] * 3

    ask(5.0)
    assert len(described(world)) == 3
    ask(0.0)
    assert described(world) == {}
    assert not [n.path for n in world.tree.view().nodes if n.path.startswith("/config/users/")]


@pytest.mark.parametrize("text", ["0", "-5", "1e-310", "nan", "inf", "-inf"])
def test_quotas_that_others_wrote_do_no_harm(world: World, text: str) -> None:
    """What is next to nothing makes clients wait; what is no number counts for nothing."""
    alter(world, entity(user="alice"), producer_byte_rate=5.0, controller_mutation_rate=5.0)
    path = "/config/users/alice"
    [data] = [node.data for node in world.tree.view().nodes if node.path == path]
    written = re.sub(rb'"5(\.0)?"', b'"%b"' % text.encode(), data)
    changes = world.tree.multi([SetData(path, written)]).changes
    assert changes is not None
    world.metadata_changed(changes)
    longest_ms = 0 if text.endswith(("n", "f")) else 2**31 - 1
    assert throttled(world.connect(ALICE)) == longest_ms
    topic = CreatableTopic(name="new", num_partitions=50, replication_factor=1)
    answer = world.connect(ALICE).ask(CreateTopicsRequest(topics=[topic]), 5)
    assert answer.throttle_time_ms == longest_ms


def test_the_time_of_requests_has_a_quota(world: World) -> None:
    ticks = iter(range(10**9, 10**12, 300_000_000))
    world.node.quotas.stopwatch = lambda: next(ticks)
    alter(world, entity(user="alice"), request_percentage=5.0)
    alice, bob = world.connect(ALICE), world.connect(Principal(USER, "bob"))
    question = describing.DescribeClientQuotasRequest()
    assert bob.ask(question, 1).throttle_time_ms == 0
    # Each takes 300 ms until the answer, of ten seconds in which 500 ms are allowed.
    assert alice.ask(question, 1).throttle_time_ms == 0
    assert throttled(alice) == 1000, "never longer than a window"
    assert alice.connection.fast_path is None
    assert not current(alice.connection.wants_input)
    world.advance(3000)  # the stopwatch of this test is ahead of the world's time
    assert alice.connection.wants_input
    assert alice.ask(fetch(("orders", 0, 0)), 11).throttle_time_ms == 1000


@pytest.mark.parametrize(("version", "strict"), [(6, True), (5, False)])
def test_partitions_made_and_removed_have_a_quota(world: World, version: int, strict: bool) -> None:
    alter(world, entity(user="alice"), controller_mutation_rate=1.0)
    alice = world.connect(ALICE)

    def make(name: str, partitions: int = 12, *, validate_only: bool = False) -> tuple[int, int]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = alice.ask(
            CreateTopicsRequest(topics=[topic], validate_only=validate_only), version
        )
        return answer.topics[0].error_code, answer.throttle_time_ms

    assert make("a", 100, validate_only=True) == (0, 0)
    assert make("a") == (0, 0 if strict else 1000), "11 in a burst, and one that is owed"
    assert make("a")[0] == ErrorCode.TOPIC_ALREADY_EXISTS
    refused = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, 1000) if strict else (0, 13_000)
    assert make("b") == refused
    deletion = DeleteTopicsRequest(topic_names=["a"])
    answer = alice.ask(deletion, 5 if strict else 4)
    assert (answer.responses[0].error_code, answer.throttle_time_ms) == (
        refused if strict else (0, 25_000)
    )
    world.advance(1000)
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="orders", count=3, assignments=None)]
    )
    answer = alice.ask(growth, 3 if strict else 2)
    assert answer.results[0].error_code == 0
    assert (answer.throttle_time_ms > 0) is not strict


@pytest.mark.parametrize("version", [1, 12])
def test_topics_made_since_a_client_asks_for_them_count_for_the_quota(
    world: World, version: int
) -> None:
    alter(world, entity(user="alice"), controller_mutation_rate=0.1)

    def ask(client: Client, *names: str) -> tuple[list[int], int]:
        asked = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked, allow_auto_topic_creation=True)
        answer = client.ask(request, version)
        return [topic.error_code for topic in answer.topics], answer.throttle_time_ms

    alice = world.connect(ALICE)
    refused = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_ms = 9000 if version >= 3 else 0  # before, there is no place for it in the answer
    assert ask(alice, "orders", "a", "b", "c") == ([0, 0, 0, refused], wait_ms)
    assert not alice.connection.wants_input
    assert world.node.metadata.image.topics.keys() == {"orders", "a", "b"}
    assert ask(world.connect(ALICE), "orders", "a") == ([0, 0], 0), "nothing is to be made"
    assert ask(world.connect(), "d") == ([0], 0), "others are not limited"
    world.advance(10_000)
    assert ask(alice, "c") == ([0], 0)


def test_a_producer_beyond_its_quota_is_told_to_wait_and_not_heard_meanwhile(
    world: World,
) -> None:
    alter(world, entity(user="alice"), producer_byte_rate=1000.0)
    alice, other = world.connect(ALICE), world.connect()
    assert throttled(alice) == 0
    wait_ms = throttled(alice, 20_000)
    assert 9_000 < wait_ms < 15_000
    assert not current(alice.connection.wants_input)
    assert throttled(other, 20_000) == 0, "others are not slowed"
    world.advance(wait_ms - 1)
    assert not current(alice.connection.wants_input)
    world.advance(1)
    assert alice.connection.wants_input
    assert throttled(alice, 10) == 0


def test_connections_of_a_user_share_its_quota(world: World) -> None:
    alter(world, entity(user=None), producer_byte_rate=1000.0)
    first, second = world.connect(ALICE), world.connect(ALICE)
    assert throttled(first, 9_000) == 0
    assert throttled(second, 9_000) > 5_000
    assert first.connection.wants_input
    assert throttled(world.connect(Principal(USER, "bob")), 9_000) == 0


def test_a_quota_ends_fast_paths_and_fast_paths_come_back(world: World) -> None:
    alice = world.connect(ALICE)
    for _ in range(3):
        throttled(alice)
    assert current(alice.connection.fast_path) is not None
    alter(world, entity(client_id="test"), producer_byte_rate=10_000.0)
    assert alice.connection.fast_path is None
    assert throttled(alice, 150_000) > 1_000
    alter(world, entity(client_id="test"), producer_byte_rate=None)
    world.advance(20_000)
    throttled(alice)
    assert alice.connection.fast_path is not None


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_a_consumer_beyond_its_quota_waits(world: World, version: int) -> None:
    throttled(world.connect(), 30_000)
    alter(world, entity(user="alice"), consumer_byte_rate=1000.0)
    alice = world.connect(ALICE)
    topic_id = world.node.metadata.image.topics["orders"].topic_id
    asked = fetch((topic_id if version > 12 else "orders", 0, 0))
    answer = alice.ask(asked, version)
    assert answer.responses[0].partitions[0].records
    assert 15_000 < answer.throttle_time_ms < 25_000
    assert not alice.connection.wants_input
    follower = alice
    world.advance(answer.throttle_time_ms)
    assert follower.connection.wants_input


@pytest.mark.parametrize("version", [4, 11, 12, 13, 17])
def test_an_answer_has_no_more_than_the_quota_lets_through_in_its_windows(
    world: World, version: int
) -> None:
    for _ in range(20):
        throttled(world.connect())
    alter(world, entity(user="alice"), consumer_byte_rate=500.0)
    alice = world.connect(ALICE)
    topic_id = world.node.metadata.image.topics["orders"].topic_id
    asked = fetch((topic_id if version > 12 else "orders", 0, 0), min_bytes=20_000)
    answer = alice.ask(asked, version)
    assert values(answer) == [KB] * 4, "5000 bytes, with what is around them"
    assert answer.throttle_time_ms == 0
    assert len(values(world.connect().ask(asked, version))) == 20, "others are not limited"


def share_fetch(epoch: int, topic_id: UUID) -> sharing.ShareFetchRequest:
    partition = sharing.FetchPartition(partition_index=0)
    topic = sharing.FetchTopic(topic_id=topic_id, partitions=[partition])
    return sharing.ShareFetchRequest(
        group_id="s",
        member_id="m",
        share_session_epoch=epoch,
        max_bytes=50_000_000,
        max_records=500,
        batch_size=500,
        topics=[] if epoch else [topic],
    )


@pytest.mark.parametrize(
    ("rate", "settings", "records"),
    [(500.0, (), 4), (1.0, (), 1), (None, (), 20), (None, ("fetch.max.bytes=5000",), 4)],
)
def test_a_member_of_a_share_group_gets_no_more_at_once_than_a_consumer(
    rate: float | None, settings: tuple[str, ...], records: int
) -> None:
    world = World(*settings)
    world.create_topic("orders")
    alter(world, entity(user="alice"), consumer_byte_rate=rate, producer_byte_rate=1e6)
    alice = world.connect(ALICE)
    topic_id = world.node.metadata.image.topics["orders"].topic_id
    joining = ShareGroupHeartbeatRequest(
        group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=["orders"]
    )
    alice.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["s"]), 6)
    alice.ask(joining, 1)
    world.advance(2000)
    alice.ask(share_fetch(0, topic_id), 2)
    world.advance(2000)  # the group begins at the end of the log
    for _ in range(20):
        throttled(world.connect())
    answer = alice.ask(share_fetch(1, topic_id), 2)
    [partition] = answer.responses[0].partitions
    acquired = partition.acquired_records
    assert sum(each.last_offset - each.first_offset + 1 for each in acquired) == records
    alice.close()
    world.check()


def test_a_client_that_leaves_while_it_must_wait_leaves_nothing(world: World) -> None:
    alter(world, entity(user="alice"), producer_byte_rate=1.0)
    alice = world.connect(ALICE)
    assert throttled(alice, 30_000) > 1_000_000
    alice.close()
    world.advance(60_000)
    assert throttled(world.connect()) == 0


def test_ids_that_clients_make_up_do_not_fill_the_memory(world: World) -> None:
    alter(world, entity(client_id=None), producer_byte_rate=1_000_000.0)
    quotas, client = world.node.quotas, world.connect()
    for number in range(REMEMBERED_MAX + 50):
        made_up = f"id-{number}".ljust(300 if number % 2 else 1)
        request: Request[Any] = Request(
            client.connection, world.node.outbox, ApiKey.PRODUCE, 9, 1, made_up, None
        )
        quotas.produced(request, 100, world.now)
        request.no_reply()
        client.connection.take_outgoing()
    assert len(quotas._uses) == REMEMBERED_MAX
    assert max(len(str(key)) for key in quotas._uses) < 250
    assert client.connection.wants_input
