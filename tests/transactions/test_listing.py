"""ListTransactions by a pattern of a client (KIP-1152), which RE2 matches."""

from __future__ import annotations

import sys

import pytest

from strandline.errors import ErrorCode
from strandline.protocol.messages.init_producer_id import InitProducerIdRequest
from strandline.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from tests.transactions.coordinated import Coordinated


def listed(pattern: str | None, *transactional_ids: str) -> ListTransactionsResponse:
    """What a coordinator of these ids answers."""
    world = Coordinated()
    for each in transactional_ids:
        world.ask(InitProducerIdRequest(transactional_id=each, transaction_timeout_ms=1000))
    response = world.ask(ListTransactionsRequest(transactional_id_pattern=pattern), 2)
    assert isinstance(response, ListTransactionsResponse)
    return response


def ids(response: ListTransactionsResponse) -> list[str]:
    assert response.error_code == ErrorCode.NONE
    return [each.transactional_id for each in response.transaction_states]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("trans.*", ["transfers", "transits"]),
        ("trans", []),
        ("transfers|orders", ["orders", "transfers"]),
        ("", ["orders", "transfers", "transits"]),
        (None, ["orders", "transfers", "transits"]),
    ],
)
def test_a_pattern_matches_whole_ids(pattern: str | None, found: list[str]) -> None:
    pytest.importorskip("re2")
    assert ids(listed(pattern, "transits", "transfers", "orders")) == found


@pytest.mark.parametrize(
    "pattern", ["(", "(?=x)", r"(a)\1", "x{1001}", pytest.param("y" * 5_000, id="too long")]
)
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    pytest.importorskip("re2")
    assert listed(pattern, "transfers").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_cannot_hold_up_the_broker() -> None:
    """Python's own `re` would take longer than any test for this one."""
    pytest.importorskip("re2")
    assert ids(listed("(a+)+b", "a" * 10_000)) == []


def test_without_the_library_a_pattern_is_refused_and_other_lists_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)

    assert listed("trans.*", "transfers").error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert ids(listed(None, "transfers")) == ["transfers"]
