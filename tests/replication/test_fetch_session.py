"""The follower's side of fetch sessions, alone and against the broker's side."""

from __future__ import annotations

import pytest

from strandline.errors import ErrorCode, InvariantViolated
from strandline.replication.fetch_session import (
    FINAL_EPOCH,
    FetchSession,
    SessionRequest,
    epoch_after,
)

OK = ErrorCode.NONE
ID = 77


def established(**wanted: int) -> FetchSession[str, int]:
    session: FetchSession[str, int] = FetchSession()
    for key, value in wanted.items():
        session.want(key, value)
    session.next_request()
    assert session.answered(OK, ID, set(wanted))
    return session


def test_the_first_request_is_full() -> None:
    session: FetchSession[str, int] = FetchSession()
    session.want("a", 1)
    session.want("b", 2)
    request = session.next_request()
    assert request == SessionRequest(0, 0, [("a", 1), ("b", 2)], [])
    assert request.is_full
    assert session.answered(OK, ID, {"a", "b"})


def test_later_requests_say_what_changed() -> None:
    session = established(a=1, b=2, c=3)
    session.want("b", 5)
    session.want("c", 3)
    session.drop("a")
    session.want("d", 4)
    request = session.next_request()
    assert (request.session_id, request.session_epoch) == (ID, 1)
    assert not request.is_full
    assert sorted(request.to_send) == [("b", 5), ("d", 4)]
    assert request.to_forget == ["a"]
    assert session.answered(OK, ID, {"d"})
    assert session.next_request() == SessionRequest(ID, 2, [], [])
    assert set(session.wanted) == {"b", "c", "d"}


def test_what_came_and_went_between_two_requests_is_not_said() -> None:
    session = established(a=1)
    session.want("x", 1)
    session.drop("x")
    session.drop("unknown")
    session.want("a", 9)
    session.want("a", 1)
    assert session.next_request() == SessionRequest(ID, 1, [], [])


def test_a_partition_that_was_dropped_can_come_back() -> None:
    session = established(a=1)
    session.drop("a")
    assert session.next_request().to_forget == ["a"]
    assert session.answered(OK, ID, ())
    session.want("a", 1)
    assert session.next_request().to_send == [("a", 1)]


def test_without_a_session_every_request_is_full() -> None:
    session: FetchSession[str, int] = FetchSession()
    session.want("a", 1)
    for _ in range(3):
        assert session.next_request() == SessionRequest(0, 0, [("a", 1)], [])
        assert session.answered(OK, 0, {"a"})
        assert not session.can_overtake


@pytest.mark.parametrize("answered", [set(), {"a"}, {"a", "b", "c"}])
def test_a_full_answer_must_have_just_what_was_asked(answered: set[str]) -> None:
    session: FetchSession[str, int] = FetchSession()
    session.want("a", 1)
    session.want("b", 1)
    session.next_request()
    assert not session.answered(OK, ID, answered)
    assert session.next_request().session_epoch == 0


def test_an_incremental_answer_must_not_have_more() -> None:
    session = established(a=1)
    session.next_request()
    assert not session.answered(OK, ID, {"b"})
    assert session.next_request() == SessionRequest(ID, 0, [("a", 1)], [])


def test_a_forgotten_session_is_made_anew() -> None:
    session = established(a=1)
    session.next_request()
    assert not session.answered(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, ())
    assert session.next_request() == SessionRequest(0, 0, [("a", 1)], [])


@pytest.mark.parametrize("ends", ["error", "lost"])
def test_after_a_failure_the_old_session_is_closed_with_the_new_one(ends: str) -> None:
    session = established(a=1)
    session.want("b", 2)
    session.next_request()
    if ends == "error":
        assert not session.answered(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, ())
    else:
        session.lost()
    assert session.next_request() == SessionRequest(ID, 0, [("a", 1), ("b", 2)], [])
    assert session.answered(OK, ID + 1, {"a", "b"})
    assert session.next_request() == SessionRequest(ID + 1, 1, [], [])


def test_an_answer_that_closes_the_session_is_used() -> None:
    session = established(a=1)
    session.next_request()
    assert session.answered(OK, 0, {"a"})
    assert session.next_request() == SessionRequest(0, 0, [("a", 1)], [])


def test_a_session_can_be_closed() -> None:
    assert established(a=1).closing_request() == SessionRequest(ID, FINAL_EPOCH, [], [])
    assert FetchSession[str, int]().closing_request() is None


def test_what_was_dropped_for_a_moment_is_named_again() -> None:
    # An answer that came meanwhile was not taken, and the leader would not tell it once more.
    session = established(a=1, b=2)
    session.drop("a")
    session.want("a", 1)
    assert session.next_request().to_send == [("a", 1)]
    assert session.next_request().to_send == []


def test_a_request_can_overtake_a_parked_one() -> None:
    session = established(a=1, b=2)
    assert session.can_overtake
    assert session.next_request().session_epoch == 1
    session.drop("a")
    session.want("c", 3)
    assert session.next_request() == SessionRequest(ID, 2, [("c", 3)], ["a"])
    # The first answer is about partitions of before the second request.
    assert session.answered(OK, ID, {"a", "b"})
    assert session.answered(OK, ID, {"c"})
    assert session.next_request().session_epoch == 3


def test_a_full_request_is_answered_before_the_next() -> None:
    session: FetchSession[str, int] = FetchSession()
    session.next_request()
    with pytest.raises(InvariantViolated):
        session.next_request()


def test_when_one_is_lost_all_are() -> None:
    session = established(a=1)
    session.next_request()
    session.next_request()
    session.lost()
    assert not session.answered(OK, ID, ())
    assert session.next_request().is_full


def test_epochs_wrap_around_the_special_ones() -> None:
    assert epoch_after(1, 1) == 2
    assert epoch_after(2**31 - 2, 1) == 2**31 - 1
    assert epoch_after(2**31 - 1, 1) == 1
    assert epoch_after(2**31 - 1, 2) == 2
