"""Laptops that sleep: machines that are suspended, and clocks that jump by an hour."""

from __future__ import annotations

import pytest

from strandline.sim.clock import NodeClock
from strandline.sim.expectations import Expectations
from strandline.sim.run import run
from strandline.sim.scenarios.script import parse_script
from strandline.sim.schedule import Schedule
from strandline.sim.text import read_plan

CLUSTER = """title: A laptop sleeps
world: cluster
seed: 5
settings: zookeeper.session.timeout.ms=6000 replica.lag.time.max.ms=1000
settings: auto.leader.rebalance.enable=false group.min.session.timeout.ms=500
settings: group.initial.rebalance.delay.ms=0 log.retention.check.interval.ms=500
phases: safety={safety}

topic t partitions=2 replication=3 min.insync.replicas=2 retention.ms={retention}

client producer p1 topic=t partition=0,1 idempotent=yes in-flight=5 every=100ms strange-times=0
client producer p2 topic=t acks=1 every=100ms strange-times=0
client consumer c1 topic=t partition=0,1
client group m1 group=g topic=t session=6s

{action}
{expected}
"""


def play(action: str, *expected: str, safety: str = "12s") -> None:
    """Nothing may be broken, and retention of two hours may have taken nothing away."""
    lines = ("expect t-0@1 start=0", "expect t-1@1 start=0", *expected)
    text = CLUSTER.format(
        action=action,
        expected="\n".join(lines),
        safety=safety,
        retention="7200000 internal.segment.bytes=1000",
    )
    judge(text)


def judge(text: str) -> None:
    script = read_plan(parse_script("laptop", text))
    expectations = Expectations(script)
    verdict = run(script.plan, on_expect=expectations.at_its_time, on_end=expectations.at_the_end)
    assert [str(each) for each in verdict.violations] == []
    assert expectations.judge(verdict), expectations.unmet


def test_all_machines_sleep() -> None:
    play("at 3s suspend all for=2min", safety="130s")


def test_all_machines_sleep_for_an_hour() -> None:
    """Every timer of every client runs out meanwhile, and none of a broker."""
    play("at 3s suspend all for=60min", safety="3620s")


def test_one_machine_sleeps_for_an_hour() -> None:
    """Others lead long before it wakes up. Timers are slow, so that an hour has few events."""
    text = """title: A leader sleeps for an hour
world: cluster
seed: 5
settings: zookeeper.session.timeout.ms=30000 replica.lag.time.max.ms=30000
settings: replica.fetch.wait.max.ms=10000 auto.leader.rebalance.enable=false
phases: safety=3620s

topic t partitions=1 replication=3 min.insync.replicas=2 retention.ms=7200000

client producer p1 topic=t idempotent=yes in-flight=5 every=10s strange-times=0
client producer p2 topic=t acks=1 every=10s strange-times=0
client consumer c1 topic=t max-wait=10s

at 3s suspend leader:t-0 for=60min
expect t-0@1 start=0
expect t-0 isr=1,2,3
expect reached leader changes
expect reached session ends under a running broker
"""
    judge(text)


@pytest.mark.parametrize("broker", ["leader:t-0", "follower:t-0", "controller"])
def test_one_machine_sleeps(broker: str) -> None:
    play(f"at 3s suspend {broker} for=20s", safety="30s")


@pytest.mark.parametrize("jump", ["forward=60min", "back=1min"])
def test_a_suspend_shows_in_the_wall_clock_only_and_no_leader_is_elected(jump: str) -> None:
    play(f"at 3s clock-jump all {jump} for=60min", "expect t-0 epoch=0", "expect t-1 epoch=0")


def test_a_monotonic_clock_stands_still_while_its_machine_is_suspended() -> None:
    schedule = Schedule()
    clock = NodeClock(schedule)
    schedule.run_until(schedule.now_us + 5_000_000)
    before = clock.now
    clock.freeze()
    schedule.run_until(schedule.now_us + 3_600_000_000)
    clock.thaw()
    after = clock.now
    assert after.monotonic_ms == before.monotonic_ms
    assert after.wall_ms == before.wall_ms + 3_600_000
    assert clock.due_us(after.monotonic_ms + 10) == schedule.now_us + 10_000
