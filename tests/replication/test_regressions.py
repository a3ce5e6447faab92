"""Kafka's own accidents that a scenario plays, under the numbers that the specification gives them.

The scenarios are in `tests/scenarios`; here each number is tied to one, so that it cannot get lost.
What the rules alone can show stands in the other files of this folder.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.sim.scenarios.library import find
from strandline.sim.scenarios.player import Unexpected, play
from strandline.sim.scenarios.script import Script


def scenario(name: str) -> Script:
    return find(name)


OLD = {"truncate": "high-watermark"}


@pytest.mark.parametrize("name", ["x-3", "x-3-ii", "x-3-acks-1", "x-3-ii-acks-1"])
def test_r01_epochs_keep_what_truncation_by_high_watermark_loses(name: str) -> None:
    script = scenario(name)
    assert not script.violates
    play(script)
    assert "I-23" in script.violates_under(OLD)
    play(script, OLD)


def test_r01_epochs_find_where_logs_part() -> None:
    play(scenario("x-4"))
    play(scenario("x-4"), OLD)


def test_r01_the_old_rule_would_be_noticed_without_its_declaration() -> None:
    """The test of the test: the checks, and not the header, find the loss."""
    script = scenario("x-3")
    entries = tuple(entry for entry in script.entries if entry.name != "violates")
    with pytest.raises(Unexpected, match="I-23"):
        play(replace(script, entries=entries), OLD)


def test_r02_fast_failovers() -> None:
    play(scenario("x-5"))


def test_r03_a_start_without_a_role_leaves_the_checkpoint_alone() -> None:
    play(scenario("x-14"))


def test_r04_a_replica_joins_with_all_from_before_the_epoch() -> None:
    play(scenario("x-7"))


def test_r05_a_new_epoch_of_the_same_leader_asks_anew() -> None:
    play(scenario("late-answer"))


def test_r10_a_diverging_answer_moves_no_watermark() -> None:
    play(scenario("x-4"))
    play(scenario("diverging-answer"))


def test_r11_everything_moves_with_a_full_truncation() -> None:
    play(scenario("left-behind"))


def test_r12_an_epoch_without_records_is_forgotten() -> None:
    play(scenario("ex-leader"))


def test_r32_changes_of_the_in_sync_set_race_with_elections() -> None:
    play(scenario("x-6"))
    play(scenario("x-8"))


def test_r33_a_replica_that_shuts_down_does_not_join() -> None:
    play(scenario("shutting-down"))


def test_r35_a_replica_that_shuts_down_holds_nothing_back() -> None:
    play(scenario("shutting-down"))


def test_r36_a_log_is_cut_to_nothing() -> None:
    play(scenario("first-segment"))


def test_r37_out_of_range_is_never_the_end() -> None:
    play(scenario("left-behind"))
    play(scenario("inside-a-batch"))


def test_r38_damaged_records_are_fetched_again() -> None:
    play(scenario("damaged"))
