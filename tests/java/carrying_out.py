"""What the long runs with Kafka's programs have in common: a directory and a rig for each."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

Rig = TypeVar("Rig")


def carry_out(
    names: Iterable[str],
    rig_in: Callable[[Path, Path], AbstractContextManager[Rig]],
    run: Callable[[str, Rig], str],
    *,
    prefix: str = "",
) -> None:
    """Do the runs of these names, each on a rig of its own, and print what they say.

    `rig_in` makes a rig of a new directory and the cache of the tests.
    """
    cache = Path(os.environ.get("STRANDLINE_TEST_CACHE", Path.home() / ".cache/strandline-tests"))
    cache.mkdir(parents=True, exist_ok=True)
    for name in names:
        home = Path(tempfile.mkdtemp(prefix=f"{prefix}{name}-"))
        print(f"{name}: {home}", flush=True)
        began = time.monotonic()
        with rig_in(home, cache) as rig:
            said = run(name, rig)
        print(f"{name}: {said}, in {time.monotonic() - began:.0f} s", flush=True)
