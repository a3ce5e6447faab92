"""A page beside brokers that does not start: a sentence for those who start it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

import pytest

from strandline.errors import InvalidSetting
from strandline.ui import child


def start(*program: str) -> str:
    """The address of a page that such a program serves."""

    async def run(words: Sequence[str]) -> str:
        async with child.page("127.0.0.1:1", 0, program=words) as where:
            return where

    return asyncio.run(run(program))


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(InvalidSetting, match="The page cannot be started: No such file"):
        start("/is/not/there")


def test_a_program_that_ends_says_why_last() -> None:
    said = "import sys; sys.exit('Noise.\\nThe port is in use.')"
    with pytest.raises(InvalidSetting, match=r"^The port is in use\.$"):
        start(sys.executable, "-c", said)


def test_a_program_that_says_nothing_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_START_SECONDS", 0.0)
    with pytest.raises(InvalidSetting, match="The page has not started within 0 s"):
        start(sys.executable, "-c", "import sys; sys.stdin.read()")
