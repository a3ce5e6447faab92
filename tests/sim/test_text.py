"""Plans as text: exactly the same plan comes back, and what is wrong is said with its line."""

from __future__ import annotations

from string import ascii_letters, ascii_lowercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.sim.knobs import KNOBS
from strandline.sim.options import draw_plan
from strandline.sim.plan import (
    BEYOND,
    STRICT,
    Action,
    ClientSpec,
    LatencySpec,
    Options,
    Plan,
    TopicSpec,
)
from strandline.sim.scenarios.script import BadScript, parse_script
from strandline.sim.text import format_plan, parse_plan, read_plan

times = st.integers(0, 10**9)
words = st.text(f"{ascii_lowercase}{digits}:*._-", min_size=1, max_size=8).filter(
    lambda word: word != "when"
)
names = st.text(f"{ascii_lowercase}.-", min_size=1, max_size=12).filter(
    lambda name: name[0] in ascii_lowercase
)
values = st.text(f"{ascii_letters}{digits}:,=._-", max_size=10)
mappings = st.dictionaries(names, values, max_size=4)
configs = st.dictionaries(
    names.filter(lambda n: n not in ("partitions", "replication")), values, max_size=4
)
options = st.builds(
    Options,
    seed=st.integers(0, 2**64),
    profile=st.sampled_from([STRICT, BEYOND]),
    brokers=st.integers(1, 9),
    racks=st.lists(words, max_size=3).map(tuple),
    disks=st.integers(1, 3),
    settings=st.dictionaries(names, values, max_size=30),
    topics=st.lists(
        st.builds(TopicSpec, words, st.integers(1, 5), st.integers(1, 5), configs), max_size=3
    ).map(tuple),
    latency=st.builds(
        LatencySpec,
        least_us=times,
        mean_us=times,
        spike_us=times,
        spikes_per_mille=st.integers(0, 1000),
    ),
    store_latency_us=times,
    store_lag_us=times,
    knobs=st.dictionaries(st.sampled_from(sorted(KNOBS)), st.integers(1, 9), max_size=3),
    minimums=st.lists(st.integers(1, 3), max_size=3).map(tuple),
    drifts_ppm=st.lists(st.integers(-500, 500), max_size=3).map(tuple),
    wall_offsets_ms=st.lists(st.integers(-500, 500), max_size=3).map(tuple),
    safety_us=times,
    liveness_us=times,
)
plans = st.builds(
    Plan,
    options,
    st.lists(st.builds(ClientSpec, words, words, mappings), max_size=3).map(tuple),
    st.lists(
        st.builds(Action, times, words, st.lists(words, max_size=3).map(tuple), mappings),
        max_size=5,
    ).map(lambda actions: tuple(sorted(actions, key=lambda action: action.at_us))),
)


@given(plans)
def test_a_plan_comes_back_exactly(plan: Plan) -> None:
    """With its mappings in their order, too, since a draw may depend on it."""
    text = format_plan(plan)
    again = parse_plan(text)
    assert again == plan
    assert format_plan(again) == text
    assert list(again.options.settings) == list(plan.options.settings)
    for old, new in zip(plan.options.topics, again.options.topics, strict=True):
        assert list(new.configs) == list(old.configs)
    for one, other in zip(plan.clients + plan.actions, again.clients + again.actions, strict=True):
        assert list(other.options) == list(one.options)


@pytest.mark.parametrize("seed", range(20))
def test_plans_that_are_drawn_come_back_exactly(seed: int) -> None:
    plan = draw_plan(seed)
    text = format_plan(plan)
    assert parse_plan(text) == plan
    assert max(map(len, text.splitlines())) < 300


def test_what_is_at_its_default_is_left_out() -> None:
    plan = Plan(Options(seed=7))
    assert format_plan(plan) == "title: seed 7\nworld: cluster\nseed: 7\n"


WHOLE = """\
# Comments may be anywhere.
title: A leader dies
world: cluster
seed: 42
brokers: 3
settings: min.insync.replicas=2
settings: replica.lag.time.max.ms=1000
latency: mean=1ms
without: some-rule
violates: I-14 I-23

topic t partitions=2 segment.bytes=4096  # small
client producer p1 topic=t acks=all

at 3s expect t-0 leader=2
at 1200ms kill leader:t-0 down=3s
expect t-0@2 role=leader
"""


def test_a_plan_as_people_write_it() -> None:
    read = read_plan(parse_script("leader-dies", WHOLE))
    assert read.plan == Plan(
        Options(
            seed=42,
            settings={"min.insync.replicas": "2", "replica.lag.time.max.ms": "1000"},
            topics=(TopicSpec("t", 2, 3, {"segment.bytes": "4096"}),),
            latency=LatencySpec(mean_us=1000),
        ),
        (ClientSpec("producer", "p1", {"topic": "t", "acks": "all"}),),
        (
            Action(1_200_000, "kill", ("leader:t-0",), {"down": "3s"}),
            Action(3_000_000, "expect", ("t-0",), {"leader": "2"}),
        ),
    )
    assert (read.title, read.without, read.violates) == (
        "A leader dies",
        "some-rule",
        frozenset({"I-14", "I-23"}),
    )
    assert [step.text for step in read.at_the_end] == ["expect t-0@2 role=leader"]


def test_what_a_text_says_about_its_plan_is_written_too() -> None:
    read = read_plan(parse_script("leader-dies", WHOLE))
    text = format_plan(
        read.plan, title=read.title, without=read.without, violates=sorted(read.violates)
    )
    again = read_plan(parse_script("leader-dies", text))
    assert (again.plan, again.title, again.without, again.violates) == (
        read.plan,
        read.title,
        read.without,
        read.violates,
    )


HEADER = "seed: 1\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("brokers: 3", "plan has no seed."),
        ("seed: x", "plan, line 1: 'x' is not a whole number."),
        (HEADER + "seed: 2", "plan, line 2: 'seed' is there twice."),
        (HEADER + "mood: good", "plan, line 2: The header of a cluster has no 'mood'."),
        (HEADER + "brokers when strict=no: 2", "line 2: The header of a cluster has no 'brokers'."),
        (HEADER + "brokers: 0", "'0' is less than 1."),
        (HEADER + "brokers:", "'brokers' has no value."),
        (HEADER + "profile: rash", "The profile is strict, damage or beyond, not 'rash'."),
        (HEADER + "settings: high", "'high' is not a setting such as min.insync.replicas=2."),
        (HEADER + "latency: least=5", "'5' is not a time such as 500ms or 30s."),
        (HEADER + "latency: middle=5s", "'middle=5s' is none of least=, mean=, spike=, spikes=."),
        (HEADER + "store: latency", "'latency' is none of latency=, lag=."),
        (HEADER + "drifts: 1 x", "'x' is not a whole number."),
        (HEADER + "\nkill 2", "plan, line 3: A line begins with topic, client, at or expect, not"),
        (HEADER + "\nat 5s", "plan, line 3: 'at' is followed by a time and a verb"),
        (HEADER + "\nat 5 kill 2", "plan, line 3: '5' is not a time"),
        (HEADER + "\ntopic", "A topic has one name."),
        (HEADER + "\ntopic t partitions=0", "at least one partition"),
        (HEADER + "\nclient producer", "A client has a kind and a name"),
        (HEADER + "\nat 5s kill 2 when strict=no", "A cluster has no policy to ask for."),
    ],
)
def test_a_text_that_is_no_plan_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadScript) as refused:
        parse_plan(text)
    assert sentence in str(refused.value)
