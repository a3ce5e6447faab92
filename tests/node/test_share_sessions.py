"""Share sessions that end and begin while others fetch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from strandline.protocol.messages.share_fetch import ShareFetchRequest
from strandline.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from strandline.protocol.messages.write_share_group_state import StateBatch
from strandline.sharing.records import ShareKey
from tests.lines import lines_of
from tests.node.messages import batch, produce
from tests.node.share_members import GROUP, HeldWrites, ShareMember, form_group, topic_id_of
from tests.node.world import World

NONE = ErrorCode.NONE


@pytest.fixture
def group(world: World) -> None:
    """There are ten records for it."""
    form_group(world, "orders")
    world.connect().ask(produce(batch(*[b"x"] * 10)), 9)


@pytest.mark.usefixtures("group")
def test_a_session_that_opens_as_the_last_one_ends_keeps_its_records(world: World) -> None:
    """They were given to a third member as well, since the share partition was given up."""
    first, second, third = (ShareMember(world, name) for name in "abc")
    assert first.acquire(max_records=1) == [(0, 0, 1)]
    first.client.close()
    second.send("orders", max_records=5)
    [told] = second.told().values()
    assert told.acquired == [(1, 5, 1)]
    world.advance(100)
    assert third.acquire() == [(0, 0, 2), (6, 9, 1)]
    second.send("orders", acks=[(1, 5, AckType.ACCEPT)])
    assert second.told()[topic_id_of(world, "orders")].acknowledged is NONE


@pytest.mark.usefixtures("group")
def test_a_share_partition_is_given_up_with_the_last_session(world: World) -> None:
    member = ShareMember(world, "a")
    member.acquire()
    member.client.close()
    world.advance(1)
    assert world.node.sharing.leading.all() == []


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("is_alone", [True, False])
def test_nothing_is_acquired_for_a_member_that_is_gone(world: World, is_alone: bool) -> None:
    """It went while what it acknowledged with its fetch was being stored."""
    member, other = ShareMember(world, "a"), ShareMember(world, "b")
    assert member.acquire(max_records=1) == [(0, 0, 1)]
    if not is_alone:
        other.acquire(max_records=1)
    writes = HeldWrites(world)
    member.send("orders", acks=[(0, 0, AckType.ACCEPT)])
    assert member.waits
    assert len(writes) == 1
    member.client.close()
    world.turn()
    writes.release()
    world.turn()
    assert other.acquire() == [(1 if is_alone else 2, 9, 1)]


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_fetch_that_waits_acquires_nothing_after_its_session(
    world: World, is_replaced: bool
) -> None:
    """The member opens another session elsewhere, or ends this one on the same connection."""
    member, other = ShareMember(world, "a"), ShareMember(world, "a" if is_replaced else "b")
    [(first, last, _)] = member.acquire()
    member.send("orders", acks=[(first, last, AckType.ACCEPT)])
    member.send("orders", max_wait_ms=5000)
    assert member.waits
    other.send("orders")
    if not is_replaced:
        member.epoch = -1
        member.send()
    world.connect().ask(produce(batch(b"y")), 9)
    assert member.told() == {}
    assert other.acquire() == [(10, 10, 1)]


@pytest.mark.usefixtures("group")
def test_a_last_fetch_acknowledges_and_acquires_nothing(world: World) -> None:
    member, other = ShareMember(world, "a"), ShareMember(world, "b")
    [(first, last, _)] = member.acquire(max_records=4)
    member.epoch = -1
    member.send("orders", acks=[(first, last, AckType.ACCEPT)], max_wait_ms=5000)
    assert list(member.told().values()) == [(NONE, NONE, [])]
    assert other.acquire() == [(4, 9, 1)]


@pytest.mark.parametrize("length", [0, 37, 5000])
def test_member_ids_have_at_most_36_characters(world: World, length: int) -> None:
    """They were taken at any length, and stored."""
    client = world.connect()
    form_group(world, "orders")
    member_id = "m" * length
    requests = [
        (ShareGroupHeartbeatRequest(group_id=GROUP, member_id=member_id, member_epoch=0), 1),
        (ShareFetchRequest(group_id=GROUP, member_id=member_id), 2),
        (ShareAcknowledgeRequest(group_id=GROUP, member_id=member_id, share_session_epoch=1), 2),
    ]
    for request, version in requests:
        answer = client.ask(request, version)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message == "Invalid member id in the request."


def test_a_member_id_of_36_characters_is_taken(world: World) -> None:
    form_group(world, "orders")
    member = ShareMember(world, "a")
    member.member_id = "m" * 36
    member.send("orders")
    assert member.answer.error_code == NONE


@pytest.fixture
def full() -> Iterator[World]:
    """A node with room for one share session, which is taken."""
    world = World("group.share.max.share.sessions=1", "group.share.max.size=1")
    world.create_topic("orders")
    form_group(world, "orders")
    ShareMember(world, "a").send("orders")
    yield world
    world.check()


def test_a_member_without_room_is_told_so_when_its_fetch_is_over(full: World) -> None:
    """It would ask in a loop."""
    member = ShareMember(full, "b")
    member.send("orders", max_wait_ms=1000)
    full.advance(999)
    assert member.waits
    full.advance(1)
    assert member.answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    member.epoch = 0
    member.send("orders", max_wait_ms=0)
    assert member.answer.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


def test_a_member_without_room_that_goes_away_leaves_nothing(full: World) -> None:
    member = ShareMember(full, "b")
    member.send("orders", max_wait_ms=1000)
    assert len(full.node.purgatory) == 1
    member.client.close()
    full.turn()
    assert len(full.node.purgatory) == 0


def ask_for_state(world: World, api: ApiKey, **fields: Any) -> Any:
    """Ask the share coordinator about the group's state of `orders`."""
    results: list[Any] = []
    key = ShareKey(GROUP, topic_id_of(world, "orders"), 0)
    ask = world.node.sharing.persister.ask
    ask(api, key, fields, lambda result, _: results.append(result), world.now)
    world.turn()
    [result] = results
    assert result.error_code == NONE
    return result


@pytest.mark.usefixtures("group")
def test_states_of_what_the_log_has_lost_end_before_a_member_gets_records(world: World) -> None:
    """An unclean election cuts off what members have accepted. A leader that died before it had
    stored that left it to the next one, for which other records had these offsets by then: it took
    them for accepted."""
    accepted = StateBatch(first_offset=10, last_offset=19, delivery_state=2, delivery_count=1)
    ask_for_state(
        world,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        start_offset=0,
        state_epoch=-1,
        leader_epoch=0,
        delivery_complete_count=10,
        state_batches=[accepted],
    )
    writes, member = HeldWrites(world), ShareMember(world, "a")
    member.send("orders", max_wait_ms=1000)
    world.turn()
    assert len(writes) == 1
    assert member.waits
    writes.release()
    world.turn()
    [told] = member.told().values()
    assert told.acquired == [(0, 9, 1)]
    read = ask_for_state(world, ApiKey.READ_SHARE_GROUP_STATE, leader_epoch=0)
    [state] = read.state_batches
    assert (state.first_offset, state.last_offset, state.delivery_state) == (10, 19, 0)


@pytest.mark.usefixtures("group")
def test_the_end_of_a_session_beside_many_groups(world: World) -> None:
    """All share partitions of the broker were looked at: two thousand sessions of a process that
    ended beside ten thousand of them took six seconds."""
    leading, replica = world.node.sharing.leading, world.node.replicas.leader("orders", 0)

    def cost() -> int:
        return lines_of(lambda: leading.release(GROUP, "m", world.now))

    alone = cost()
    for number in range(50):
        leading.of(f"g{number}", replica, world.now)
    assert cost() == alone
    world.turn()
    assert leading.all() == []
