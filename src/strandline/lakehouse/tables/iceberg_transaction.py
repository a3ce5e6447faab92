"""A transaction of pyiceberg's that makes its metadata once, and removes nothing that it wrote.

Theory: a catalog may carry out a commit whose answer is lost. A client or gateway that asks again
is told that the table has changed, which is then by its own first attempt. pyiceberg takes that
for a conflict and deletes the commit's manifests, which the table's newest snapshot names by then:
no reader could open the table any more. Whether the commit was made is found out afterwards
(`landing`); what a conflict leaves is the vacuum's.
"""

from __future__ import annotations

from typing import Any

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

    def _register_snapshot_producer(self, producer: Any) -> None:
        """Not at all: it is for retries, of which there are none, and for that deletion."""
