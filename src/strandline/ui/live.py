"""Server-sent events: each page is told what changed since the picture it shows.

A page that reads slowly, or not at all, gets fewer pictures and never a queue of them: what is sent
next is always the difference to the newest.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from strandline.ui.picture import Picture
from strandline.ui.watcher import Watcher

_PATIENCE_S: Final = 15.0
"""Something is sent at least so often, so that a page that is gone is noticed."""


def events(watcher: Watcher, request: Request) -> Response:
    """The stream for one page."""
    return StreamingResponse(
        _stream(watcher, request),
        media_type="text/event-stream",
        headers={"cache-control": "no-store"},
    )


async def _stream(watcher: Watcher, request: Request) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()
    leave = watcher.watch(lambda: loop.call_soon_threadsafe(changed.set))
    shown: Picture | None = None
    trouble: str | None = None
    try:
        while not await request.is_disconnected():
            newest = watcher.latest
            if newest is not None and newest is not shown:
                yield _event("picture", json.dumps(newest.changes_since(shown)))
                shown = newest
            if watcher.trouble != trouble:
                trouble = watcher.trouble
                yield _event("trouble", json.dumps(trouble))
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await changed.wait()
            except TimeoutError:
                yield b": still here\n\n"
            changed.clear()
    finally:
        leave()


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()
