"""An event loop for brokers in a thread of its own, for callers that have another one or none."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from strandline.broker.event_loop import BrokerLoop
from strandline.testing.control import ClusterError

T = TypeVar("T")


class LoopThread:
    """Runs coroutines of other threads until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = BrokerLoop()
        self._process = os.getpid()
        # A test process that forgets to close must be able to end.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from that of the thread, and has no such thread."""
        return os.getpid() != self._process

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it in the thread. Cancelling the future cancels it there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in the thread and wait for it; an interrupted wait cancels it.

        Raises `ClusterError` in that thread itself, which would wait for itself, and in a process
        that was forked from its own.
        """
        if self.is_inherited:
            coroutine.close()
            raise ClusterError(
                "The cluster runs in the process from which this one was forked: clients reach it "
                "from here, but only that one can look at it, or do something to it."
            )
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClusterError(
                "The cluster is asked in the thread of its brokers, which cannot wait for itself: "
                "a condition of wait_until looks at the status that it is given only."
            )
        future = self.submit(coroutine)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop, its executor and the thread. What still runs is cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()
