"""The signals that stop brokers, from the moment on that the process begins to start them.

SIGTERM, Ctrl-C and SIGHUP, which a terminal, an ssh session or a pane sends when it is closed, all
ask for a clean stop, as in Kafka. This file must not know what is stopped.
"""

from __future__ import annotations

import asyncio
import os
import signal
from types import FrameType
from typing import Final

_INTERRUPTED: Final = 130
_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Belongs to one event loop, in the main thread."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        """Set by the first signal."""
        self._has_come = False

    def listen(self) -> None:
        """Take the signals from now on, until the loop is closed."""
        loop = asyncio.get_running_loop()
        for number in _STOPPING:
            if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                continue  # `nohup` means that the process outlives its terminal
            # The loop has the system wake it, and then sets the event; what is set here as well
            # runs when the loop has no turn, such as while logs are recovered.
            loop.add_signal_handler(number, self.stop.set)
            signal.signal(number, self._came)
            signal.siginterrupt(number, False)

    def _came(self, number: int, frame: FrameType | None) -> None:
        del frame
        # A person who presses Ctrl-C twice means it: leave without flushing or marking anything;
        # recovery is made for that. SIGTERM often comes twice when a wrapper passes it on.
        if self._has_come and number == signal.SIGINT:
            os._exit(_INTERRUPTED)
        self._has_come = True
