"""Quotas over the protocol, and what they do to clients that are beyond them."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.node.client_quotas import REMEMBERED_MAX
from strandline.node.request import Request
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import alter_client_quotas as altering
from strandline.protocol.messages import describe_client_quotas as describing
from strandline.types import USER, Principal
from tests.node.messages import batch, fetch, produce, produced
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
    assert described(world, ("user", 7, None)) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("parts", "limits", "sentence"),
    [
        (entity(user="u"), {"nonsense": 1.0}, "Invalid configuration key nonsense"),
        (entity(user="u"), {"producer_byte_rate": 0.0}, "must be greater than 0"),
        (entity(user="u"), {"producer_byte_rate": 1.5}, "must be a Long value"),
        (entity(user="u"), {"producer_byte_rate": float("nan")}, "must be greater than 0"),
        (entity(user="u"), {"request_percentage": 5.0}, "is not enforced by this version"),
        (entity(user="u", client_id="c"), {"producer_byte_rate": 1.0}, "a client id together"),
        (entity(ip="10.0.0.1"), {"connection_creation_rate": 1.0}, "'ip' are not served"),
        (entity(user=""), {"producer_byte_rate": 1.0}, "is empty"),
        ([], {"producer_byte_rate": 1.0}, "An entity has a user or a client-id"),
    ],
)
def test_what_cannot_be_a_quota(
    world: World, parts: list[altering.EntityData], limits: dict[str, float], sentence: str
) -> None:
    result = alter(world, parts, **limits)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert sentence in result.error_message
    assert described(world) == {}


def test_a_producer_beyond_its_quota_is_told_to_wait_and_not_heard_meanwhile(
    world: World,
) -> None:
    alter(world, entity(user="alice"), producer_byte_rate=1000.0)
    alice, other = world.connect(ALICE), world.connect()
    assert throttled(alice) == 0
    wait_ms = throttled(alice, 20_000)
    assert 9_000 < wait_ms < 15_000
    assert not alice.connection.wants_input
    assert throttled(other, 20_000) == 0, "others are not slowed"
    world.advance(wait_ms - 1)
    assert not alice.connection.wants_input
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
    assert alice.connection.fast_path is not None
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
        request: Request[Any] = Request(
            client.connection, world.node.outbox, ApiKey.PRODUCE, 9, 1, f"id-{number}", None
        )
        quotas.produced(request, 100, world.now)
        request.no_reply()
        client.connection.take_outgoing()
    assert len(quotas._rates) == REMEMBERED_MAX
    assert client.connection.wants_input
