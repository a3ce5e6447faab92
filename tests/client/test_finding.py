"""What a task finds out outlives the calls that wait for it, until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from strandline.client.aio.finding import Finding

LONG_MS = 60_000


class Slow:
    """Finds a number when it is told to, and counts how often it was begun."""

    def __init__(self) -> None:
        self.begun = 0
        self.told: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def find(self) -> int:
        self.begun += 1
        return await asyncio.shield(self.told)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def alone() -> None:
        await work
        assert len(asyncio.all_tasks()) == 1, "tasks are left"

    asyncio.run(alone())


def test_a_call_whose_time_is_up_leaves_it_to_the_next() -> None:
    async def work() -> None:
        slow = Slow()
        finding = Finding(slow.find)
        assert await finding.result(1, []) is None
        assert await finding.result(1, []) is None
        slow.told.set_result(7)
        assert (await finding.result(LONG_MS, []), slow.begun) == (7, 1)
        assert (await finding.result(LONG_MS, []), slow.begun) == (7, 2), "asked anew"

    run(work())


def test_what_else_has_come_is_not_kept_waiting() -> None:
    async def work() -> None:
        finding = Finding(Slow().find)
        other: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        other.set_result(None)
        assert await finding.result(LONG_MS, [other]) is None
        await finding.close()

    run(work())


def test_one_that_is_stopped_while_it_is_waited_for_begins_anew() -> None:
    async def work() -> None:
        slow = Slow()
        finding = Finding(slow.find)
        waiting = asyncio.create_task(finding.result(LONG_MS, []))
        await asyncio.sleep(0.01)
        finding.stop()
        await asyncio.sleep(0.01)
        slow.told.set_result(7)
        assert (await waiting, slow.begun) == (7, 2)

    run(work())


def test_what_it_raises_is_raised_once() -> None:
    async def work() -> None:
        slow = Slow()
        finding = Finding(slow.find)
        assert await finding.result(0, []) is None
        slow.told.set_exception(LookupError("nothing is there"))
        with pytest.raises(LookupError):
            await finding.result(LONG_MS, [])
        slow.told = asyncio.get_running_loop().create_future()
        slow.told.set_result(8)
        assert await finding.result(LONG_MS, []) == 8

    run(work())
