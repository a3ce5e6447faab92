"""What a process of brokers does when its start is over: for the loops of its long life."""

from __future__ import annotations

import asyncio
import gc
from typing import Final

from strandline.node import late_imports

_GC_THRESHOLDS: Final = (50_000, 20, 50)


def settle() -> None:
    """Look for less garbage."""
    # What a start leaves behind lives as long as the process: never look at it again.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def import_later() -> asyncio.TimerHandle:
    """Import what the start of a broker left out, unless that is cancelled."""
    loop = asyncio.get_running_loop()
    return loop.call_later(late_imports.DELAY_S, late_imports.import_in_thread)
