"""Looks at each table now and then: how far it is behind, and what it holds.

Runs tell how far they are when they commit. A table that cannot be run falls behind all the same,
and that is when the figure matters; so it is asked for here, of the store and the brokers, without
Spark, in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from strandline.client.cluster import ClusterClient
from strandline.client.security.settings import Security
from strandline.client.settings import ClientSettings
from strandline.errors import StrandlineError
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.progress import held_in, progress_of
from strandline.lakehouse.service.live import LiveTable
from strandline.lakehouse.tables.spec import load_spec
from strandline.lakehouse.tables.store import TableStore, open_store

log = logging.getLogger(__name__)

EVERY_S: Final = 15.0
_PATIENCE_MS: Final = 5_000


class Measurer:
    """A context manager: looks are made within it. `places` are the tables' directories."""

    def __init__(
        self,
        live: Mapping[str, LiveTable],
        places: Sequence[tuple[str, Location]],
        bootstrap: str,
        security: Security,
        every_s: float = EVERY_S,
    ) -> None:
        self._live = live
        self._places = places
        settings = ClientSettings(
            client_id="strandline-tables",
            operation_timeout_ms=_PATIENCE_MS,
            security=security,
        )
        self._client = ClusterClient(bootstrap, settings)
        self._every_s = every_s
        self._stores: dict[str, TableStore] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tables-measured", daemon=True)

    def __enter__(self) -> Measurer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ended.set()
        self._thread.join()
        self._client.close()

    def look(self, name: str, place: Location) -> None:
        """At one table. What it cannot say stays as it was, but for the lag, which is unknown."""
        store = self._stores.get(name)
        if store is None:
            store = self._stores[name] = open_store(load_spec(place))
        if not store.exists():
            return
        progress = progress_of(self._client, store.spec, store.state())
        held = tuple(
            (side, counts["rows"], counts["files"], counts["bytes"])
            for side, each in held_in(store).items()
            for counts in [each.counts()]
        )
        self._live[name].looked_at(progress.lag, held)

    def _run(self) -> None:
        while not self._ended.wait(self._every_s):
            for name, place in self._places:
                if self._ended.is_set():
                    return
                try:
                    self.look(name, place)
                except (StrandlineError, OSError) as error:
                    log.debug("Table %s could not be looked at: %s", name, error)
                    with suppress(KeyError):
                        del self._stores[name]  # its definition may be another one by now
