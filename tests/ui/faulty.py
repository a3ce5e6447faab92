"""A real `strandline serve --brokers 3 --ui --faults`, for tests of what its page may cause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.conftest import Serving


@contextmanager
def serving_in(data: Path) -> Iterator[Serving]:
    """Ends with the block, and cleanly.

    Restarted brokers get other ports: who wants to find them by their addresses must leave one.
    """
    serving = Serving(
        "serve", "--brokers", "3", "--ui", "--faults", "--data-dir", str(data),
        "--listen", "127.0.0.1:0", "--set", "zookeeper.session.timeout.ms=1000",
    )  # fmt: skip
    try:
        yield serving
    except BaseException:
        serving.process.kill()
        serving.process.communicate()
        raise
    ended = serving.stop()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err


def said(serving: Serving, name: str) -> str:
    """What stands behind a name in the lines that it printed: page, faults."""
    (found,) = re.findall(rf"^  {name} +(\S+)$", "\n".join(serving.said), re.MULTILINE)
    return str(found)


def bootstrap(serving: Serving) -> str:
    """The addresses of all brokers."""
    return ",".join(re.findall(r"PLAINTEXT://(127\.0\.0\.1:\d+)", "\n".join(serving.said)))
