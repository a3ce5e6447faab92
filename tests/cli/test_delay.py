"""Who waits for something that is tried again hears soon what it is."""

from __future__ import annotations

import pytest

from strandline.cli.connecting import Delay
from strandline.errors import ErrorCode, ProtocolError


class SetClock:
    """A clock that the test sets."""

    now_ms = 50_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def sleep_ms(self, milliseconds: int) -> None:
        self.now_ms += milliseconds


def test_the_cause_is_told_within_five_seconds_and_not_all_the_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = SetClock()
    delay = Delay(clock)
    error = ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, "The disk is full.")
    told: list[int] = []
    for _ in range(700):
        delay.told(error)
        if "Still trying after" in (text := capsys.readouterr().err):
            assert text.endswith("The disk is full.\n")
            told.append(clock.now_ms - 50_000)
        clock.sleep_ms(100)
    assert told == [3000, 63_000]


def test_what_works_again_is_no_delay(capsys: pytest.CaptureFixture[str]) -> None:
    clock = SetClock()
    delay = Delay(clock)
    for _ in range(5):
        delay.told(ProtocolError(ErrorCode.NOT_CONTROLLER))
        clock.sleep_ms(11_000)
    assert capsys.readouterr().err == ""
