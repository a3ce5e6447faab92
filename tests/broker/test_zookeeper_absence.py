"""What the log says while ZooKeeper is away: each thing once."""

from __future__ import annotations

import asyncio
import logging
import re
import time

import pytest

from strandline.broker import zookeeper_absence
from strandline.broker.zookeeper_absence import Absence
from tests.broker.store_worlds import until


@pytest.fixture(autouse=True)
def _everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_each_reason_is_told_once_and_the_end_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        absence = Absence()
        absence.end()
        for reason in ("Lost.", "Lost.", "Lost.", "Behind.", "Lost."):
            absence.begin(reason)
        absence.end()
        absence.end()

    asyncio.run(scenario())
    assert [line.partition(", after")[0] for line in caplog.messages] == [
        "Lost.",
        "Behind.",
        "Lost.",
        "ZooKeeper can be used again",
    ]


def test_a_long_absence_is_told_of_again_at_growing_intervals(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper_absence, "FIRST_REMINDER_S", 0.01)
    told_s: list[float] = []  # a record's own time is the wall clock's, which may be set meanwhile

    def note(record: logging.LogRecord) -> bool:
        told_s.append(time.monotonic())
        return True

    caplog.handler.addFilter(note)

    async def scenario() -> None:
        absence = Absence()
        absence.begin("Lost.")
        await until(lambda: len(caplog.messages) >= 5)
        absence.forget()
        assert absence._reminder is None

    asyncio.run(scenario())
    said = caplog.messages[1:5]
    assert all(re.fullmatch(r"Lost\. That was \d+ s ago\.", each) for each in said), said
    # After 0.01, 0.02, 0.04 and 0.08 s, or later, but never sooner.
    assert told_s[4] - told_s[3] > 0.05
