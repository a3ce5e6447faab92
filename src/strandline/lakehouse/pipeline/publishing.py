"""What a table has committed, shown as the offsets of a consumer group.

Every Kafka tool can then say how far the table is behind. The table's own commits are the truth;
these offsets follow them and are never read back: a group that cannot be written to costs a
sentence, never a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strandline.client.cluster import ClusterClient
from strandline.client.offsets import commit_offsets
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.client.settings import ClientSettings
from strandline.errors import ProtocolError
from strandline.lakehouse.tables.identity import group_of
from strandline.types import Offset, TopicPartition


class Publisher:
    """Writes a table's frontier to its group, when it has moved. Belongs to one thread."""

    def __init__(
        self,
        bootstrap: str,
        table: str,
        tell: Callable[[str], None],
        *,
        security: Security = PLAINTEXT,
        patience_ms: int = 10_000,
    ) -> None:
        """`tell` gets a sentence when publishing begins to fail, and when it works again."""
        settings = ClientSettings(
            client_id=f"strandline-table-{table}",
            operation_timeout_ms=patience_ms,
            request_timeout_ms=patience_ms,
            security=security,
        )
        self._cluster = ClusterClient(bootstrap, settings)
        self._group = group_of(table)
        self._tell = tell
        self._published: dict[TopicPartition, Offset] = {}
        self._fails = False

    def close(self) -> None:
        """Let the connections go."""
        self._cluster.close()

    def publish(self, frontier: Mapping[TopicPartition, Offset]) -> bool:
        """Write what has moved; whether the group now shows `frontier`. Raises nothing expected."""
        moved = {
            partition: offset
            for partition, offset in frontier.items()
            if self._published.get(partition) != offset
        }
        try:
            commit_offsets(self._cluster, self._group, moved, metadata="table commit")
        except ProtocolError as error:
            if not self._fails:
                self._tell(
                    f"The offsets of group '{self._group}' could not be written: "
                    f"{error.sentence} The table itself is not affected."
                )
            self._fails = True
            return False
        if self._fails:
            self._tell(f"The offsets of group '{self._group}' are written again.")
        self._fails = False
        self._published.update(moved)
        return True
