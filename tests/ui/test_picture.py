"""What brokers told, put together, and what changed since."""

from __future__ import annotations

import json
from typing import Any

from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId
from strandline.ui.picture import Assembly, Key, Picture, Piece
from strandline.ui.timeline import STRETCH_MAX, TimeLine

BROKERS = [[1, "localhost", 9092, None, False], [2, "localhost", 9093, "b", False]]


def told(
    *rows: list[Any],
    records_in: int = 0,
    controller: int | None = 1,
    end: Key | None = None,
    asked: list[list[Any]] | None = None,
) -> dict[str, Any]:
    return {
        "controller": controller,
        "brokers": BROKERS,
        "totals": {"records_in": records_in},
        "rows": list(rows),
        "next": end,
        "asked": asked or [],
    }


def row(
    end: int, *, leader: int = 1, epoch: int = 0, in_sync: list[int] | None = None
) -> list[Any]:
    return ["t", 0, leader, epoch, 0, 0, 0, end, [[0, 0]], in_sync, [1, 2], False, None, 100]


class Looks:
    """An assembly that looks once a second."""

    def __init__(self) -> None:
        self.assembly = Assembly()
        self.wall_ms = 0

    def look(self, documents: dict[int, Any], piece: Piece | None = None) -> Picture:
        self.wall_ms += 1000
        found = {BrokerId(broker): document for broker, document in documents.items()}
        return self.assembly.add(found, piece or Piece(), wall_ms=self.wall_ms)


def picture(documents: dict[int, Any]) -> Picture:
    return Looks().look(documents)


def test_replicas_of_a_partition_stand_side_by_side() -> None:
    shown = picture({1: told(row(7, in_sync=[1, 2])), 2: told(row(5))})
    (partition,) = shown.partitions.values()
    assert partition[:6] == ["t", 0, 1, 0, [1, 2], [1, 2]]
    assert [(copy[0], copy[4]) for copy in partition[6]] == [(1, 7), (2, 5)]


def test_the_newest_epoch_says_who_leads() -> None:
    """A leader that was cut off still believes in itself."""
    shown = picture({1: told(row(7, in_sync=[1])), 2: told(row(5, leader=2, epoch=1, in_sync=[2]))})
    (partition,) = shown.partitions.values()
    assert partition[2:6] == [2, 1, [1, 2], [2]]


def test_a_broker_that_does_not_answer_keeps_its_place() -> None:
    silent = ProtocolError(ErrorCode.NETWORK_EXCEPTION, "It hung up.")
    shown = picture({1: told(row(7, in_sync=[1, 2])), 2: silent})
    assert [(each["id"], each["error"]) for each in shown.brokers] == [
        (1, None),
        (2, "It hung up."),
    ]
    assert shown.brokers[1]["host"] == "localhost"


def test_a_broker_that_is_gone_is_remembered() -> None:
    looks = Looks()
    looks.look({1: told(), 2: told(row(5))})
    alone = told()
    alone["brokers"] = BROKERS[:1]
    after = looks.look({1: alone})
    assert after.brokers[1]["error"] == "It is not registered."
    assert after.brokers[1]["port"] == 9093


def test_a_partition_that_only_a_silent_broker_had_is_not_forgotten() -> None:
    """It has no replicas, and no leader once the broker is not registered any more."""
    looks = Looks()
    silent = ProtocolError(ErrorCode.NETWORK_EXCEPTION, "It hung up.")
    unregistered = told()
    unregistered["brokers"] = BROKERS[:1]
    looks.look({1: told(), 2: told(row(5, leader=2), at("u", 0, 1))})
    shown = looks.look({1: told(), 2: silent})
    assert shown.partitions["t", 0] == ["t", 0, 2, 0, [1, 2], None, []]
    assert looks.look({1: unregistered}).partitions["t", 0][2] == -1
    before_its_piece = looks.look({1: told(), 2: told()}, Piece(after=("u", 0)))
    assert list(before_its_piece.partitions) == [("t", 0), ("u", 0)]
    assert ends(looks.look({1: told(), 2: told(row(5, leader=2))})) == {("t", 0): [5]}


def test_leaders_are_not_taken_for_gone_while_no_broker_answers() -> None:
    looks = Looks()
    silent = ProtocolError(ErrorCode.REQUEST_TIMED_OUT, "It does not answer in time.")
    looks.look({1: told(row(5, leader=2)), 2: told(row(5, leader=2))})
    shown = looks.look({1: silent, 2: silent})
    assert shown.partitions["t", 0] == ["t", 0, 2, 0, [1, 2], None, []]


def test_a_partition_that_moved_while_its_broker_was_silent_is_found() -> None:
    looks = Looks()
    silent = ProtocolError(ErrorCode.NETWORK_EXCEPTION, "It hung up.")
    looks.look({1: told(), 2: told(row(5, leader=2))})
    looks.look({1: told(), 2: silent})
    assert ends(looks.look({1: told(row(5)), 2: silent})) == {("t", 0): [5]}
    assert not looks.look({1: told(), 2: silent}).partitions


def test_rates_are_since_the_picture_before() -> None:
    looks = Looks()
    looks.look({1: told(records_in=100)})
    assert looks.look({1: told(records_in=250)}).brokers[0]["rates"] == {"records_in": 150.0}
    restarted = looks.look({1: told(records_in=5)})
    assert restarted.brokers[0]["rates"] == {"records_in": 0.0}


def test_only_changes_are_told() -> None:
    looks = Looks()
    before = looks.look({1: told(row(7, in_sync=[1]), at("u", 0, 3))})
    after = looks.look({1: told(row(8, in_sync=[1]))})
    changes = after.changes_since(before)
    assert [each[0] for each in changes["partitions"]] == ["t"]
    assert (changes["since"], changes["gone"]) == (1, [["u", 0]])
    assert after.changes_since(None)["since"] is None


# -- In pieces ---------------------------------------------------------------------------------


def at(topic: str, partition: int, end: int) -> list[Any]:
    return [topic, partition, *row(end, in_sync=[1])[2:]]


def ends(shown: Picture) -> dict[Key, list[int]]:
    """The log ends of all replicas that are known of each partition."""
    return {key: [copy[4] for copy in row[6]] for key, row in shown.partitions.items()}


def test_pieces_make_a_picture() -> None:
    looks = Looks()
    first = looks.look({1: told(at("a", 0, 1), at("a", 1, 1), end=("a", 1))})
    assert ends(first) == {("a", 0): [1], ("a", 1): [1]}
    both = looks.look({1: told(at("b", 0, 1))}, Piece(after=("a", 1)))
    assert ends(both) == {("a", 0): [1], ("a", 1): [1], ("b", 0): [1]}
    again = looks.look({1: told(at("a", 0, 2), end=("a", 0))})
    assert ends(again) == {("a", 0): [2], ("a", 1): [1], ("b", 0): [1]}
    assert [each[:2] for each in again.changes_since(both)["partitions"]] == [["a", 0]]
    assert list(again.partitions) == sorted(again.partitions)


def test_what_a_piece_should_have_and_has_not_is_gone() -> None:
    looks = Looks()
    looks.look({1: told(at("a", 0, 1), at("a", 1, 1), at("b", 0, 1), at("c", 0, 1))})
    after = looks.look({1: told(at("b", 0, 1), end=("b", 0))}, Piece(after=("a", 0)))
    assert list(after.partitions) == [("a", 0), ("b", 0), ("c", 0)]
    last = looks.look({1: told()}, Piece(after=("b", 0)))
    assert list(last.partitions) == [("a", 0), ("b", 0)]


def test_brokers_get_differently_far() -> None:
    """One has all partitions of the piece, the other only some, and gets further."""
    looks = Looks()
    shown = looks.look(
        {1: told(at("a", 0, 1), at("a", 1, 1), end=("a", 1)), 2: told(row(4)), 3: told()}
    )
    assert ends(shown) == {("a", 0): [1], ("a", 1): [1], ("t", 0): [4]}
    after = looks.look({1: told(row(5)), 2: told(row(4))}, Piece(after=("a", 1)))
    assert ends(after) == {("a", 0): [1], ("a", 1): [1], ("t", 0): [5, 4]}


def test_what_is_on_the_screen_is_always_new() -> None:
    looks = Looks()
    looks.look({1: told(at("a", 0, 1), at("b", 0, 1))})
    seen = Piece(named=(("b", 0),))
    after = looks.look({1: told(at("a", 0, 2), end=("a", 0), asked=[at("b", 0, 9)])}, seen)
    assert ends(after) == {("a", 0): [2], ("b", 0): [9]}
    assert ends(looks.look({1: told(at("a", 0, 2), end=("a", 0))}, seen)) == {("a", 0): [2]}


# -- The time line -----------------------------------------------------------------------------


def test_every_moment_is_as_it_was() -> None:
    looks, line, shown = Looks(), TimeLine(), []
    for number in range(3 * STRETCH_MAX // 2):
        rows = [at("a", 0, number), *([at("b", 0, 1)] if number % 7 < 4 else [])]
        shown.append(looks.look({1: told(*rows)}))
        line.add(shown[-1])
    assert [number for number, _ in line.moments()] == [each.number for each in shown]
    assert line.moments(after=58) == [[59, 59_000], [60, 60_000]]
    assert [line.picture(each.number) for each in shown] == [each.as_json() for each in shown]
    assert len(line.moments(after=61)) == 60
    assert line.picture(0) is None
    assert line.picture(61) is None


def test_the_oldest_moments_go() -> None:
    looks, line = Looks(), TimeLine(moments_max=100)
    for _ in range(5 * STRETCH_MAX):
        line.add(looks.look({1: told(row(1))}))
    kept = [number for number, _ in line.moments()]
    assert 100 - STRETCH_MAX < len(kept) <= 100
    assert kept == list(range(kept[0], 201))
    assert line.oldest == kept[0]
    assert line.picture(kept[0]) is not None
    small = TimeLine(bytes_max=1)
    for _ in range(STRETCH_MAX + 1):
        small.add(looks.look({1: told(row(1))}))
    assert len(small.moments()) == 1


# -- What a thousand partitions take -----------------------------------------------------------


def test_a_thousand_partitions_that_all_move_are_small_pieces() -> None:
    """Bytes of an event to a page, and of what is kept of it."""
    looks = Looks()
    keys = [(f"topic-{number // 20:03d}", number % 20) for number in range(1000)]

    def moved(first: int, end: int) -> dict[int, Any]:
        rows = [[*at(*key, 1_000_000 + end)] for key in keys[first : first + 250]]
        last = None if first == 750 else keys[first + 249]
        return {broker: told(*rows, end=last) for broker in (1, 2, 3)}

    before = None
    for turn in range(2):
        for first in range(0, 1000, 250):
            after = keys[first - 1] if first else None
            shown = looks.look(moved(first, turn), Piece(after=after))
            if turn:
                told_rows = shown.changes_since(before)["partitions"]
                assert len(told_rows) == 250
                assert len(json.dumps(told_rows, separators=(",", ":"))) < 50_000
            before = shown
    assert len(shown.partitions) == 1000
