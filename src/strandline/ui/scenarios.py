"""Scripts that are typed in at the page.

A typed script is played in a process of its own with a limit of time and memory: a scenario may
wait for a year of simulated time, and the page's server must go on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from strandline.sim.scenarios.script import BadScript

PLAY_SECONDS_MAX: Final = 10.0
SCRIPT_CHARACTERS_MAX: Final = 20_000

Json = dict[str, Any]


async def played_text(text: str) -> Json:
    """The document of a typed script. Raises `BadScript` for one that cannot be played."""
    if len(text) > SCRIPT_CHARACTERS_MAX:
        raise BadScript(f"A script has at most {SCRIPT_CHARACTERS_MAX} characters here.")
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
