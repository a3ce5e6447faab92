"""Look-ups by time: what clients ask, and how the answers are judged (I-56)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from strandline.sim.clients.times import TimesAsker
from strandline.sim.history.lookups import NEWEST, Leadership, TimeAnswer
from strandline.types import BrokerId
from tests.sim.checked_world import AT, Checked, model_of
from tests.sim.clients_stage import TOPIC_ID, Asked, Stage


def asking(stage: Stage) -> list[TimeAnswer]:
    """Has a client begin; the answers that it takes for certain."""
    stage.lead("t", 0, 1, epoch=4)
    client = stage.make("times", "q", topic="t", every="10ms")
    assert isinstance(client, TimesAsker)
    found: list[TimeAnswer] = []
    client.on_told = found.append
    client.start()
    return found


def told(asked: Asked, offset: int, timestamp: int) -> None:
    part = ListOffsetsPartitionResponse(partition_index=0, offset=offset, timestamp=timestamp)
    topic = ListOffsetsTopicResponse(name="t", partitions=[part])
    asked.answer(ListOffsetsResponse(topics=[topic]))


def test_an_answer_counts_with_what_was_known_when_it_was_asked_for() -> None:
    stage = Stage()
    stage.ends_at = 9
    found = asking(stage)
    asked = stage.next_request(ApiKey.LIST_OFFSETS)
    stage.ends_at = 20
    told(asked, 7, 1234)
    stage.run(2)
    time = asked.body.topics[0].partitions[0].timestamp
    assert found == [TimeAnswer(AT, Leadership(BrokerId(1), 1, 4, TOPIC_ID), 9, time, 7, 1234)]


def test_an_answer_of_a_leader_that_was_deposed_does_not_count() -> None:
    stage = Stage()
    found = asking(stage)
    asked = stage.next_request(ApiKey.LIST_OFFSETS)
    stage.lead("t", 0, 1, epoch=5)
    told(asked, 7, 1234)
    stage.run(2)
    assert found == []


@pytest.fixture
def checked() -> Iterator[Checked]:
    world = Checked()
    world.write(3)
    yield world
    world.close()


def judge(checked: Checked, asked: int, offset: int, timestamp: int) -> list[str]:
    led = checked.world.leadership(BrokerId(1), AT)
    assert led is not None
    high_watermark = checked.replica(1).log.high_watermark
    answer = TimeAnswer(AT, led, high_watermark, asked, offset, timestamp)
    checked.checkers.rules.times.check(answer)
    return [violation.invariant for violation in checked.checkers.violations]


def times(checked: Checked) -> list[int]:
    return [batch.max_timestamp for batch in model_of(checked, 1).batches]


def test_right_answers(checked: Checked) -> None:
    first, _, last = times(checked)
    assert judge(checked, 0, 0, first) == []
    assert judge(checked, last + 1, -1, -1) == []
    newest = times(checked).index(max(times(checked)))
    assert judge(checked, NEWEST, newest, max(times(checked))) == []


@pytest.mark.parametrize("offset", [1, 2, -1])
def test_i56_a_record_that_is_new_enough_is_passed_over(checked: Checked, offset: int) -> None:
    timestamp = times(checked)[offset] if offset >= 0 else -1
    assert judge(checked, 0, offset, timestamp) == ["I-56"]


def test_i56_the_record_has_another_time(checked: Checked) -> None:
    assert judge(checked, 0, 0, times(checked)[0] + 1) == ["I-56"]


def test_i56_the_record_is_too_old(checked: Checked) -> None:
    assert judge(checked, times(checked)[0] + 1, 0, times(checked)[0]) == ["I-56"]
