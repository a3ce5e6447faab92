"""What a plan expects of its cluster: looked at when it is time, refused when it means nothing."""

from __future__ import annotations

import pytest

from strandline.sim.expectations import Expectations
from strandline.sim.run import run
from strandline.sim.scenarios.script import BadScript, parse_script
from strandline.sim.text import read_plan
from strandline.sim.verdict import Verdict

CALM = """\
title: A leader dies
world: cluster
seed: 7
settings: zookeeper.session.timeout.ms=1000 replica.lag.time.max.ms=1000
phases: safety=5s
topic t partitions=1 replication=3
client producer p1 topic=t acks=all every=50ms
at 1s kill leader:t-0 down=2s
"""


def played(text: str) -> tuple[Verdict, Expectations, bool]:
    script = read_plan(parse_script("mine", text))
    expectations = Expectations(script)
    verdict = run(
        script.plan,
        on_expect=expectations.at_its_time,
        on_end=expectations.at_the_end,
    )
    return verdict, expectations, expectations.judge(verdict)


def test_what_is_met() -> None:
    verdict, expectations, is_good = played(
        CALM
        + """
at 500ms expect t-0 leader=1 epoch=0 isr=1,2,3 replicas=1,2,3
at 500ms expect t-0@1 role=leader epoch=0
at 500ms expect cluster brokers=1,2,3
at 1500ms expect t-0@1 role=down leo=none
at 2900ms expect t-0 epoch=1
at 2900ms expect t-1 leader=none
at 2900ms expect t-1@1 role=down
expect t-0 isr=1,2,3
expect reached leader changes
"""
    )
    assert expectations.unmet == []
    assert verdict.violations == ()
    assert is_good


def test_what_is_not_met_is_said_with_its_line() -> None:
    _, expectations, is_good = played(
        CALM
        + """at 500ms expect t-0 leader=3 epoch=0
at 400ms expect cluster brokers=1
expect t-0@2 start=7
expect reached topic deleted
"""
    )
    assert not is_good
    assert expectations.unmet == [
        "mine, line 10: cluster has brokers=1,2,3, not 1",
        "mine, line 9: t-0 has leader=1, not 3",
        "mine, line 11: t-0@2 has start=0, not 7",
        "mine, line 12: 'topic deleted' was never reached",
    ]


@pytest.mark.parametrize("line", ["violates: I-14", "expect violation I-14"])
def test_a_violation_that_does_not_come_is_not_as_expected(line: str) -> None:
    header = line if line.startswith("violates") else ""
    script = CALM.replace("topic t", f"{header}\ntopic t") + ("" if header else line)
    _, expectations, is_good = played(script)
    assert expectations.violates == {"I-14"}
    assert not is_good


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("expect", "mine, line 9: 'expect' is followed by"),
        ("at 1s expect t-0", "'expect' is followed by cluster, t-0 or t-0@1, and by what it has."),
        ("at 1s expect t-0 ledr=1", "mine, line 9: t-0 can have leader, epoch, isr, replicas, not"),
        ("expect t-0@1 leader=1", "t-0@1 can have role, epoch, start, hw, leo, lso, not 'leader'."),
        ("expect cluster leader=1", "cluster can have controller, brokers, not 'leader'."),
        ("expect t leader=1", "mine, line 9:"),
        ("expect t-0@x role=leader", "'x' is not a whole number."),
        ("expect reached nirvana", "No state is called 'nirvana'."),
        ("expect violation", "'expect violation' is followed by an invariant such as I-14."),
        ("expect violation I-99", "'expect violation' is followed by an invariant such as I-14."),
        ("at 1s fly 2", "mine, line 9: There is no verb fly."),
    ],
)
def test_what_means_nothing_is_refused_before_the_run(line: str, sentence: str) -> None:
    with pytest.raises(BadScript) as refused:
        Expectations(read_plan(parse_script("mine", CALM + line)))
    assert sentence in str(refused.value)


def test_a_broker_that_is_none_is_refused_when_it_is_asked_for() -> None:
    with pytest.raises(BadScript, match="mine, line 9: There is no broker 9"):
        played(CALM + "at 1s expect t-0@9 role=leader")
