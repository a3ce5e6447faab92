"""What a member of a share group says became of a record (ShareAcknowledge, KIP-932)."""

from __future__ import annotations

from enum import IntEnum


class AckType(IntEnum):
    """By Kafka's numbers."""

    GAP = 0
    """There is no record at this offset."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
