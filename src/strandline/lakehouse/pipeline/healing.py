"""Dead letters of unknown schemas, replayed by themselves when the registry knows the schema.

Theory: what kept such a letter from being a row is not in its bytes, and goes away outside of the
table. So a run looks at its letters now and then, asks the registry for the ids that they name, and
replays them when one of them is known. A replay can be repeated or killed at any point, and does
not disturb the query that fills the table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

import pyarrow.compute as pc

from strandline.lakehouse.deadletters.letters import ERROR_CLASS, PAYLOAD
from strandline.lakehouse.deadletters.listing import LetterFilter
from strandline.lakehouse.deadletters.replaying import Through, replay
from strandline.lakehouse.pipeline.events import Event, Notice
from strandline.lakehouse.tables.definition import DEAD_LETTERS
from strandline.lakehouse.tables.errors import TableError
from strandline.lakehouse.tables.store import TableStore
from strandline.lakehouse.values.decoding import UNKNOWN_SCHEMA
from strandline.lakehouse.values.registered import client_of
from strandline.schemas.errors import RegistryDown
from strandline.schemas.framing import HEAD_BYTES, is_framed

log = logging.getLogger(__name__)

EVERY_S: Final = 30.0
_IDS_MAX: Final = 50
"""Ids that are asked for at once: bytes that are no framing look like as many ids as there are."""
_WANTED: Final = LetterFilter(error_class=UNKNOWN_SCHEMA)


class Healer:
    """Looks at the letters of one table, at most every so many seconds."""

    def __init__(
        self,
        store: TableStore,
        tell: Callable[[Event], None],
        through: Through | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`store` is for this object alone; `through` carries rows through the transform."""
        self._store = store
        self._tell = tell
        self._through = through
        self._clock = clock
        self._next_s: float | None = None

    def maybe_heal(self) -> int:
        """Replay what can be read by now, if it is time to look; how many letters became rows."""
        registry = self._store.spec.registry
        now = self._clock()
        if registry is None or (self._next_s is not None and now < self._next_s):
            return 0
        self._next_s = now + EVERY_S
        try:
            client = client_of(registry)
            if not any(client.knows(number) for number in sorted(_ids(self._store))):
                return 0
            done = replay(self._store, _WANTED, self._through)
        except (RegistryDown, TableError) as error:
            log.info("Dead letters are not tried again now: %s", error)
            return 0
        if done.replayed:
            self._tell(
                Notice(
                    f"The registry knows their schemas by now: {done.replayed:,} dead letters "
                    "became rows."
                )
            )
        return done.replayed


def _ids(store: TableStore) -> set[int]:
    """The schema ids in the payloads of letters that lacked their schema, a number of them."""
    if not store.files(DEAD_LETTERS):
        return set()
    letters = store.dataset(DEAD_LETTERS)
    found: set[int] = set()
    for batch in letters.to_batches(
        columns=[PAYLOAD], filter=pc.field(ERROR_CLASS) == UNKNOWN_SCHEMA
    ):
        heads = pc.binary_slice(batch.column(PAYLOAD), 0, HEAD_BYTES)
        for head in pc.unique(heads).to_pylist():
            if head is not None and is_framed(head):
                found.add(int.from_bytes(head[1:], "big"))
            if len(found) >= _IDS_MAX:
                return found
    return found
