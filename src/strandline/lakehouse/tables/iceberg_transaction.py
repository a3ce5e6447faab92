"""A transaction of pyiceberg's that does not make the same metadata again and again."""

from __future__ import annotations

from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata


class CommitTransaction(Transaction):
    """Makes the metadata that it would commit once for each update. pyiceberg makes it at each of
    some twenty looks, and copies all snapshots for that: half of a commit's time."""

    _made: tuple[object, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """As of the updates until now."""
        if self._made is None or self._made[0] is not self._updates:
            self._made = self._updates, super().table_metadata
        return self._made[1]
