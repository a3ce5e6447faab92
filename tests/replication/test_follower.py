"""What a follower makes of an answer."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode
from strandline.replication.follower import (
    Action,
    Append,
    Asked,
    AskOffsets,
    BackOff,
    Continue,
    FetchAnswer,
    Followed,
    Ignore,
    Truncate,
    TruncateFully,
    Wait,
    follower_high_watermark,
    judge,
    out_of_range_step,
    restart_offset,
)
from strandline.replication.truncation import EpochEnd, Target
from strandline.types import LeaderEpoch, Offset
from tests.replication.test_truncation import Table


def judged(
    code: ErrorCode = ErrorCode.NONE,
    *,
    diverging: tuple[int, int] | None = None,
    asked_offset: int = 5,
    asked_epoch: int = 3,
    log_start_offset: int = 1,
    high_watermark: int = 4,
) -> Action:
    answer = FetchAnswer(
        code,
        Offset(9),
        Offset(log_start_offset),
        None if diverging is None else EpochEnd(LeaderEpoch(diverging[0]), Offset(diverging[1])),
        True,
    )
    table = Table(5, (0, 0), (2, 3))
    replica = Followed(LeaderEpoch(3), LeaderEpoch(2), Offset(5), Offset(high_watermark), table)
    return judge(answer, Asked(Offset(asked_offset), LeaderEpoch(asked_epoch)), replica)


def test_an_answer_is_appended() -> None:
    assert judged() == Append(Offset(9), Offset(1))


def test_r10_the_watermarks_of_a_diverging_answer_are_not_to_be_used() -> None:
    """KAFKA-14704: the action does not even carry them."""
    assert judged(diverging=(0, 2)) == Truncate(Target(Offset(2), True))


@pytest.mark.parametrize("end_offset", [3, 4])
def test_a_log_that_parted_below_its_leaders_start_starts_over(end_offset: int) -> None:
    """Note 0049: the leader knows nothing of what is older, so neither log can be compared."""
    told = judged(diverging=(0, end_offset), log_start_offset=4, high_watermark=3)
    assert told == TruncateFully(Offset(4))


def test_what_its_own_high_watermark_covers_needs_no_comparison() -> None:
    told = judged(diverging=(1, 4), log_start_offset=4, high_watermark=4)
    assert told == Truncate(Target(Offset(3), False))


def test_a_log_that_ends_where_that_of_its_leader_starts_starts_over() -> None:
    assert judged(log_start_offset=5, high_watermark=4) == TruncateFully(Offset(5))
    assert judged(log_start_offset=5, high_watermark=5) == Append(Offset(9), Offset(5))


@pytest.mark.parametrize(("offset", "epoch"), [(4, 3), (6, 3), (5, 2), (5, 4)])
@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_r05_an_answer_to_another_question_is_ignored(
    code: ErrorCode, offset: int, epoch: int
) -> None:
    """Duplicates, late answers, and those from before a change of epoch (KAFKA-7164)."""
    assert judged(code, asked_offset=offset, asked_epoch=epoch) == Ignore()


def test_r37_out_of_range_asks_for_the_offsets() -> None:
    assert judged(ErrorCode.OFFSET_OUT_OF_RANGE) == AskOffsets()


def test_a_fenced_follower_waits_for_metadata() -> None:
    assert judged(ErrorCode.FENCED_LEADER_EPOCH) == Wait()


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
    ],
)
def test_r38_other_errors_only_delay_this_partition(code: ErrorCode) -> None:
    assert judged(code) == BackOff(code)


@pytest.mark.parametrize(
    ("leader", "start", "end", "expected"), [(4, 0, 9, 4), (12, 0, 9, 9), (1, 3, 9, 3)]
)
def test_the_high_watermark_of_a_follower_stays_in_its_log(
    leader: int, start: int, end: int, expected: int
) -> None:
    assert follower_high_watermark(Offset(leader), Offset(start), Offset(end)) == expected


def test_r37_out_of_range_has_an_answer_for_every_position() -> None:
    def step(leader_end: int, leader_start: int) -> object:
        return out_of_range_step(Offset(leader_end), Offset(leader_start), Offset(5))

    assert step(4, 0) == Truncate(Target(Offset(4), True))
    assert step(4, 4) == Truncate(Target(Offset(4), True))
    assert step(9, 6) == TruncateFully(Offset(6))
    assert step(9, 5) == Continue()
    assert step(5, 0) == Continue()


@pytest.mark.parametrize(
    ("base", "last", "start", "end", "leader_start", "expected"),
    [
        pytest.param(2, 6, 4, 4, 4, 2, id="the leader starts inside the batch"),
        pytest.param(2, 6, 4, 4, 0, 2, id="an empty log, whatever the leader's start"),
        pytest.param(2, 6, 0, 4, 5, 2, id="records that the leader has deleted"),
        pytest.param(2, 6, 0, 4, 3, None, id="records that it has"),
        pytest.param(4, 6, 4, 4, 4, None, id="it fits"),
        pytest.param(2, 3, 4, 4, 4, None, id="nothing new in it"),
    ],
)
def test_a_log_starts_over_for_a_batch_around_its_start(
    base: int, last: int, start: int, end: int, leader_start: int, expected: int | None
) -> None:
    found = restart_offset(
        Offset(base),
        Offset(last),
        log_start_offset=Offset(start),
        log_end_offset=Offset(end),
        leader_start_offset=Offset(leader_start),
    )
    assert found == expected
