"""Server-sent events: each page is told what changed since the picture it shows.

A page that reads slowly, or not at all, gets fewer pictures and never a queue of them: what is sent
next is always the difference to the newest. Pages that show the same picture get the same bytes,
which are made once.
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


class Streams:
    """The streams of all pages of one server, on its event loop."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._newest: Picture | None = None
        self._made: dict[int | None, bytes] = {}
        """The events that lead to the newest picture, by the number of the one before."""

    def open(self, request: Request) -> Response:
        """The stream for one page."""
        return StreamingResponse(
            self._events(request),
            media_type="text/event-stream",
            headers={"cache-control": "no-store"},
        )

    async def _events(self, request: Request) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        leave = self._watcher.watch(lambda: loop.call_soon_threadsafe(changed.set))
        shown: Picture | None = None
        trouble: str | None = None
        try:
            while not await request.is_disconnected():
                newest = self._watcher.latest
                if newest is not None and newest is not shown:
                    yield self._event_to(newest, shown)
                    shown = newest
                if self._watcher.trouble != trouble:
                    trouble = self._watcher.trouble
                    yield _event("trouble", trouble)
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        await changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
                changed.clear()
        finally:
            leave()

    def _event_to(self, newest: Picture, shown: Picture | None) -> bytes:
        if newest is not self._newest:
            self._newest = newest
            self._made.clear()
        number = None if shown is None else shown.number
        made = self._made.get(number)
        if made is None:
            made = self._made[number] = _event("picture", newest.changes_since(shown))
        return made


def _event(kind: str, value: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps(value, separators=(',', ':'))}\n\n".encode()
