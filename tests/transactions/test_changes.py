"""Changes of ids that a shard of the transaction coordinator does not take."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.transactions.shard import Change
from tests.transactions.coordinated import ID, Coordinated


def test_a_change_that_cannot_be_written_leaves_the_id_usable() -> None:
    world = Coordinated()
    world.initialize()
    shard = world.coordinator._owned[0].shard
    entry = shard.entries[ID]
    endless = entry.current._replace(timeout_ms=2**31)

    with pytest.raises(InvariantViolated):
        shard.change([Change(entry, endless)], world.now)

    world.coordinator.check()
    assert not entry.is_busy
    assert world.add(0, 0) == ErrorCode.NONE
    assert world.end(0).error_code == ErrorCode.NONE


def test_an_id_that_is_being_changed_holds_up_no_other() -> None:
    """Both are changes of one batch, which is refused as a whole."""
    world = Coordinated()
    world.initialize()
    shard = world.coordinator._owned[0].shard
    busy = shard.entries[ID]
    other = type(busy)("other", busy.current)
    world.held = []
    world.ask(world.initialization())
    assert busy.is_pending

    with pytest.raises(InvariantViolated):
        shard.change([Change(other, other.current), Change(busy, busy.current)], world.now)

    assert not other.is_pending
