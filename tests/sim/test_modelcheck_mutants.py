"""The search without a rule finds out why the rule is there."""

from __future__ import annotations

import pytest

from tests.sim.modelcheck.mutants import RULES, UnknownRule, catch_all, exhaust, table
from tests.sim.modelcheck.rules import Bounds

CAUGHT = {
    "ask-until-the-logs-agree": ({"I-14", "I-22"}, 9),
    "check-broker-epochs": ({"I-16", "I-14"}, 10),
    "compare-logs": ({"I-22", "I-14"}, 6),
    "compare-versions": ({"I-13"}, 10),
    "count-joining-replica": ({"I-16", "I-14"}, 6),
    "count-leaving-replica": ({"I-14"}, 2),
    "definite-refusals-only": ({"I-13"}, 7),
    "elect-complete-replicas": ({"I-19", "I-31"}, 5),
    "epoch-entry-at-election": ({"I-49"}, 8),
    "forget-older-reigns": ({"I-15"}, 10),
    "join-from-epoch-start": ({"I-16"}, 9),
    "keep-what-is-undecided": ({"I-13"}, 7),
    "lead-in-this-life-only": ({"I-11"}, 5),
    "mind-open-attempts": ({"I-13"}, 9),
    "mark-never-back": ({"I-10"}, 6),
    "mark-within-the-log": ({"I-01", "I-22"}, 6),
    "name-the-life-that-qualified": ({"I-16", "I-14"}, 11),
    "no-mark-from-a-diverging-answer": ({"I-22"}, 9),
    "no-count-of-a-diverging-fetch": ({"I-15"}, 5),
    "notice-restarts": ({"I-11"}, 6),
    "rest-below-the-minimum": ({"I-32"}, 4),
    "truncate-by-leader-epoch": ({"I-24", "I-14"}, 7),
    "trust-clean-restarts-only": ({"I-32"}, 7),
    "wait-for-unknown-followers": ({"I-14"}, 4),
}
"""What breaks without each rule, and after how many moves at the least."""

SLOW = {"fence-fetches", "refuse-fetches-from-before-a-restart"}
"""Noticed, too, after many more states (`python -m tests.sim.modelcheck --without`)."""


def test_every_rule_is_listed() -> None:
    assert RULES.keys() == CAUGHT.keys() | SLOW


@pytest.mark.parametrize("name", sorted(CAUGHT))
def test_the_search_notices(name: str) -> None:
    (caught,) = catch_all((name,))
    invariants, steps = CAUGHT[name]
    assert set(caught.invariants) == invariants
    assert len(caught.searched.path) == caught.searched.depth == steps


def test_with_all_rules_the_same_worlds_are_sound() -> None:
    """What breaks, breaks because of the rule: this is the world of the deepest counterexample."""
    (caught,) = catch_all(("name-the-life-that-qualified",))
    assert exhaust(bounds=caught.bounds).is_complete


def test_a_counterexample_can_be_read() -> None:
    (caught,) = catch_all(("wait-for-unknown-followers",))
    assert [str(step) for step in caught.searched.path] == [
        "produce 0                "
        "0*[0]0 leads e0 (1@?, 2@?) | 1*[]0 e0 | 2*[]0 e0 | 0 elected in e0",
        "fetch 1 0                "
        "0*[0]0 leads e0 (1@0, 2@?) | 1*[0]0 e0 | 2*[]0 e0 | 0 elected in e0",
        "prefer 1 1 0 1 2         "
        "0*[0]0 leads e0 (1@0, 2@?; old) | 1*[0]0 e0 | 2*[]0 e0 | 1 elected in e1",
        "leads 1                  "
        "0*[0]0 leads e0 (1@0, 2@?; old) | 1*[0]1 leads e1 (0@1, 2@1) | 2*[]0 e0 | 1 elected in e1",
    ]
    assert caught.searched.broken[0].what == "2 is in sync and lacks some of (0,) of 1"


def test_the_table() -> None:
    text = table(catch_all(("count-leaving-replica",)))
    assert text.splitlines()[2] == (
        "| `count-leaving-replica`: a replica that is to leave is waited for until it has left "
        "(KIP-497) | I-14 | 2 | 11 |"
    )


def test_an_unknown_rule() -> None:
    with pytest.raises(UnknownRule, match=r"'gravity'.* compare-logs"):
        exhaust(bounds=Bounds(), without="gravity")
