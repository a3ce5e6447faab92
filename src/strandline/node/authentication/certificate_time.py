"""Whether clients take a broker's certificate at a time, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from strandline.node.status.broker_document import Certificate

_SOON_MS: Final = 30 * 86_400_000


class Untimely(NamedTuple):
    """A certificate that clients refuse, or will soon."""

    sentence: str
    """What follows "its certificate FILE"."""
    since_wall_ms: int | None
    """Since when they refuse it; None if they do not yet, or do because it is too early."""


def untimely(certificate: Certificate, wall_ms: int) -> Untimely | None:
    """What is wrong with its time; None while it counts for more than 30 days."""
    if wall_ms < certificate.begins_wall_ms:
        begins = _text(certificate.begins_wall_ms)
        return Untimely(f"is not valid before {begins}: clients refuse it until then", None)
    left_ms = certificate.expires_wall_ms - wall_ms
    expires = _text(certificate.expires_wall_ms)
    if left_ms <= 0:
        return Untimely(
            f"has expired: clients refuse it since {expires}", certificate.expires_wall_ms
        )
    return Untimely(f"expires {expires}", None) if left_ms <= _SOON_MS else None


def _text(wall_ms: int) -> str:
    return f"{datetime.fromtimestamp(wall_ms / 1000, UTC):%Y-%m-%d %H:%M} UTC"
