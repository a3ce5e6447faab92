"""Work on a table that may fail and be done later: nothing that is committed depends on it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from strandline.lakehouse.locations.errors import StoreTrouble
from strandline.lakehouse.tables.backend import Conflict
from strandline.lakehouse.tables.errors import TableError


@contextmanager
def left_for_later(log: logging.Logger, sentence: str) -> Iterator[None]:
    """Trouble ends what is done, and nothing else: it is logged behind the sentence."""
    try:
        yield
    except (StoreTrouble, TableError, Conflict, OSError) as error:
        log.warning("%s: %s", sentence, error)
