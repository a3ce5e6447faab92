"""What the live page shows of tables: one document, asked of their stores and of the brokers.

Theory: pages ask every few seconds, and most of the time nothing has changed. So a table's commits,
files and letters are read again only when it has another version; how far its topics are ahead is
asked each time. A table that cannot be looked at says why, and the others are shown. This file
knows no page and no Spark.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Final

from strandline.client.cluster import ClusterClient
from strandline.errors import StrandlineError
from strandline.lakehouse.deadletters.listing import count_letters, list_letters
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.progress import held_in, progress_of
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.identity import TableState
from strandline.lakehouse.tables.spec import list_specs
from strandline.lakehouse.tables.store import TableStore, open_store

TABLES_MAX: Final = 100
COMMITS_SHOWN: Final = 10
LETTERS_SHOWN: Final = 10
PARTITIONS_MAX: Final = 1000
"""Of a table, those that are furthest behind."""
_TEXT_MAX: Final = 300


@dataclass(slots=True)
class _Known:
    """A table, and what was read of it at one version."""

    spec: TableSpec
    store: TableStore
    state: TableState
    contents: Mapping[str, Any]


class TablesShown:
    """The tables in one directory; for any thread, one at a time."""

    def __init__(self, tables: Location) -> None:
        self._tables = tables
        self._lock = threading.Lock()
        self._known: dict[str, _Known] = {}

    def document(self, cluster: ClusterClient, values: Mapping[str, str]) -> dict[str, Any]:
        """All tables. `values`, those of the request's address, say nothing here."""
        del values
        with self._lock:
            specs = list_specs(self._tables)
            names = {spec.name for spec in specs}
            self._known = {name: each for name, each in self._known.items() if name in names}
            shown = [self._shown(cluster, spec) for spec in specs[:TABLES_MAX]]
        return {
            "directory": str(self._tables),
            "tables": shown,
            "left_out": max(0, len(specs) - TABLES_MAX),
        }

    def _shown(self, cluster: ClusterClient, spec: TableSpec) -> dict[str, Any]:
        about = {
            "name": spec.name,
            "topics": list(spec.topics),
            "format": spec.format,
            "mode": spec.mode,
            "location": spec.location,
        }
        try:
            known = self._looked_at(spec)
            if known is None:
                return {**about, "trouble": "The table was defined, and never run."}
            progress = progress_of(cluster, spec, known.state)
        except (StrandlineError, OSError) as error:
            self._known.pop(spec.name, None)
            return {**about, "trouble": str(error)}
        lag = progress.lag
        behind = {} if lag is None else lag.by_partition
        furthest = nlargest(PARTITIONS_MAX, progress.reached, key=lambda each: behind.get(each, 0))
        return {
            **about,
            **known.contents,
            "trouble": progress.trouble,
            "lag": None if lag is None else {"records": lag.records, "seconds": lag.seconds},
            "partitions": [
                [*place, *progress.reached[place], behind.get(place)] for place in sorted(furthest)
            ],
        }

    def _looked_at(self, spec: TableSpec) -> _Known | None:
        known = self._known.get(spec.name)
        if known is None or known.spec != spec:
            store = open_store(spec)
            if not store.exists():
                return None
            known = self._known[spec.name] = _Known(spec, store, store.state(), {})
        state = known.store.state()
        if not known.contents or state.version != known.state.version:
            known.state, known.contents = state, _contents(known.store, state)
        return known


def _contents(store: TableStore, state: TableState) -> dict[str, Any]:
    letters = list_letters(store)
    newest = nlargest(LETTERS_SHOWN, letters, key=lambda each: each.table_sequence)
    return {
        "commit": state.sequence,
        "watermark_ms": None if state.watermark_us is None else state.watermark_us // 1000,
        "held": {side: held.counts() for side, held in held_in(store).items()},
        "commits": [
            {
                "commit": each.sequence,
                "at_ms": each.at_ms,
                "kind": each.kind,
                "rows": each.rows,
                "late": each.late_rows,
                "dead": each.dead_letters,
                "offsets": sum(span.end - span.start for span in each.ranges),
            }
            for each in store.history(COMMITS_SHOWN)
        ],
        "letters": {
            "classes": count_letters(store),
            "newest": [
                {
                    "topic": each.topic,
                    "partition": each.partition,
                    "offset": each.offset,
                    "at_ms": each.timestamp_ms,
                    "class": each.error_class,
                    "error": each.error[:_TEXT_MAX],
                }
                for each in newest
            ],
        },
    }
