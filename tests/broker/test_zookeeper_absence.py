"""What the log says while ZooKeeper is away: each thing once."""

from __future__ import annotations

import asyncio
import logging

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
    told_s: list[float] = []

    async def scenario() -> None:
        absence = Absence()
        absence.begin("Lost.")
        for count in range(2, 6):
            await until(lambda count=count: len(caplog.messages) == count)  # type: ignore[misc]
            told_s.append(asyncio.get_running_loop().time())
        absence.forget()
        assert absence._reminder is None

    asyncio.run(scenario())
    assert caplog.messages[1:] == ["Lost. That was 0 s ago."] * 4
    assert told_s[3] - told_s[2] > 0.05  # 0.01, 0.02, 0.04, 0.08
