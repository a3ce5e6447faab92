"""What a table's settings of upkeep have done to it, in one go: rows that are too old, then files.

Versions and marks that are too old go with the shortening of the format's metadata.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from strandline.lakehouse.tables.backend import Conflict
from strandline.lakehouse.tables.expiring import Expired
from strandline.lakehouse.tables.store import TableStore


@dataclass(frozen=True, slots=True)
class Cared:
    """What was done; None: the table does not ask for it."""

    expired: Expired | None = None
    files: int | None = None
    """That no version needs, deleted."""

    def sentences(self) -> list[str]:
        """For people; nothing where nothing was to do."""
        told = []
        if self.expired is not None and self.expired.records:
            files = self.expired.whole_files + self.expired.rewritten_files
            told.append(
                f"{self.expired.records:,} records were too old: their rows and letters went, with "
                f"{self.expired.whole_files:,} of {files:,} files as a whole."
            )
        if self.files:
            told.append(f"Deleted {self.files:,} files that no reader needs.")
        return told


def care_for(store: TableStore, *, now_ms: int, vacuum_ms: int | None = None) -> Cared:
    """Do it; `vacuum_ms` takes the place of the definition's.

    Raises StoreTrouble and TableError; what was done until then stays done.
    """
    spec = store.spec
    age_ms = vacuum_ms if vacuum_ms is not None else spec.vacuum_ms
    expired = None if spec.expire_rows_ms is None else store.expire(now_ms=now_ms)
    if spec.keep_history_ms is not None:
        with suppress(Conflict):  # another writer was first; then the next time
            store.checkpoint()
    files = None if age_ms is None else len(store.vacuum(now_ms=now_ms, older_than_ms=age_ms))
    return Cared(expired, files)
