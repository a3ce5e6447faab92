"""Scripts that are typed in at the page.

A typed script is played in a process of its own with a limit of time and memory: a scenario may
wait for a year of simulated time, and the page's server must go on. Only a few are played at once,
and a few wait for their turn, since to look at the page is enough to ask for one.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from strandline.errors import StrandlineError
from strandline.sim.scenarios.script import BadScript

PLAY_SECONDS_MAX: Final = 10.0
SCRIPT_CHARACTERS_MAX: Final = 20_000
AT_ONCE_MAX: Final = 2
WAITING_MAX: Final = 8

Json = dict[str, Any]


class TooManyScripts(StrandlineError):
    """As many scripts as may be are played, or wait for that."""


class Player:
    """Plays typed scripts, a few at a time. Belongs to one event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._asked = 0

    async def played(self, text: str) -> Json:
        """The document of a script.

        Raises `BadScript` for one that cannot be played, and `TooManyScripts`.
        """
        if len(text) > SCRIPT_CHARACTERS_MAX:
            raise BadScript(f"A script has at most {SCRIPT_CHARACTERS_MAX} characters here.")
        if self._asked >= AT_ONCE_MAX + WAITING_MAX:
            raise TooManyScripts("Too many scripts are being played: try it again in a moment.")
        self._asked += 1
        try:
            async with self._turns:
                return await _played_apart(text)
        finally:
            self._asked -= 1


async def _played_apart(text: str) -> Json:
    """In a process of its own. Raises `BadScript`."""
    worker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "strandline.ui.scenarios_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PLAY_SECONDS_MAX):
            answer, _ = await worker.communicate(text.encode("utf-8", "surrogatepass"))
    except TimeoutError:
        raise BadScript(
            f"The script was not at its end after {PLAY_SECONDS_MAX:g} s of computing."
        ) from None
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    if not answer:
        raise BadScript("The script needs more memory or says more than a page can show.")
    found: Json = json.loads(answer)
    if "refused" in found:
        raise BadScript(found["refused"])
    return found
