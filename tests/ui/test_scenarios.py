"""Typed scripts of many pages at once: few are played, some wait, the others are refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from strandline.ui import scenarios
from strandline.ui.app import application

BODY = json.dumps({"text": "title: t\n"}).encode()
MOST = scenarios.AT_ONCE_MAX + scenarios.WAITING_MAX


async def post(app: Any) -> tuple[int, Any]:
    """Status and document of the answer."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/api/scenarios",
        "query_string": b"",
        "headers": [
            (b"host", b"localhost:8989"),
            (b"origin", b"http://localhost:8989"),
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(BODY)),
        ],
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], json.loads(b"".join(m.get("body", b"") for m in sent[1:]))


def test_only_a_few_scripts_are_played_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        playing, most = 0, 0
        may_end = asyncio.Event()

        async def played(text: str) -> Any:
            nonlocal playing, most
            playing += 1
            most = max(most, playing)
            await may_end.wait()
            playing -= 1
            return {"text": text}

        monkeypatch.setattr(scenarios, "_played_apart", played)
        app = application(None)
        asked = [asyncio.create_task(post(app)) for _ in range(MOST + 1)]
        (refused,), others = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
        status, document = refused.result()
        assert (status, "Too many scripts" in document["error"]) == (429, True)
        may_end.set()
        answers = await asyncio.gather(*others)
        assert [status for status, _ in answers] == [200] * MOST
        assert most == scenarios.AT_ONCE_MAX
        assert (await post(app))[0] == 200

    asyncio.run(run())
