"""What is written to a table's topic while its pipeline is being killed, and what must come of it.

A record's value counts up, so that each can be told from all others. Most are rows; some cannot be
read, and must be dead letters; in a table that is appended to, some have an old event time, and may
be late; in one that is upserted, some are tombstones. Now and then there is a new field, for which
the table gets a column. The load remembers what was acknowledged: a record of its own, apart from
the log, of what the table has to hold in the end.
"""

from __future__ import annotations

import json
import random
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer

TABLE: Final = "orders"
"""Of the topic as well."""
EVENT_TIME: Final = "at"
_BATCH: Final = 20
_PAUSE_S: Final = 0.2
_KEYS: Final = 500
_BAD: Final = 0.01
_LATE: Final = 0.01
_TOMBSTONES: Final = 0.03
_FIELD_EVERY: Final = 5_000
_FIELDS: Final = 20


class _Made(NamedTuple):
    """A record as it is sent, and what is to become of it."""

    number: int
    key: str
    value: bytes | None
    is_good: bool


class Load(threading.Thread):
    """Produces until it is told to end. Another thread may read what it counts."""

    def __init__(self, bootstrap: str, seed: int, *, upserts: bool) -> None:
        super().__init__(name="load", daemon=True)
        self._addresses = bootstrap
        self._chance = random.Random(seed)
        self._upserts = upserts
        self._is_over = threading.Event()
        self._next = 0
        self.acknowledged = 0
        self.bad: set[int] = set()
        """The numbers of records that cannot be read."""
        self.newest: dict[str, int | None] = {}
        """By key, the number of its last record that can be read; None after a tombstone."""
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            with ClusterClient(self._addresses) as client:
                producer = Producer(client)
                while not self._is_over.wait(_PAUSE_S):
                    self._send(producer)
        except Exception as error:  # noqa: BLE001 - raised for the caller of `check`
            self.failure = error

    def check(self) -> None:
        """Fails if there is no load any more."""
        assert self.failure is None, f"the load ended: {self.failure!r}"
        assert self.is_alive() or self._is_over.is_set(), "the load ended"

    def end(self) -> None:
        """Stop, and say what went wrong if anything did."""
        self._is_over.set()
        self.join()
        self.check()

    @property
    def good(self) -> int:
        """How many records are rows, late or not. Only for a load that has ended."""
        return self._next - len(self.bad)

    def _send(self, producer: Producer) -> None:
        made = [self._make(self._next + number) for number in range(_BATCH)]
        self._next += _BATCH
        for each in made:
            producer.send(TABLE, each.value, key=each.key.encode())
        result = producer.flush()
        result.raise_failure()
        self.acknowledged += result.delivered
        for each in made:
            if each.is_good:
                self.newest[each.key] = None if each.value is None else each.number
            else:
                self.bad.add(each.number)

    def _make(self, number: int) -> _Made:
        key = str(self._chance.randrange(_KEYS))
        if self._upserts and self._chance.random() < _TOMBSTONES:
            return _Made(number, key, None, is_good=True)
        at = datetime.fromtimestamp(time.time(), UTC)
        if self._chance.random() < _LATE:
            at -= timedelta(hours=1)
        value = {"key": key, "number": number, EVENT_TIME: at.isoformat()}
        generation = number // _FIELD_EVERY
        if generation:
            value[f"extra_{generation % _FIELDS}"] = number
        text = json.dumps(value)
        is_good = self._chance.random() >= _BAD
        return _Made(number, key, (text if is_good else "{" + text).encode(), is_good)
