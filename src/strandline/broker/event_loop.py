"""The event loop of a process with brokers: asyncio's own, with a selector that knows brokers.

    Linux       calls back for the sockets of brokers by itself (`direct_selector`)
    elsewhere   the system's selector, and asyncio calls back

Both measure how long rounds of the loop take (`loop_rounds`). Brokers run on any loop that watches
sockets; of one that others have made, nothing is measured.
"""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import TYPE_CHECKING

from strandline.broker.direct_selector import DirectSelector
from strandline.broker.loop_rounds import LoopRounds

if TYPE_CHECKING:
    from strandline.broker.socket_calls import Readiness
    from strandline.node.status.broker_document import EventLoop


class TimedSelector(selectors.DefaultSelector):
    """A selector that measures the rounds of its loop."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = LoopRounds()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As of every selector."""
        self.rounds.end()
        ready = super().select(timeout)
        self.rounds.begin()
        return ready


class BrokerLoop(asyncio.SelectorEventLoop):
    """See the module.

    - `readiness`: what brokers on it have called back for their sockets.
    """

    def __init__(self, selector: DirectSelector | TimedSelector | None = None) -> None:
        """With the selector that suits the system."""
        selector = selector or (DirectSelector() if hasattr(select, "epoll") else TimedSelector())
        super().__init__(selector)
        self.rounds = selector.rounds
        self.readiness: Readiness = selector if isinstance(selector, DirectSelector) else self


def loop_use() -> EventLoop | None:
    """How long the rounds of the running loop take, if it is a `BrokerLoop`."""
    loop = asyncio.get_running_loop()
    return loop.rounds.use if isinstance(loop, BrokerLoop) else None


def readiness_of(loop: asyncio.AbstractEventLoop) -> Readiness:
    """What calls back for sockets on a loop."""
    return loop.readiness if isinstance(loop, BrokerLoop) else loop
