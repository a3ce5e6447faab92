"""Fetches of consumers that may not read all they ask for: the rest is waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.authorization.acls import Operation, ResourceType
from strandline.errors import ErrorCode
from tests.node.messages import batch, fetch, fetched, produce, values
from tests.node.test_authorization import ALICE, Secured
from tests.node.world import Client, World

READ, TOPIC = Operation.READ, ResourceType.TOPIC
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def secured() -> Iterator[Secured]:
    """Alice may read `orders`, and not `payments`."""
    made = Secured()
    made.allow((READ, TOPIC, "orders"))
    yield made
    made.world.check()


@pytest.fixture
def alice(secured: Secured) -> Client:
    return secured.world.connect(ALICE)


def wait(world: World, client: Client) -> None:
    """Nothing is answered yet, and rightly."""
    world.turn()
    assert client.answers == []
    world.node.purgatory.check()


@pytest.mark.parametrize("by_id", [False, True])
@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
def test_a_denied_topic_does_not_keep_the_others_from_being_waited_for(
    secured: Secured, alice: Client, by_id: bool, session: tuple[int, int]
) -> None:
    """A consumer of both would fetch in a loop."""
    world = secured.world
    ids = {name: world.replica(name).topic_id for name in ("orders", "payments")}
    orders, payments = ids.values() if by_id else ids
    wanted = fetch((payments, 0, 7), (orders, 0, 0), max_wait_ms=1500, session=session)
    alice.send(wanted, 13 if by_id else 12)
    wait(world, alice)
    secured.root.ask(produce(batch(b"a"), "payments"), 9)
    world.advance(1499)
    wait(world, alice)
    world.advance(1)
    [answer] = alice.answers
    assert {at: found.error_code for at, found in fetched(answer).items()} == {
        (payments, 0): DENIED,
        (orders, 0): ErrorCode.NONE,
    }


def test_records_of_the_others_are_sent_at_once(secured: Secured, alice: Client) -> None:
    alice.send(fetch(("payments", 0, 0), ("orders", 0, 0), max_wait_ms=1500), 12)
    wait(secured.world, alice)
    secured.root.ask(produce(batch(b"a")), 9)
    [answer] = alice.answers
    assert fetched(answer)["payments", 0].error_code == DENIED
    assert values(answer) == [b"a"]


def test_denied_topics_alone_are_told_at_once(secured: Secured, alice: Client) -> None:
    answer = alice.ask(fetch(("payments", 0, 0), max_wait_ms=1500), 12)
    assert fetched(answer)["payments", 0].error_code == DENIED


def test_a_topic_that_may_be_read_by_now_ends_the_wait(secured: Secured, alice: Client) -> None:
    """What is written to it does not: it is not watched."""
    secured.root.ask(produce(batch(b"b"), "payments"), 9)
    asked = fetch(("payments", 0, 0), ("orders", 0, 0), max_wait_ms=1500, min_bytes=100_000)
    alice.send(asked, 12)
    wait(secured.world, alice)
    secured.allow((READ, TOPIC, "orders"), (READ, TOPIC, "payments"))
    secured.root.ask(produce(batch(b"a")), 9)
    [answer] = alice.answers
    assert values(answer) == [b"b", b"a"]
