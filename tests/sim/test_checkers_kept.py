"""What a leader acknowledges alone (acks=1) must be there as long as no other one has led without
it: the second half of I-28."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.sim.clients.client import place_of
from strandline.sim.history.operations import Acknowledged
from strandline.types import BrokerId
from tests.sim.checked_world import AT, Checked


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    yield world
    world.close()


def kept(checked: Checked, offset: int, leader_epoch: int) -> bool:
    topic_id = checked.world.image.topics[AT.topic].topic_id
    told = Acknowledged(place_of(AT, topic_id), b"v", offset, leader_epoch)
    return checked.checkers.kept([told]) == {b"v"}


def test_what_others_have_is_kept_and_what_the_same_process_wrote_last(checked: Checked) -> None:
    epoch = checked.leader().leader_epoch
    checked.write(2)
    assert kept(checked, 0, epoch)
    assert kept(checked, 1, epoch)
    # Said to be written, and in no log: the leader leads on, so it must come.
    assert kept(checked, 2, epoch)
    assert not kept(checked, 1, -1)
    assert not kept(checked, 1, epoch + 1)


def test_what_is_lost_with_its_leader_may_be_lost(checked: Checked) -> None:
    epoch = checked.leader().leader_epoch
    checked.write()
    checked.world.network.cut(BrokerId(1), BrokerId(2))
    checked.world.network.cut(BrokerId(1), BrokerId(3))
    checked.write(acks=1, settle=False)
    checked.world[1].kill()
    assert checked.world.run_until(lambda: checked.state.leader in (2, 3))
    successor = checked.state.leader
    assert kept(checked, 0, epoch)
    assert not kept(checked, 1, epoch)
    checked.write(to=successor, acks=1, settle=False)
    assert not kept(checked, 1, epoch)
    assert kept(checked, 1, checked.leader(successor).leader_epoch)
    assert checked.found == []
