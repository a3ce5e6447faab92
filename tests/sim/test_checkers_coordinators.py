"""What coordinators keep in their topics, against the logs that it is about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.cluster.topic_names import SHARE_GROUP_STATE
from strandline.sharing.records import ShareKey, ShareState, encode_record
from strandline.sharing.runs import RecordState, StateBatch
from strandline.sim.checkers import coordinator_rules
from strandline.sim.checkers.coordinator_rules import CoordinatorRules
from tests.sim.callers import create_topic
from tests.sim.checked_world import AT, Checked


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(5)
    create_topic(world.world, SHARE_GROUP_STATE, (1, 2, 3))
    yield world
    world.close()


@pytest.mark.parametrize(("first", "last", "is_right"), [(0, 4, True), (3, 5, False)])
def test_a_share_group_has_a_state_of_records_that_are_there(
    checked: Checked, monkeypatch: pytest.MonkeyPatch, first: int, last: int, is_right: bool
) -> None:
    world = checked.world
    key = ShareKey("g", world.image.topics[AT.topic].topic_id, AT.partition)
    state = ShareState(start=0, batches=(StateBatch(first, last, RecordState.ACKNOWLEDGED, 1),))
    monkeypatch.setattr(
        coordinator_rules, "_records_of", lambda _: iter([encode_record(key, state)])
    )
    rules = CoordinatorRules(checked.checkers.rules.findings)
    rules.check(world.image, world.machines.values())
    assert checked.found == ([] if is_right else ["I-59"])
