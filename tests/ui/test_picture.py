"""What brokers told, put together, and what changed since."""

from __future__ import annotations

from typing import Any

from strandline.errors import ErrorCode, ProtocolError
from strandline.types import BrokerId
from strandline.ui.picture import Picture, picture_of

BROKERS = [[1, "localhost", 9092, None, False], [2, "localhost", 9093, "b", False]]


def told(*rows: list[Any], records_in: int = 0, controller: int | None = 1) -> dict[str, Any]:
    return {
        "controller": controller,
        "brokers": BROKERS,
        "totals": {"records_in": records_in},
        "rows": list(rows),
    }


def row(
    end: int, *, leader: int = 1, epoch: int = 0, in_sync: list[int] | None = None
) -> list[Any]:
    return ["t", 0, leader, epoch, 0, 0, 0, end, [[0, 0]], in_sync, [1, 2], False, None]


def picture(
    documents: dict[int, Any], *, wall_ms: int = 1000, before: Picture | None = None
) -> Picture:
    found = {BrokerId(broker): document for broker, document in documents.items()}
    return picture_of(found, wall_ms=wall_ms, before=before)


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
    before = picture({1: told(), 2: told()})
    alone = told()
    alone["brokers"] = BROKERS[:1]
    after = picture({1: alone}, before=before)
    assert after.brokers[1]["error"] == "It is not registered."
    assert after.brokers[1]["port"] == 9093


def test_rates_are_since_the_picture_before() -> None:
    before = picture({1: told(records_in=100)}, wall_ms=1000)
    after = picture({1: told(records_in=400)}, wall_ms=3000, before=before)
    assert after.brokers[0]["rates"] == {"records_in": 150.0}
    restarted = picture({1: told(records_in=5)}, wall_ms=4000, before=after)
    assert restarted.brokers[0]["rates"] == {"records_in": 0.0}


def test_only_changes_are_told() -> None:
    other = ["u", *row(3, in_sync=[1])[1:]]
    before = picture({1: told(row(7, in_sync=[1]), other)})
    after = picture({1: told(row(8, in_sync=[1]))}, before=before)
    changes = after.changes_since(before)
    assert [each[0] for each in changes["partitions"]] == ["t"]
    assert (changes["since"], changes["gone"]) == (1, [["u", 0]])
    assert after.changes_since(None)["since"] is None
