"""The audit log: who was allowed or denied what, from where, as lines of JSON.

    {"time": "2026-01-02T03:04:05.678Z", "broker": 1, "principal": "User:alice", "host": "10.0.0.1",
     "listener": "SECURE", "client_id": "app", "api": "PRODUCE", "operation": "Write",
     "resource_type": "Topic", "resource": "orders", "allowed": false,
     "reason": "no ACL allows it", "repeated": 12}

Clients that are denied ask again and again: of the same decision there is one line a minute, whose
`repeated` counts those since the one before, and at most `LINES_PER_SECOND` of all together, which
the next line counts as `suppressed`. The lines go to the logger `strandline.audit`.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from strandline.authorization.acls import Operation, ResourceType
from strandline.authorization.authorizer import Verdict
from strandline.types import Instant, Principal

log = logging.getLogger("strandline.audit")

REPEAT_MS: Final = 60_000
LINES_PER_SECOND: Final = 100
_REMEMBERED_MAX: Final = 1_000
_NAME_CHARACTERS_MAX: Final = 300


class Asked(NamedTuple):
    """One question to the authorizer."""

    principal: Principal
    host: str
    api: str
    operation: Operation
    resource_type: ResourceType
    resource: str


@dataclass(slots=True)
class Denial:
    """What was refused last, and how often since it was told."""

    asked: Asked
    reason: str
    is_by_acl: bool
    """An ACL denies it; else none allows it."""
    first: Instant
    at: Instant
    told_ms: int
    untold: int = 0


class Audit:
    """See the module. `denials` has the newest last; rules of `why` read them."""

    def __init__(self, broker_id: int, *, tells_allowed: bool) -> None:
        self._broker_id = broker_id
        self.tells_allowed = tells_allowed
        self.denials: OrderedDict[Asked, Denial] = OrderedDict()
        self._allowed: OrderedDict[Asked, Denial] = OrderedDict()
        self._second = 0
        self._lines = 0
        self._suppressed = 0

    def note(
        self,
        asked: Asked,
        *,
        verdict: Verdict,
        listener: str,
        client_id: str | None,
        now: Instant,
    ) -> None:
        """The authorizer has decided."""
        is_allowed, reason, is_by_acl = verdict
        if is_allowed and not self.tells_allowed:
            return
        if len(asked.resource) > _NAME_CHARACTERS_MAX:
            asked = asked._replace(resource=asked.resource[:_NAME_CHARACTERS_MAX])
        known = self._allowed if is_allowed else self.denials
        entry = known.get(asked)
        if entry is None:
            if len(known) >= _REMEMBERED_MAX:
                known.popitem(last=False)
            told_ms = now.monotonic_ms - REPEAT_MS
            entry = known[asked] = Denial(asked, reason, is_by_acl, now, now, told_ms)
        else:
            known.move_to_end(asked)
        entry.reason, entry.is_by_acl, entry.at = reason, is_by_acl, now
        if now.monotonic_ms - entry.told_ms < REPEAT_MS or not self._has_room(now):
            entry.untold += 1
            return
        line: dict[str, object] = {
            "time": _text_of(now),
            "broker": self._broker_id,
            "principal": str(asked.principal)[:_NAME_CHARACTERS_MAX],
            "host": asked.host,
            "listener": listener,
            "client_id": client_id and client_id[:_NAME_CHARACTERS_MAX],
            "api": asked.api,
            "operation": asked.operation.word,
            "resource_type": asked.resource_type.word,
            "resource": asked.resource,
            "allowed": is_allowed,
            "reason": reason,
        }
        if entry.untold:
            line["repeated"] = entry.untold
        if self._suppressed:
            line["suppressed"] = self._suppressed
            self._suppressed = 0
        entry.told_ms, entry.untold = now.monotonic_ms, 0
        log.info("%s", json.dumps(line, separators=(", ", ": ")))

    def _has_room(self, now: Instant) -> bool:
        second = now.monotonic_ms // 1000
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines >= LINES_PER_SECOND:
            self._suppressed += 1
            return False
        self._lines += 1
        return True


def _text_of(now: Instant) -> str:
    moment = datetime.fromtimestamp(now.wall_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
