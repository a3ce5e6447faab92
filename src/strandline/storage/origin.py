"""Where a batch that is appended comes from, which says how far it is checked.

This file knows nothing else. A client's batch is checked for everything; a coordinator of this
broker writes without sequence numbers, so only epochs are checked; what replication or recovery
brings was checked by the leader that first wrote it and is taken as it is (KAFKA-6003).
"""

from __future__ import annotations

from enum import Enum


class AppendOrigin(Enum):
    """Who hands a batch to the log."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"
