"""What people read of runs."""

from __future__ import annotations

from dataclasses import replace

from strandline.numerals import counted
from strandline.sim.checkers.violations import Violation
from strandline.sim.plan import Action, ClientSpec, Options, Plan, TopicSpec
from strandline.sim.report import (
    LAST_EVENTS,
    show_counters,
    show_last_events,
    show_measures,
    show_plan,
    show_reached,
    show_replicas,
    show_speed,
    show_verdict,
    show_violations,
)
from strandline.sim.verdict import ReplicaRow, Verdict

PLAN = Plan(
    Options(
        seed=42,
        settings={"min.insync.replicas": "2"},
        topics=(TopicSpec("t", 2, 3), TopicSpec("u", 1, 1)),
    ),
    (ClientSpec("producer", "p1", {"topic": "t"}), ClientSpec("consumer", "c1", {"topic": "t"})),
    (Action(1, "kill", ("2",)), Action(2, "kill", ("1",)), Action(3, "cut", ("1", "2"))),
)
ROWS = (
    ReplicaRow(1, "t-0", "leads", 12, 0, 110, 112, 110, (1, 2), ((2, 110), (3, -1))),
    ReplicaRow(2, "t-0", "follows", 12, 0, 98, 110, 98),
    ReplicaRow(3, "t-0", "is down"),
)
GOOD = Verdict(
    plan=PLAN,
    violations=(),
    counters={"clean start": 3, "lossy end": 0, "election": 1_200, "disk: sync": 7},
    trace_hash="abc",
    events=12_345,
    simulated_us=20_500_000,
    replicas=ROWS,
    notes=tuple(f"{number}ms something" for number in range(100)),
    phases=(("building", 1_000_000), ("safety", 11_000_000)),
)
BAD = replace(
    GOOD,
    violations=(
        Violation("I-14", "2 lacks 110", 50_000, "t-0"),
        Violation("BUG", "KeyError: 3", 70_000),
    ),
    notes=(*GOOD.notes[:50], "50ms ! I-14: 2 lacks 110", *GOOD.notes[50:]),
)


def test_the_plan_in_short() -> None:
    assert show_plan(PLAN) == (
        "seed: 42\n"
        "profile: strict\n"
        "settings: min.insync.replicas=2\n"
        "topics: t (2 partitions on 3 brokers), u (1 partition on 1 broker)\n"
        "clients: producer p1, consumer c1\n"
        "actions: 1 cut, 2 kill"
    )


def test_one_line_per_replica() -> None:
    assert show_replicas(ROWS) == (
        "PARTITION  BROKER  ROLE     EPOCH  START  MARK  END  STABLE  IN SYNC  FOLLOWERS AT\n"
        "t-0             1  leads       12      0   110  112     110  1 2      2:110 3:-1\n"
        "t-0             2  follows     12      0    98  110      98\n"
        "t-0             3  is down      -      -     -    -       -"
    )


def test_a_good_run() -> None:
    shown = show_verdict(GOOD)
    assert "No invariant was broken." in shown
    assert "The last events" not in shown
    assert show_replicas(ROWS) in shown


def test_a_bad_run_says_the_rule_and_what_was_seen() -> None:
    shown = show_verdict(BAD)
    assert (
        "I-14 is broken. Every member of the in-sync set has all that any leader calls committed.\n"
        "    t-0, at 50.000 ms: 2 lacks 110\n"
        "BUG is broken. No part of a broker fails in a way that it does not expect.\n"
        "    at 70.000 ms: KeyError: 3\n"
    ) in shown
    assert "No invariant was broken." not in shown


def test_only_some_of_many_violations_of_one_rule_are_shown() -> None:
    many = [Violation("I-28", f"{number} is lost", 5_000) for number in range(9)]
    shown = show_violations(replace(BAD, violations=(BAD.violations[0], *many)))
    assert shown.count("I-28 is broken.") == 1
    assert shown.endswith(
        "    at 5.000 ms: 1 is lost\n    at 5.000 ms: 2 is lost\n    and 6 more like these"
    )


def test_the_last_events_end_with_the_violation() -> None:
    lines = show_last_events(BAD).splitlines()
    assert len(lines) == LAST_EVENTS + 1
    assert lines[-1] == "    50ms ! I-14: 2 lacks 110"
    assert lines[-2] == "    49ms something"


def test_without_a_note_of_it_the_very_last_events_are_shown() -> None:
    lines = show_last_events(replace(BAD, notes=GOOD.notes)).splitlines()
    assert lines[-1] == "    99ms something"
    assert len(lines) == LAST_EVENTS + 1


def test_what_was_reached() -> None:
    assert show_counters(GOOD.counters) == "Reached 2 of 3 states: clean start 3, election 1,200"
    assert show_counters({"lossy end": 0}) == "Reached 0 of 1 states."
    assert show_counters({}) == ""


def test_what_was_measured() -> None:
    assert show_measures(GOOD.counters) == "Counted: disk: sync 7"
    assert show_measures({}) == ""


def test_long_lists_are_wrapped() -> None:
    shown = show_counters({f"a state with number {number}": 1 for number in range(30)})
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.count("state with number") == 30


def test_what_many_seeds_reached() -> None:
    assert show_reached({"common": 900, "rare": 2, "rarer": 1, "never": 0, "disk: x": 1}, 1000) == (
        "3 of 4 states were reached.\nIn few seeds: rarer 1, rare 2\nNot reached: never"
    )


def test_speed() -> None:
    assert show_speed(events=12_345, simulated_us=20_500_000, cpu_s=0.5) == (
        "12,345 events and 20.5 simulated seconds in 0.50 s of CPU: 24,690 events/s, "
        "41 simulated s/s."
    )
    assert "0 events" in show_speed(events=0, simulated_us=0, cpu_s=0.0)


def test_counted() -> None:
    assert [counted(1, "event"), counted(2_000, "event")] == ["1 event", "2,000 events"]
    assert counted(2, "process", "processes") == "2 processes"
