"""The counters that prove that interesting states were reached: each is reached on purpose once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from strandline.sim.faults.nemesis import VERBS
from strandline.sim.plan import BEYOND, STRICT, ClientSpec, Options, Plan, TopicSpec
from strandline.sim.run import run
from strandline.sim.sometimes import STATES
from tests.sim.faults_stage import action
from tests.sim.test_run import QUICK


def counted(
    *lines: str,
    profile: str = STRICT,
    brokers: int = 3,
    acks: str = "1",
    settings: Mapping[str, str] = {},
) -> Mapping[str, int]:
    """What a run with these actions (each with its time before it) has counted."""
    configs = {"min.insync.replicas": "2", "internal.segment.bytes": "2000"}
    configs |= {"file.delete.delay.ms": "0"}
    actions = []
    for line in lines:
        ms, _, rest = line.partition(" ")
        actions.append(action(rest, int(ms) * 1000))
    verdict = run(
        Plan(
            Options(
                seed=3,
                profile=profile,
                brokers=brokers,
                settings={**QUICK, **settings},
                topics=(TopicSpec("t", 1, 3, configs),),
                safety_us=6_000_000,
            ),
            (
                ClientSpec("producer", "p1", {"topic": "t", "acks": acks, "every": "40ms"}),
                ClientSpec("consumer", "c1", {"topic": "t"}),
            ),
            tuple(actions),
        )
    )
    assert verdict.is_good, verdict.violations
    return verdict.counters


def test_names_are_unique_and_every_fault_has_one() -> None:
    assert len(set(STATES)) == len(STATES)
    assert {f"fault {verb}" for verb in VERBS} <= set(STATES)


def test_nothing_much_happens_in_a_calm_run() -> None:
    counters = counted()
    assert counters["clean start"] == 3
    assert counters["topic made"] == 1
    assert counters["segment rolled"] > 0
    for state in ("leader changes", "in-sync set shrinks", "follower truncates", "lossy end"):
        assert counters[state] == 0, state


def test_a_zombie_leader_and_its_truncation() -> None:
    counters = counted("500 isolate leader:t-0 store=yes for=4s")
    assert counters["two brokers lead one partition"] > 0
    assert counters["follower truncates"] > 0
    assert counters["leader asks to shrink the in-sync set"] > 0
    assert counters["leadership ends while an in-sync change is under way"] > 0
    assert counters["session ends under a running broker"] > 0
    assert counters["leader changes"] > 0


def test_the_in_sync_set_down_to_one_and_back() -> None:
    counters = counted("500 isolate leader:t-0 for=4s")
    for state in (
        "in-sync set shrinks",
        "in-sync set of one",
        "in-sync set below the minimum",
        "replica becomes eligible",
        "high watermark stands below the minimum",
        "leader asks to expand the in-sync set",
        "in-sync set expands",
    ):
        assert counters[state] > 0, state


def test_a_follower_that_fetches_and_never_catches_up() -> None:
    settings = {"replica.fetch.max.bytes": "1"}
    counters = counted("500 slow-link 3 factor=300 for=5s", settings=settings)
    assert counters["follower fetches and makes no progress"] > 0


def test_an_eligible_replica_is_elected() -> None:
    counters = counted("500 isolate 1 for=4s", "3500 kill 1 down=3s", acks="all")
    assert counters["leader is elected out of the eligible"] > 0


def test_an_unclean_election() -> None:
    counters = counted(
        "500 kill 2,3 down=2s",
        "2200 kill 1 down=3s",
        "3500 elect unclean t-0",
        profile=BEYOND,
    )
    assert counters["no leader"] > 0
    assert counters["unclean election"] > 0


def test_a_follower_starts_over_behind_deleted_records() -> None:
    counters = counted(
        "300 kill 3 down=3s", "2500 delete-records t-0 high-watermark", "2900 describe t"
    )
    assert counters["log start rises"] > 0
    assert counters["old segments deleted"] > 0
    assert counters["follower starts over at the leader's start"] > 0


def test_starts_after_crashes() -> None:
    counters = counted("500 power-cut 2 mode=torn down=100ms", "3000 stop 1 down=100ms")
    assert counters["lossy end"] == 1
    assert counters["start after a crash"] >= 1
    assert counters["recovery cut the end of a log"] >= 1
    assert counters["broker stops in order"] == 1
    crashes = counted("500 crash-in-recovery 3 times=2 operations=3 how=kill down=20ms")
    assert crashes["crash while starting"] > 0


def test_topics_come_and_go_and_move() -> None:
    counters = counted(
        "300 create-topic extra partitions=1",
        "900 add-partitions extra total=2",
        "1500 delete-topic extra",
        "2500 create-topic extra partitions=1",
        "3500 reassign t-0 2,3",
        "4500 elect preferred t-0",
    )
    for state in (
        "topic deleted",
        "topic made anew",
        "partition added",
        "reassignment begins",
        "reassignment completes",
    ):
        assert counters[state] > 0, state


def test_a_reassignment_is_cancelled() -> None:
    counters = counted(
        "500 isolate 4 for=4s", "900 reassign t-0 1,2,4", "1500 cancel-reassign t-0", brokers=4
    )
    assert counters["reassignment begins"] == counters["reassignment is cancelled"] == 1
    assert counters["reassignment completes"] == 0


@pytest.mark.parametrize("who", ["controller", "all"])
def test_controllers_and_sessions_change(who: str) -> None:
    counters = counted(f"500 store-expire {who}", "2500 kill controller down=3s")
    assert counters["controller changes"] > 0
    assert (counters["no broker is left"] > 0) == (who == "all")
