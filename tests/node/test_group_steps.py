"""Work for groups that is due at one time is done in several turns, between which clients are
served."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.node import group_host
from strandline.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from strandline.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from strandline.protocol.messages.find_coordinator import FindCoordinatorRequest
from strandline.types import Instant
from tests.node.world import World


def test_sessions_that_are_over_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that loads a group has all of its members' sessions begin at that moment."""
    monkeypatch.setattr(group_host, "_DUE_PER_TURN", 2)
    client = world.connect()
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    for number in range(5):
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=f"m{number}",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        assert client.ask(joining, 1).error_code == ErrorCode.NONE
    world.restart()
    coordinator = world.node.groups.host._coordinator
    finish_turn, tick = world.node.finish_turn, coordinator.tick
    done = [0]

    def counted_turn(now: Instant) -> object:
        done.append(0)
        return finish_turn(now)

    def counted_tick(now: Instant) -> object:
        done[-1] += 1
        return tick(now)

    monkeypatch.setattr(world.node, "finish_turn", counted_turn)
    monkeypatch.setattr(coordinator, "tick", counted_tick)
    world.advance(46_000)
    assert sum(done) >= 5
    assert max(done) == 2
    [group] = world.connect().ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 1).groups
    assert group.members == []
