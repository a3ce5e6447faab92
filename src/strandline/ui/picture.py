"""What all brokers said at about one moment, put together: the picture that pages draw.

A broker tells of its own replicas only. Here they stand side by side: one row for each partition
with every replica of it, as lists, because a page with a thousand partitions gets many of them.

    picture    number, wall_ms, controller, brokers, partitions
    broker     id, host, port, rack, is_shutting_down, error (null if it answered), totals, rates
    partition  topic, partition, leader, leader_epoch, replica ids, in-sync ids, replicas
    replica    broker, log_start, high_watermark, last_stable, log_end, epochs, is_offline, reason

This file knows the document of the subject `picture` and no sockets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.client.inspection import Document
from strandline.errors import ProtocolError
from strandline.types import BrokerId

Json = dict[str, Any]
Row = list[Any]
Key = tuple[str, int]

NO_LEADER: Final = -1


@dataclass(frozen=True, slots=True)
class Picture:
    """See the module. `number` counts up while the server runs."""

    number: int
    wall_ms: int
    controller: int | None
    brokers: tuple[Json, ...]
    partitions: Mapping[Key, Row]

    def as_json(self) -> Json:
        """All of it."""
        return {**self._head(), "partitions": list(self.partitions.values())}

    def changes_since(self, before: Picture | None) -> Json:
        """What a page that shows `before` needs: changed rows, and the names of those that went."""
        if before is None:
            return {**self.as_json(), "since": None, "gone": []}
        changed = [row for key, row in self.partitions.items() if before.partitions.get(key) != row]
        gone = [list(key) for key in before.partitions if key not in self.partitions]
        return {**self._head(), "since": before.number, "partitions": changed, "gone": gone}

    def _head(self) -> Json:
        return {
            "number": self.number,
            "wall_ms": self.wall_ms,
            "controller": self.controller,
            "brokers": list(self.brokers),
        }


def picture_of(
    told: Mapping[BrokerId, Document | ProtocolError], *, wall_ms: int, before: Picture | None
) -> Picture:
    """Put what all brokers told together.

    `before` is the last picture: rates are told since then, and a broker that does not answer now
    keeps its place with its error.
    """
    answers = {each: found for each, found in told.items() if not isinstance(found, ProtocolError)}
    names = _names(answers)
    brokers = tuple(
        _broker(each, names.get(each), told.get(each), wall_ms, before)
        for each in sorted({*told, *names, *_known(before)})
    )
    controllers = [found["controller"] for found in answers.values()]
    return Picture(
        number=1 if before is None else before.number + 1,
        wall_ms=wall_ms,
        controller=next((each for each in controllers if each is not None), None),
        brokers=brokers,
        partitions=_partitions(answers),
    )


# -- Brokers -----------------------------------------------------------------------------------


def _names(answers: Mapping[BrokerId, Document]) -> dict[BrokerId, Json]:
    """Who is registered, according to whoever answers."""
    found: dict[BrokerId, Json] = {}
    for document in answers.values():
        for broker_id, host, port, rack, is_shutting_down in document["brokers"]:
            found[broker_id] = {
                "host": host,
                "port": port,
                "rack": rack,
                "is_shutting_down": is_shutting_down,
            }
    return found


def _known(before: Picture | None) -> list[BrokerId]:
    return [] if before is None else [BrokerId(broker["id"]) for broker in before.brokers]


def _broker(
    broker_id: BrokerId,
    named: Json | None,
    told: Document | ProtocolError | None,
    wall_ms: int,
    before: Picture | None,
) -> Json:
    earlier = next((b for b in before.brokers if b["id"] == broker_id), None) if before else None
    if named is None and earlier is not None:
        named = {name: earlier[name] for name in ("host", "port", "rack", "is_shutting_down")}
    found: Json = {"id": broker_id, "is_registered": True, **(named or {})}
    if told is None:
        return found | {"is_registered": False, "error": "It is not registered.", "totals": None}
    if isinstance(told, ProtocolError):
        return found | {"error": told.message or told.code.name, "totals": None}
    found |= {"error": None, "totals": told["totals"], "rates": None, "asked_ms": wall_ms}
    if earlier is not None and earlier["totals"] is not None and wall_ms > earlier["asked_ms"]:
        seconds = (wall_ms - earlier["asked_ms"]) / 1000
        found["rates"] = {
            # A broker that was started anew counts from zero again.
            name: round(max(0, total - earlier["totals"].get(name, 0)) / seconds, 1)
            for name, total in told["totals"].items()
        }
    return found


# -- Partitions --------------------------------------------------------------------------------


def _partitions(answers: Mapping[BrokerId, Document]) -> dict[Key, Row]:
    """One row for each partition; what its leader says of it counts, else the newest epoch."""
    found: dict[Key, Row] = {}
    for broker_id, document in answers.items():
        for told in document["rows"]:
            topic, partition, leader, epoch, start, high, stable, end, epochs, in_sync = told[:10]
            replicas, is_offline, reason = told[10:13]
            row = found.setdefault(
                (topic, partition), [topic, partition, NO_LEADER, -1, [], None, []]
            )
            if (epoch, in_sync is not None) > (row[3], row[5] is not None):
                row[2:5] = [leader, epoch, replicas]
                row[5] = in_sync
            row[6].append([broker_id, start, high, stable, end, epochs, is_offline, reason])
    return dict(sorted(found.items()))
