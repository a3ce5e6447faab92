"""A headless Chromium, driven by its own protocol: open a page, press keys, read what is there."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_S = 90.0


class Tab:
    """One tab. What its scripts throw, or log as errors, is kept in `complaints`."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._calls = 0
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command; its result."""
        self._calls += 1
        self._connection.send(json.dumps({"id": self._calls, "method": method, "params": params}))
        while True:
            message = json.loads(self._connection.recv(PATIENCE_S))
            self._note(message)
            if message.get("id") == self._calls:
                assert "error" not in message, message
                found: dict[str, Any] = message["result"]
                return found

    def open(self, address: str) -> None:
        """Go there; another fragment of the same page is a click on a link."""
        self.call("Page.navigate", url=address)

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window and the colours that its person likes."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def value(self, expression: str) -> Any:
        """What an expression gives."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_until(self, expression: str) -> None:
        """Wait until an expression is true; while a page is loaded anew there may be nothing."""
        deadline = time.monotonic() + PATIENCE_S
        script = (
            f"(() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }})()"
        )
        while not self.value(script):
            assert time.monotonic() < deadline, (expression, self.text, self.complaints)
            time.sleep(0.05)  # between two looks

    def wait_for(self, text: str) -> None:
        """Wait until a text is to be seen."""
        self.wait_until(f"document.body.innerText.includes({json.dumps(text)})")

    def press(self, key: str) -> None:
        """A key, by its name in the web's standard."""
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=_CODES[key],
                text=_TEXTS.get(key, "") if kind == "keyDown" else "",
            )

    @property
    def text(self) -> str:
        found: str = self.value("document.body.innerText")
        return found

    @property
    def overflow(self) -> int:
        """So many pixels are to be scrolled sideways."""
        found: int = self.value(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return found

    def picture(self, path: Path) -> None:
        """Save what is to be seen."""
        data = self.call("Page.captureScreenshot", format="png")["data"]
        path.write_bytes(base64.b64decode(data))

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded" if message["params"]["entry"]["level"] == "error":
                self.complaints.append(message["params"]["entry"]["text"])


_CODES = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Enter": 13, "Tab": 9}
_TEXTS = {"Enter": "\r"}
"""What a key types; without it a button is not pressed."""


@contextmanager
def browser(profile: Path) -> Iterator[Tab]:
    """A browser with one tab."""
    with windows(profile, 1) as opened:
        yield opened.tabs[0]


@dataclass(frozen=True, slots=True)
class Windows:
    """A browser that runs, with one tab in each of its windows."""

    process_id: int
    tabs: list[Tab]


@contextmanager
def windows(profile: Path, count: int) -> Iterator[Windows]:
    """A browser with so many windows: all of them are in sight."""
    assert CHROMIUM is not None
    child = subprocess.Popen(
        [
            CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--disable-dev-shm-usage", "--remote-debugging-port=0", f"--user-data-dir={profile}",
            "about:blank",
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert child.stderr is not None
    try:
        port = next(
            found[1] for line in child.stderr if (found := re.search(r"ws://[^:]+:(\d+)/", line))
        )
        with ExitStack() as stack:
            tabs = [Tab(stack.enter_context(_connection(address))) for address in _pages(port)]
            for _ in range(count - 1):
                made = tabs[0].call("Target.createTarget", url="about:blank", newWindow=True)
                address = f"ws://127.0.0.1:{port}/devtools/page/{made['targetId']}"
                tabs.append(Tab(stack.enter_context(_connection(address))))
            yield Windows(child.pid, tabs)
    finally:
        child.kill()
        child.wait()
        child.stderr.close()


def _pages(port: str) -> list[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json", timeout=PATIENCE_S) as told:
        return [each["webSocketDebuggerUrl"] for each in json.load(told) if each["type"] == "page"]


def _connection(address: str) -> ClientConnection:
    # The browser lives as long as all tests. A thread that pings it draws from the global generator
    # of random numbers, and Hypothesis takes that for a property that is not deterministic.
    return connect(address, max_size=None, open_timeout=PATIENCE_S, ping_interval=None)
