"""Starting the page's server beside brokers, in a process of its own.

This file imports nothing of the server: who serves brokers pays for a child, and for no page.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from strandline.errors import InvalidSetting, InvariantViolated
from strandline.schemas.places import NOWHERE, REGISTRY_VARIABLE, SchemaPlaces

PROGRAM: Final = (sys.executable, "-m", "strandline.ui")
"""Serves a page that knows no tables."""
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0


@asynccontextmanager
async def page(
    bootstrap: str,
    port: int | None,
    control: str | None = None,
    schemas: SchemaPlaces = NOWHERE,
    *,
    may_edit: bool = False,
    program: Sequence[str] = PROGRAM,
) -> AsyncIterator[str]:
    """The address of a page for the cluster at `bootstrap`, served as long as the block lasts.

    Without a `port` it is the first free one from a fixed one on. `control` is where faults can be
    asked for, which no broker could tell while all are paused. With `may_edit` the page may produce
    records and reset groups. `program` is what serves it, a Python program that takes the options
    of `strandline.ui`. Raises `InvalidSetting` if the page cannot be served.
    """
    command = [*program, "--bootstrap", bootstrap]
    if port is not None:
        command += ["--port", str(port)]
    if control is not None:
        command += ["--control", control]
    if schemas.directory is not None:
        command += ["--schemas", schemas.directory]
    if may_edit:
        command += ["--edit"]
    try:
        child = await asyncio.create_subprocess_exec(
            *command,
            env={**os.environ, **_registry_variable(schemas)},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        raise InvalidSetting("ui", f"The page cannot be started: {error.strerror}.") from error
    if child.stdout is None or child.stderr is None:
        raise InvariantViolated("The child has no pipes.")
    try:
        line = await _first_line(child.stdout)
        if not line:
            said = (await child.stderr.read()).decode(errors="replace").strip()
            raise InvalidSetting("ui", said.splitlines()[-1] if said else "The page did not start.")
        complaints = asyncio.create_task(_pass_on(child.stderr))
        yield line.decode().strip()
        complaints.cancel()
    finally:
        await _end(child)


def _registry_variable(schemas: SchemaPlaces) -> dict[str, str]:
    """Not an argument: the URL may hold a password, and all users see a process's arguments."""
    return {} if schemas.registry is None else {REGISTRY_VARIABLE: schemas.registry}


async def _first_line(said: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(_START_SECONDS):
            return await said.readline()
    except TimeoutError as error:
        raise InvalidSetting(
            "ui", f"The page has not started within {_START_SECONDS:.0f} s."
        ) from error


async def _pass_on(complaints: asyncio.StreamReader) -> None:
    async for line in complaints:
        sys.stderr.write(line.decode(errors="replace"))


async def _end(child: asyncio.subprocess.Process) -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
