"""How the test clusters of this process look, and how those looked that have ended.

For the reports of tests that failed: it does not matter what has started a cluster, a fixture of
the plugin, one of a user, or a `with` block. Light to import, since pytest loads the plugin in
every session.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol
from weakref import WeakValueDictionary


class Sighted(Protocol):
    """A cluster that can be looked at."""

    def sight(self) -> str:
        """Its state, or why that cannot be told. Raises nothing."""


class Sightings:
    """The clusters that run, in the order of their starts, and the ends of others."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = 0
        self._running: WeakValueDictionary[int, Sighted] = WeakValueDictionary()
        self._ended: list[str] | None = None

    def begin(self) -> None:
        """Forget clusters that have ended, and keep the last states of those that end from now
        on. Without it none is kept."""
        self._ended = []

    def has_started(self, cluster: Sighted) -> None:
        """Note a cluster that runs."""
        with self._lock:
            self._started += 1
            self._running[self._started] = cluster

    def is_ending(self, cluster: Sighted) -> None:
        """Look at a cluster for the last time, if it ran."""
        with self._lock:
            number = next((at for at, each in self._running.items() if each is cluster), None)
            if number is None:
                return
            del self._running[number]
        if self._ended is not None:
            self._ended.append(cluster.sight())

    def states(self) -> list[tuple[str, str]]:
        """Heads and states: of the clusters that run, then as others were when they ended."""
        with self._lock:
            running = list(self._running.values())
        return [
            *(("strandline cluster", each.sight()) for each in running),
            *(("strandline cluster at its end", each) for each in self._ended or ()),
        ]


CLUSTERS: Final = Sightings()
"""Those of this process."""
