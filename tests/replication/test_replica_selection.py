"""The nearest replica for a consumer (KIP-392)."""

from __future__ import annotations

import pytest

from strandline.replication.replica_selection import (
    ReplicaView,
    preferred_replica,
    readable_followers,
)
from strandline.types import BrokerId, Offset
from tests.replication.test_leader import A, B, C, D, fetch, make_leader

RACKS = {A: "east", B: "west", C: "west", D: None}


def view(broker: BrokerId, end: int, caught_up_ms: int = 0) -> ReplicaView:
    return ReplicaView(broker, RACKS[broker], Offset(end), caught_up_ms)


@pytest.mark.parametrize("rack", [None, "", "east", "north"])
def test_the_leader_is_read_from(rack: str | None) -> None:
    assert preferred_replica(rack, "east", [view(B, 5), view(D, 9)]) is None


def test_the_furthest_in_the_rack_is_read_from() -> None:
    assert preferred_replica("west", "east", [view(B, 5), view(C, 6)]) == C
    assert preferred_replica("west", "east", [view(B, 6, 20), view(C, 6, 10)]) == B
    assert preferred_replica("west", "east", [view(B, 6), view(C, 6)]) == C
    assert preferred_replica("west", None, [view(B, 6)]) == B


def test_only_members_that_have_the_offset_are_offered() -> None:
    leader = make_leader((A, B, C, D), (A, B, C))
    fetch(leader, B, 5, end=9, start=2, now_ms=3)
    fetch(leader, C, 9, end=9, start=4, now_ms=3)
    fetch(leader, D, 9, end=9)

    def offered(offset: int) -> list[BrokerId]:
        return [v.broker_id for v in readable_followers(leader, Offset(offset), RACKS.get)]

    assert offered(1) == []
    assert offered(2) == [B]
    assert offered(5) == [B, C]
    assert offered(6) == [C]
    assert offered(10) == []
    assert next(iter(readable_followers(leader, Offset(9), RACKS.get))) == view(C, 9, 3)
