"""Ranges of commits: in order, without gap or repetition."""

from __future__ import annotations

import pytest

from strandline.lakehouse.verify.coverage import Span, Step, coverage
from strandline.types import TopicPartition

HERE = TopicPartition("orders", 0)


def steps(*spans: tuple[int, int]) -> list[Step]:
    return [Step(version, Span(*span)) for version, span in enumerate(spans)]


def test_ranges_that_follow_one_another() -> None:
    found = coverage({HERE: steps((5, 10), (10, 10), (10, 40))})[HERE]
    assert (found.start, found.end, found.wrong) == (5, 40, [])


@pytest.mark.parametrize(
    ("spans", "said"),
    [
        (((0, 10), (12, 20)), "offsets 10 to 11 are in no commit: commit 1 begins at 12"),
        (((0, 10), (8, 20)), "offsets 8 to 9 are in more than one commit"),
        (((0, 10), (2, 5)), "offsets 2 to 4 are in more than one commit"),
        (((10, 5),), "claims offsets from 10 back to 5"),
    ],
)
def test_what_is_wrong(spans: tuple[tuple[int, int], ...], said: str) -> None:
    [sentence] = coverage({HERE: steps(*spans)})[HERE].wrong
    assert said in sentence
    assert sentence.startswith("orders-0: ")


def test_partitions_are_judged_apart() -> None:
    there = TopicPartition("orders", 1)
    found = coverage({HERE: steps((0, 10), (11, 12)), there: steps((7, 9))})
    assert (len(found[HERE].wrong), found[there].wrong) == (1, [])
