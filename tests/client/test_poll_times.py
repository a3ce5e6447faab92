"""How long `poll` waits: while nothing comes, and no longer when a broker says nothing."""

from __future__ import annotations

import pytest

import strandline
from strandline.client.fetching import FetchedRecords
from strandline.types import Offset
from tests.client.conftest import BrokerThread
from tests.client.test_api import settings, write


def test_a_member_polls_on_when_an_answer_holds_no_records(
    broker: BrokerThread, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer of a session lists all partitions, with records or without."""
    write(broker, name, 0)
    with strandline.Consumer(
        settings(broker, group_id=name, auto_offset_reset="earliest")
    ) as consumer:
        consumer.subscribe([name])
        while len(consumer.assignment) < 2:
            assert consumer.poll(0) == []
        assert consumer._member is not None
        reader = consumer._member._consumer
        empty = FetchedRecords(consumer.assignment[0], (), Offset(0), Offset(0), Offset(0))
        slices = 0
        poll = reader.poll

        def answers(timeout_ms: int) -> list[FetchedRecords]:
            nonlocal slices
            slices += 1
            if slices == 1:
                with strandline.Producer(settings(broker)) as producer:
                    producer.send(name, b"late")
                return [empty]
            return poll(timeout_ms)

        monkeypatch.setattr(reader, "poll", answers)
        assert [each.value for each in consumer.poll(60_000)] == [b"late"]
        assert slices > 1
