"""What all brokers said, put together: the picture that pages draw.

A broker tells of its own replicas only. Here they stand side by side: one row for each partition
with every replica of it, as lists, because a page with a thousand partitions gets many of them.
Nor does it tell of all its partitions at once when there are many: an `Assembly` keeps what was
heard last of each, and takes in one piece after another.

    picture    number, wall_ms, controller, brokers, partitions
    broker     id, host, port, rack, is_shutting_down, error (null if it answered), totals, rates
    partition  topic, partition, leader, leader_epoch, replica ids, in-sync ids, replicas
    replica    broker, log_start, high_watermark, last_stable, log_end, epochs, is_offline, reason,
               size in bytes

This file knows the document of the subject `picture` and no sockets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.client.inspection import ByBroker, Document, answers_of
from strandline.errors import ProtocolError
from strandline.types import NO_LEADER, BrokerId

Json = dict[str, Any]
Row = list[Any]
Key = tuple[str, int]

_NAMED: Final = ("host", "port", "rack", "is_shutting_down")


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


@dataclass(frozen=True, slots=True)
class Piece:
    """What all brokers were asked for: partitions behind `after`, in order, and those `named`."""

    after: Key | None = None
    named: tuple[Key, ...] = ()


class Assembly:
    """See the module. `latest` is the picture as of the last piece."""

    def __init__(self) -> None:
        self._rows: dict[BrokerId, dict[Key, Row]] = {}
        """What each broker that answers said last of each of its partitions."""
        self._lost: dict[Key, BrokerId] = {}
        """Partitions of which no broker that answers has a replica, and one that had one."""
        self.latest: Picture | None = None

    def add(self, by_broker: ByBroker, piece: Piece, *, wall_ms: int) -> Picture:
        """Take in what all registered brokers told of a piece.

        Rates are told since the last picture. A broker that does not answer now keeps its place
        with its error, and is not remembered to have any replica. A partition that no other broker
        has stays without replicas, until the broker is back and says whether it has it.
        """
        before = self.latest
        answers = answers_of(by_broker)
        changed: set[Key] = set()
        for silent in self._rows.keys() - answers.keys():
            had = self._rows.pop(silent)
            changed.update(had)
            self._lost.update(dict.fromkeys(had, silent))
        for broker_id, document in answers.items():
            changed |= _take_in(self._rows.setdefault(broker_id, {}), document, piece)
        changed |= self._heard_of(answers, piece)
        names = _names(answers)
        # Where no broker answers, none says that one of those that were asked is gone.
        registered = names.keys() or by_broker.keys()
        controllers = [found["controller"] for found in answers.values()]
        self.latest = Picture(
            number=1 if before is None else before.number + 1,
            wall_ms=wall_ms,
            controller=next((each for each in controllers if each is not None), None),
            brokers=tuple(
                _broker(each, names.get(each), by_broker.get(each), wall_ms, before)
                for each in sorted({*by_broker, *names, *_known(before)})
            ),
            partitions=self._partitions(
                {} if before is None else before.partitions, changed, registered
            ),
        )
        return self.latest

    def _heard_of(self, answers: Mapping[BrokerId, Document], piece: Piece) -> set[Key]:
        """Partitions that were lost and are so no longer: there again, or gone for good."""
        found = {
            key
            for key, owner in self._lost.items()
            if any(key in rows for rows in self._rows.values())
            or (owner in answers and _covers(answers[owner], piece, key))
        }
        for key in found:
            del self._lost[key]
        return found

    def _partitions(
        self, before: Mapping[Key, Row], changed: set[Key], registered: Collection[BrokerId]
    ) -> Mapping[Key, Row]:
        """The rows as they were, but for those of which something else was told."""
        found = dict(before)
        for key in changed | self._lost.keys():
            rows = [
                (broker_id, self._rows[broker_id][key])
                for broker_id in sorted(self._rows)
                if key in self._rows[broker_id]
            ]
            if rows:
                found[key] = _side_by_side(key, rows)
            elif key in self._lost and key in before:
                found[key] = _without_replicas(before[key], registered)
            else:
                found.pop(key, None)
        return found if found.keys() == before.keys() else dict(sorted(found.items()))


def _take_in(known: dict[Key, Row], document: Document, piece: Piece) -> set[Key]:
    """Bring what is known of a broker's partitions up to date; what differs from before."""
    rows = {(row[0], row[1]): row for row in (*document["rows"], *document["asked"])}
    changed = {key for key, row in rows.items() if known.get(key) != row}
    gone = {key for key in known if key not in rows and _covers(document, piece, key)}
    known.update(rows)
    for key in gone:
        del known[key]
    return changed | gone


def _covers(document: Document, piece: Piece, key: Key) -> bool:
    """Whether a broker that has the partition told of it in this piece."""
    is_behind = piece.after is None or key > piece.after
    is_reached = document["next"] is None or key <= tuple(document["next"])
    return key in piece.named or (is_behind and is_reached)


# -- Brokers -----------------------------------------------------------------------------------


def _names(answers: Mapping[BrokerId, Document]) -> dict[BrokerId, Json]:
    """The registered brokers, according to those that answer."""
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
    answer: Document | ProtocolError | None,
    wall_ms: int,
    before: Picture | None,
) -> Json:
    earlier = next((b for b in before.brokers if b["id"] == broker_id), None) if before else None
    found: Json = {"id": broker_id, "is_registered": True}
    # One may be asked before another has heard of it.
    found |= named or {name: earlier and earlier[name] for name in _NAMED}
    if answer is None:
        return found | {"is_registered": False, "error": "It is not registered.", "totals": None}
    if isinstance(answer, ProtocolError):
        return found | {"error": answer.sentence, "totals": None}
    found |= {"error": None, "totals": answer["totals"], "rates": None, "asked_ms": wall_ms}
    found["produce"] = answer.get("produce")  # brokers of 0.1.0 do not tell it, nor sizes of logs
    if earlier is not None and earlier["totals"] is not None and wall_ms > earlier["asked_ms"]:
        seconds = (wall_ms - earlier["asked_ms"]) / 1000
        found["rates"] = {
            # A broker that was started anew counts from zero again.
            name: round(max(0, total - earlier["totals"].get(name, 0)) / seconds, 1)
            for name, total in answer["totals"].items()
        }
    return found


# -- Partitions --------------------------------------------------------------------------------


def _without_replicas(before: Row, registered: Collection[BrokerId]) -> Row:
    """A leader that is silent leads as long as it is registered."""
    leader = before[2] if before[2] in registered else NO_LEADER
    return [*before[:2], leader, *before[3:5], None, []]


def _side_by_side(key: Key, rows: Iterable[tuple[BrokerId, Row]]) -> Row:
    """One row for a partition; what its leader says of it counts, else the newest epoch."""
    row: Row = [*key, NO_LEADER, -1, [], None, []]
    for broker_id, each in rows:
        leader, epoch, start, high, stable, end, epochs, in_sync = each[2:10]
        replicas, is_offline, reason = each[10:13]
        size = each[13] if len(each) > 13 else 0
        if (epoch, in_sync is not None) > (row[3], row[5] is not None):
            row[2:5] = [leader, epoch, replicas]
            row[5] = in_sync
        row[6].append([broker_id, start, high, stable, end, epochs, is_offline, reason, size])
    return row
