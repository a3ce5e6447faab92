"""What a process of brokers does before and after its start: for the loops of its long life."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

from strandline.node import late_imports

_GC_THRESHOLDS: Final = (50_000, 20, 50)


def look_for_less_garbage() -> None:
    """Before a start: looking through all that it makes, again and again, takes a quarter of the
    time that 10,000 partitions need."""
    gc.set_threshold(*_GC_THRESHOLDS)


def settle() -> None:
    """After a start: what it leaves behind lives as long as the process. Never look at it again."""
    gc.freeze()


def import_later() -> asyncio.TimerHandle:
    """Import what the start of a broker left out, unless that is cancelled."""
    loop = asyncio.get_running_loop()
    return loop.call_later(late_imports.DELAY_S, late_imports.import_in_thread)
