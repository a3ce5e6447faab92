"""Error codes: Kafka's numbers, and what becomes of unknown ones."""

from __future__ import annotations

import pytest

from strandline.errors import INDEFINITE, RETRIABLE, ErrorCode, ProtocolError


@pytest.mark.parametrize("number", [134, 999, -2, 32767])
def test_a_number_that_is_newer_than_the_list_is_an_unknown_error(number: int) -> None:
    """A broker that says more than we know must not stop the caller."""
    assert ErrorCode(number) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("value", ["NONE", None, 1.5])
def test_what_is_no_number_is_no_code(value: object) -> None:
    with pytest.raises(ValueError, match="not a valid ErrorCode"):
        ErrorCode(value)  # type: ignore[arg-type]  # no number on purpose


def test_an_unknown_outcome_is_not_repeated_as_if_nothing_had_happened() -> None:
    assert ErrorCode.UNKNOWN_SERVER_ERROR in INDEFINITE
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in RETRIABLE
    error = ProtocolError(ErrorCode(999))
    assert not error.retriable
    assert not error.definite
