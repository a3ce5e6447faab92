"""The TLS handshakes of clients that failed lately, and why: what `why` tells of them.

Of each client address, listener and reason there is one entry; entries are bounded, and those
longest ago go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from strandline.types import Instant

_ENTRIES_MAX: Final = 100
_REMEMBERED_MS: Final = 3_600_000


class HandshakeKind(NamedTuple):
    """What failures are told together by."""

    listener: str
    host: str
    """The client's address."""
    reason: str
    """In OpenSSL's words, or the system's."""


@dataclass(slots=True)
class HandshakeFailures:
    """How often and when handshakes of one kind failed."""

    first: Instant
    last: Instant
    count: int = 0


class FailedHandshakes:
    """See the module."""

    def __init__(self) -> None:
        self._found: OrderedDict[HandshakeKind, HandshakeFailures] = OrderedDict()

    def note(self, kind: HandshakeKind, now: Instant) -> None:
        """One has failed."""
        entry = self._found.setdefault(kind, HandshakeFailures(now, now))
        entry.last = now
        entry.count += 1
        self._found.move_to_end(kind)
        if len(self._found) > _ENTRIES_MAX:
            self._found.popitem(last=False)

    def lately(self, now: Instant) -> Iterator[tuple[HandshakeKind, HandshakeFailures]]:
        """Those of the last hour, the newest first."""
        for kind, failures in reversed(self._found.items()):
            if now.monotonic_ms - failures.last.monotonic_ms <= _REMEMBERED_MS:
                yield kind, failures
