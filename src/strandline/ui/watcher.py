"""Looking at a cluster again and again, for all pages together, and remembering what was seen.

One thread asks every broker for a piece of its picture a few times a second while pages are open,
and every few seconds while none is. What it makes of the answers (`picture.py`) goes to all pages,
and is kept (`timeline.py`).

The brokers' side of this is one request each, whatever the number of pages, for at most
`ROWS_PER_LOOK` partitions and those that are on a screen, however many there are. A
cluster with more of them is gone through piece by piece, from its first partition to its last and
again; only the first time does one piece follow the other at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.inspection import ByBroker, Document, answers_of, inspect
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.client.settings import Address, ClientSettings
from strandline.errors import InvalidSetting, MalformedFrame, ProtocolError
from strandline.types import BrokerId
from strandline.ui.cluster_poller import ClusterPoller
from strandline.ui.picture import Assembly, Key, Picture, Piece
from strandline.ui.series import Series
from strandline.ui.timeline import TimeLine

log = logging.getLogger(__name__)

WATCHED_INTERVAL_S: Final = 0.5
UNWATCHED_INTERVAL_S: Final = 3.0
FIRST_INTERVAL_S: Final = 0.1
ROWS_PER_LOOK: Final = 250
ON_SCREEN_S: Final = 15.0
"""A partition counts as being on a screen for so long after a page asked about it."""
ON_SCREEN_MAX: Final = 32

# Brokers may be paused or gone: a question gives up on one soon, and comes back to it.
_CLIENT: Final = ClientSettings(
    client_id="strandline-ui",
    connect_timeout_ms=2_000,
    request_timeout_ms=3_000,
    operation_timeout_ms=3_000,
)


class Watcher:
    """See the module. `close` ends its thread."""

    def __init__(self, bootstrap: str, security: Security = PLAINTEXT) -> None:
        self.time_line = TimeLine()
        self.series = Series()
        self.trouble: str | None = "The cluster has not been asked yet."
        self._bootstrap = bootstrap
        self._settings = replace(_CLIENT, security=security)
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._watchers = 0
        self._listeners: set[Callable[[], object]] = set()
        self._poller = ClusterPoller(self._settings)
        self._brokers: Mapping[BrokerId, Address] = {}
        """Those that are registered, as far as was heard in the last look."""
        self._assembly = Assembly()
        self._after: Key | None = None
        self._has_seen_all = False
        self._on_screen: OrderedDict[Key, float] = OrderedDict()
        """Partitions on screens, and until when; the one asked for last stands last."""
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    @property
    def latest(self) -> Picture | None:
        """What was seen last."""
        return self._assembly.latest

    @property
    def is_watched(self) -> bool:
        """Whether a page is open."""
        return self._watchers > 0

    @property
    def has_seen_all(self) -> bool:
        """Whether each partition was seen once."""
        return self._has_seen_all

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End it, and wait for the end."""
        self._ending.set()
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

    def put_on_screen(self, key: Key) -> None:
        """Look at a partition each time, for a while."""
        with self._lock:
            self._on_screen[key] = time.monotonic() + ON_SCREEN_S
            self._on_screen.move_to_end(key)
            if len(self._on_screen) > ON_SCREEN_MAX:
                self._on_screen.popitem(last=False)

    def _run(self) -> None:
        with ClusterClient(self._bootstrap, self._settings) as cluster:
            while not self._ending.is_set():
                begun = time.monotonic()
                self._look(cluster)
                self._rest(time.monotonic() - begun)
        self._poller.close()

    def _rest(self, took: float) -> None:
        is_first_time = not self._has_seen_all and self.trouble is None
        interval = FIRST_INTERVAL_S if is_first_time else WATCHED_INTERVAL_S
        # A cluster that answers slowly is asked less often, not all the time; and pages that come
        # and go cannot have it asked more often.
        self._ending.wait(max(interval - took, min(took, WATCHED_INTERVAL_S)))
        if not self._watchers and not is_first_time:
            self._wake.wait(UNWATCHED_INTERVAL_S - WATCHED_INTERVAL_S)
        self._wake.clear()

    def _look(self, cluster: ClusterClient) -> None:
        piece = Piece(self._after, self._named())
        try:
            by_broker = self._ask(cluster, piece)
        except (ProtocolError, MalformedFrame, InvalidSetting) as error:
            # The last: a certificate or a secret is not where it was, perhaps for a moment.
            self.trouble = f"No broker answers: {error}"
        else:
            self.trouble = None
            wall_ms = time.time_ns() // 1_000_000
            seen = self._assembly.add(by_broker, piece, wall_ms=wall_ms)
            self.time_line.add(seen)
            self.series.add(seen)
            self._after = _end_of(by_broker)
            self._has_seen_all |= self._after is None
        with self._lock:
            listeners = list(self._listeners)
        for changed in listeners:
            changed()

    def _ask(self, cluster: ClusterClient, piece: Piece) -> ByBroker:
        """What the registered brokers say; the next look asks those of which they tell."""
        if not self._brokers:
            view = cluster.refresh()
            self._brokers = {each: info.address for each, info in view.brokers.items()}
        wanted = _question(piece)

        def ask_one(client: ClusterClient, broker_id: BrokerId) -> Document:
            return inspect(client, broker_id, "picture", **wanted)

        by_broker = self._poller.ask(self._brokers, ask_one)
        self._brokers = _registered(by_broker)
        return by_broker

    def _named(self) -> tuple[Key, ...]:
        now = time.monotonic()
        with self._lock:
            for key in [key for key, until in self._on_screen.items() if until < now]:
                del self._on_screen[key]
            return tuple(self._on_screen)


def _question(piece: Piece) -> dict[str, object]:
    wanted: dict[str, object] = {"limit": ROWS_PER_LOOK, "partitions": piece.named}
    return wanted if piece.after is None else wanted | {"after": piece.after}


def _registered(by_broker: ByBroker) -> dict[BrokerId, Address]:
    """Who is registered according to the controller, or to the first that answers if it does not.

    Not according to all: one that is cut off from the metadata tells of brokers that are gone.
    """
    answers = answers_of(by_broker)
    controllers = [found for each, found in answers.items() if found["controller"] == each]
    heard = next(iter((*controllers, *answers.values())), None)
    if heard is None:
        return {}
    return {BrokerId(each): Address(host, port) for each, host, port, *_ in heard["brokers"]}


def _end_of(by_broker: ByBroker) -> Key | None:
    """The last partition that every broker has told of, so that all are asked for the same ones
    next; None at the end, after which it begins anew."""
    ends = [
        (document["next"][0], document["next"][1])
        for document in answers_of(by_broker).values()
        if document["next"] is not None
    ]
    return min(ends, default=None)
