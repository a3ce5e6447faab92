"""Looking at a cluster again and again, for all pages together, and remembering what was seen.

One thread asks every broker for its brief status a few times a second while somebody watches, and
every few seconds while nobody does. What it makes of the answers (`picture.py`) is told to all
who wait, and kept, compressed, as long as `HISTORY_BYTES_MAX` allows: the time line.

The brokers' side of this is one request each, whatever the number of pages.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import inspect_each
from strandline.client.settings import ClientSettings
from strandline.errors import MalformedFrame, ProtocolError
from strandline.ui.picture import Json, Picture, picture_of

log = logging.getLogger(__name__)

WATCHED_INTERVAL_S: Final = 0.5
UNWATCHED_INTERVAL_S: Final = 3.0
HISTORY_BYTES_MAX: Final = 64 << 20
HISTORY_MAX: Final = 4_000

# Brokers may be paused or gone: a look gives up on one soon, and comes back to it.
_CLIENT: Final = ClientSettings(
    client_id="strandline-ui",
    connect_timeout_ms=2_000,
    request_timeout_ms=3_000,
    operation_timeout_ms=3_000,
)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A picture of the past: numbered, and compressed."""

    number: int
    wall_ms: int
    data: bytes

    def picture(self) -> Json:
        found: Json = json.loads(zlib.decompress(self.data))
        return found


class Watcher:
    """See the module. `close` ends its thread."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_closed = False
        self._watchers = 0
        self._listeners: set[Callable[[], object]] = set()
        self._kept: deque[_Kept] = deque()
        self._kept_bytes = 0
        self.latest: Picture | None = None
        self.trouble: str | None = "The cluster has not been asked yet."
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End it, and wait for the end."""
        self._is_closed = True
        self._wake.set()
        self._thread.join()

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Have `changed` called, in the watcher's thread, whenever there is something new.

        Returns how to end that.
        """
        with self._lock:
            self._listeners.add(changed)
            self._watchers += 1
        self._wake.set()

        def leave() -> None:
            with self._lock:
                self._listeners.discard(changed)
                self._watchers -= 1

        return leave

    def moments(self) -> list[list[int]]:
        """Number and wall clock of every picture that is kept, the oldest first."""
        with self._lock:
            return [[kept.number, kept.wall_ms] for kept in self._kept]

    def past(self, number: int) -> Json | None:
        """A picture by its number, if it is still kept."""
        with self._lock:
            found = next((kept for kept in self._kept if kept.number == number), None)
        return None if found is None else found.picture()

    def _run(self) -> None:
        with ClusterClient(self._bootstrap, _CLIENT) as cluster:
            while not self._is_closed:
                begun = time.monotonic()
                self._look(cluster)
                interval = WATCHED_INTERVAL_S if self._watchers else UNWATCHED_INTERVAL_S
                # A cluster that answers slowly is asked less often, not all the time.
                rest = max(interval - (time.monotonic() - begun), interval / 4)
                self._wake.wait(rest)
                self._wake.clear()

    def _look(self, cluster: ClusterClient) -> None:
        try:
            told = inspect_each(cluster, "picture")
        except (ProtocolError, MalformedFrame) as error:
            self.trouble = f"No broker answers: {error}"
        else:
            self.trouble = None
            wall_ms = time.time_ns() // 1_000_000
            self._keep(picture_of(told, wall_ms=wall_ms, before=self.latest))
        with self._lock:
            listeners = list(self._listeners)
        for changed in listeners:
            changed()

    def _keep(self, picture: Picture) -> None:
        self.latest = picture
        data = zlib.compress(json.dumps(picture.as_json()).encode(), 1)
        with self._lock:
            self._kept.append(_Kept(picture.number, picture.wall_ms, data))
            self._kept_bytes += len(data)
            while self._kept_bytes > HISTORY_BYTES_MAX or len(self._kept) > HISTORY_MAX:
                self._kept_bytes -= len(self._kept.popleft().data)
