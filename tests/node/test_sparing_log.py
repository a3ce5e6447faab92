"""Lines that clients cause do not fill a disk."""

from __future__ import annotations

import logging

import pytest

from strandline.node.sparing_log import LINES_MAX, WITHIN_MS, SparingLog


def test_some_lines_are_written_and_the_others_counted(caplog: pytest.LogCaptureFixture) -> None:
    lines = SparingLog(logging.getLogger("under test"))
    with caplog.at_level(logging.INFO):
        for number in range(LINES_MAX + 100):
            lines.info(WITHIN_MS + number, "Connection %d closed: %s", number, "why")
        assert caplog.messages == [f"Connection {each} closed: why" for each in range(LINES_MAX)]
        caplog.clear()
        for _ in range(2):
            lines.info(2 * WITHIN_MS, "Connection %d closed: %s", 7, "why")
    assert caplog.messages == [
        "Connection 7 closed: why (100 more lines like it were left out before)",
        "Connection 7 closed: why",
    ]
