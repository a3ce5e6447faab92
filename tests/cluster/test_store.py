"""The store's errors: one tree, of which only the lost outcome is not definite."""

from __future__ import annotations

import pytest

from strandline.cluster import store
from strandline.cluster.store import MalformedNode, MultiRefused, OutcomeUnknown, StoreError
from strandline.errors import StrandlineError

REFUSALS = [
    store.NodeExists,
    store.NoNode,
    store.BadVersion,
    store.NotEmpty,
    store.NoChildrenForEphemerals,
    store.InvalidPath,
]


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refusal_says_which_operation_and_why(refusal: type[MultiRefused]) -> None:
    error = refusal("/a", 3)
    assert (error.path, error.index, error.definite) == ("/a", 3, True)
    assert str(error) == f"Operation 3 on '/a' {refusal.reason}."
    assert isinstance(error, StoreError)


def test_every_refusal_has_a_reason_of_its_own() -> None:
    assert set(MultiRefused.__subclasses__()) == set(REFUSALS)
    assert len({refusal.reason for refusal in REFUSALS} | {MultiRefused.reason}) == 7


def test_only_an_unknown_outcome_is_indefinite() -> None:
    kinds: set[type[StoreError]] = {
        store.StoreUnavailable,
        MultiRefused,
        store.MultiTooLarge,
        MalformedNode,
        OutcomeUnknown,
    }
    assert set(StoreError.__subclasses__()) == kinds
    assert [kind for kind in kinds if not kind.definite] == [OutcomeUnknown]
    assert issubclass(StoreError, StrandlineError)


def test_malformed_content_names_its_node() -> None:
    error = MalformedNode("/controller", "it is empty")
    assert error.path == "/controller"
    assert str(error) == "The content of the metadata node '/controller' is unusable: it is empty."
