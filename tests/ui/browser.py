"""A headless Chromium, driven by Playwright: open a page, press keys, read what is there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE_MS = 90_000.0
POLLING_MS = 50.0

P = ParamSpec("P")
R = TypeVar("R")

Do = Callable[..., Any]
"""Calls a function in the thread that Playwright lives in, and returns what it returns."""


class Tab:
    """One tab. What its scripts throw, or log as errors, is kept in `complaints`."""

    def __init__(self, page: Page, do: Do) -> None:
        self._page = page
        self._do = do
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._note)

    def open(self, address: str) -> None:
        """Go there; another fragment of the same page is a click on a link."""
        self._do(self._page.goto, address, wait_until="commit")

    def size(self, width: int, height: int, *, dark: bool = False) -> None:
        """Set the window and the colours that its person likes."""
        scheme: Literal["dark", "light"] = "dark" if dark else "light"
        self._do(self._page.set_viewport_size, ViewportSize(width=width, height=height))
        self._do(self._page.emulate_media, color_scheme=scheme)

    def value(self, expression: str) -> Any:
        """What an expression gives."""
        return self._do(self._page.evaluate, expression)

    def wait_until(self, expression: str) -> None:
        """Wait until an expression is true; while a page is loaded anew there may be nothing."""
        script = f"() => {{ try {{ return Boolean({expression}); }} catch {{ return false; }} }}"
        self._do(self._page.wait_for_function, script, polling=POLLING_MS)

    def wait_for(self, text: str) -> None:
        """Wait until a text is to be seen."""
        self.wait_until(f"document.body.innerText.includes({json.dumps(text)})")

    def press(self, key: str) -> None:
        """A key, by its name in the web's standard."""
        self._do(self._page.keyboard.press, key)

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
        self._do(self._page.screenshot, path=path)

    def _note(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.complaints.append(message.text)


@dataclass(frozen=True, slots=True)
class Windows:
    """A browser that runs, with one tab in each of its windows."""

    process_id: int
    tabs: list[Tab]


@contextmanager
def browser() -> Iterator[Tab]:
    """A browser with one tab."""
    with windows(1) as opened:
        yield opened.tabs[0]


@contextmanager
def windows(count: int) -> Iterator[Windows]:
    """A browser with so many windows: all of them are in sight."""
    # Playwright leaves an event loop running in its thread, where tests may want one of their own.
    with ThreadPoolExecutor(1) as thread, ExitStack() as stack:

        def do(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
            return thread.submit(function, *args, **kwargs).result()

        playwright = sync_playwright()
        driver = do(playwright.start)
        stack.callback(do, driver.stop)
        chromium = do(
            driver.chromium.launch,
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-dev-shm-usage"],
        )
        stack.callback(do, chromium.close)
        pages = [do(chromium.new_page) for _ in range(count)]
        yield Windows(do(_process_id, chromium), [do(Tab, page, do) for page in pages])


def _process_id(chromium: Browser) -> int:
    processes = chromium.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    (found,) = [each["id"] for each in processes["processInfo"] if each["type"] == "browser"]
    return int(found)
