"""The subject `picture`: everything, in pieces of bounded length, or what is asked for by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.node.status.picture import ASKED_MAX, COLUMNS
from strandline.protocol.messages.inspect import InspectRequest
from tests.node.messages import batch, produce
from tests.node.world import World

Keys = list[tuple[str, int]]


def picture(world: World, **arguments: object) -> Any:
    answer = ask(world, **arguments)
    assert answer.error_code == 0, answer
    return json.loads(answer.document)


def ask(world: World, **arguments: object) -> Any:
    encoded = json.dumps(arguments).encode()
    return world.connect().ask(InspectRequest(subject="picture", arguments=encoded), 0)


def keys(rows: list[Any]) -> Keys:
    return [(row[0], row[1]) for row in rows]


@pytest.fixture
def many(world: World) -> World:
    """Twelve partitions of one topic and one of another, created in no order."""
    world.create_topic("zebras", partitions=1)
    world.create_topic("ants", partitions=12)
    return world


ALL: Keys = [*(("ants", number) for number in range(12)), ("orders", 0), ("zebras", 0)]


def test_all_partitions_are_told_in_order(many: World) -> None:
    many.connect().ask(produce(batch(b"a", b"b")), 9)
    told = picture(many)
    assert keys(told["rows"]) == ALL
    assert (told["next"], told["asked"]) == (None, [])
    row = dict(zip(told["columns"], told["rows"][12], strict=True))
    assert (row["high_watermark"], row["log_end_offset"], row["in_sync"]) == (2, 2, [1])
    assert told["columns"] == list(COLUMNS)


@pytest.mark.parametrize("limit", [1, 3, 7, 13, 14, 15])
def test_pieces_make_the_whole(many: World, limit: int) -> None:
    found: Keys = []
    after = None
    for _ in range(len(ALL)):
        told = picture(many, limit=limit, **({} if after is None else {"after": after}))
        assert len(told["rows"]) <= limit
        found += keys(told["rows"])
        after = told["next"]
        if after is None:
            break
    assert found == ALL


def test_a_place_that_is_gone_is_gone_on_from(many: World) -> None:
    """The topic at which the last piece ended was deleted since."""
    assert keys(picture(many, after=["bees", 3])["rows"]) == ALL[12:]
    assert keys(picture(many, after=["zzz", 0])["rows"]) == []
    assert picture(many, after=["zzz", 0], limit=5)["next"] is None


def test_what_is_on_the_screen_is_told_in_every_piece(many: World) -> None:
    told = picture(many, limit=2, partitions=[["zebras", 0], ["ants", 99], ["bees", 0]])
    assert keys(told["rows"]) == ALL[:2]
    assert keys(told["asked"]) == [("zebras", 0)]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"limit": 0}, "'limit' must be at least 1"),
        ({"limit": "all"}, "whole number"),
        ({"after": "ants"}, 'names partitions as ["topic", number]'),
        ({"after": ["ants", True]}, 'names partitions as ["topic", number]'),
        ({"partitions": [["ants"]]}, 'names partitions as ["topic", number]'),
        ({"partitions": [["ants", 1]] * (ASKED_MAX + 1)}, "list of at most 64 partitions"),
        ({"topics": ["ants"]}, "no argument 'topics'"),
    ],
)
def test_what_makes_no_sense_is_refused(
    world: World, arguments: dict[str, object], part: str
) -> None:
    answer = ask(world, **arguments)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert part in answer.error_message
