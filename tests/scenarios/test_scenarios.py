"""Every scenario goes as its script says, under each policy that it offers, and its trace is the
one beside it: `NAME.trace` for its own policy, `NAME.truncate=high-watermark.trace` for another.

`STRANDLINE_REWRITE_TRACES=1` writes the traces anew; a change of one is to be read, not accepted.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from strandline.sim.scenarios.library import GROUPS, aliases, find, scripts
from strandline.sim.scenarios.meanings import meaning
from strandline.sim.scenarios.player import Player, Unexpected, play
from strandline.sim.scenarios.policy import Policy, variants
from strandline.sim.scenarios.script import REPLICAS, BadScript, load_script, parse_script

FOLDER = Path(__file__).parent
SCRIPTS = sorted(FOLDER.glob("*.txt"))
REWRITE = os.environ.get("STRANDLINE_REWRITE_TRACES") == "1"


def golden(path: Path, policy: Policy) -> Path:
    """Where the trace of a script under a policy is; its own policy needs no name."""
    own = load_script(path).policy
    others = [f"{name}={value}" for name, value in policy.items() if value != own[name]]
    return path.with_name(".".join([path.stem, *others, "trace"]))


RUNS = [
    (path, policy)
    for path in SCRIPTS
    if load_script(path).world == REPLICAS
    for policy in variants(load_script(path))
]


@pytest.mark.parametrize(
    ("path", "policy"), RUNS, ids=[golden(path, policy).stem for path, policy in RUNS]
)
def test_scenario(path: Path, policy: dict[str, str]) -> None:
    trace = play(load_script(path), policy)
    if REWRITE:
        golden(path, policy).write_text(trace)
    assert trace == golden(path, policy).read_text()


def test_every_trace_has_its_script() -> None:
    assert set(FOLDER.glob("*.trace")) == {golden(path, policy) for path, policy in RUNS}


def test_every_scenario_of_the_specification_has_a_script() -> None:
    numbers = {int(found[1]) for name in aliases() if (found := re.match(r"x-(\d+)", name))}
    assert numbers == set(range(1, 15))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_each_scenario_is_in_a_group_and_is_found_by_each_of_its_names(path: Path) -> None:
    script = load_script(path)
    assert script.header["group"] in GROUPS
    assert script == find(path.stem)
    assert all(find(name.upper()) == script for name in script.aliases)


def test_no_name_stands_for_two_scenarios() -> None:
    names = [name for script in scripts().values() for name in (script.name, *script.aliases)]
    assert len(set(names)) == len(names)


def test_groups_stand_together_in_their_order() -> None:
    groups = [script.header["group"] for script in scripts().values()]
    assert list(dict.fromkeys(groups)) == list(GROUPS)
    assert groups == sorted(groups, key=list(GROUPS).index)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_step_of_replicas_has_a_sentence(path: Path) -> None:
    script = load_script(path)
    if script.world == REPLICAS:
        for step in script.steps:
            sentence = meaning(step)
            assert bool(step.verb) == sentence.endswith("."), step.text
            assert "None" not in sentence, step.text


HEADER = "title: t\nreplicas: A B\n"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("replicas: A", "bad has no title."),
        ("title: t", "bad has no replicas."),
        ("title: t\nreplicas: A A", "names a replica twice"),
        ("title: t\nreplicas: a", "named A to Z"),
        (HEADER + "in-sync: B", "A leads"),
        (HEADER + "mood: good", "bad, line 3: The header has no 'mood'."),
        (HEADER + "lag-max: soon", "The header of bad: 'soon' is not a time such as 500ms or 30s."),
        (HEADER + "min-in-sync: few", "The header of bad: 'few' is not a whole number."),
        (
            HEADER + "policy: truncate=never",
            "bad, line 3: The rule truncate can be leader-epoch or",
        ),
        (HEADER + "policy: mood=good", "bad, line 3: There is no rule 'mood'; there are truncate,"),
        (HEADER + "violates when mood=good: I-23", "bad, line 3: There is no rule 'mood'"),
        (HEADER + "violates when so: I-23", "bad, line 3: 'when' is followed by rules such as"),
        (HEADER + "spare when strict=no: C", "bad, line 3: Only 'violates' can depend on"),
        (HEADER + "topic: mood=good", "'mood=good' is no setting of a scenario's topic; there are"),
        (HEADER + "topic: retention.ms", "'retention.ms' is no setting of a scenario's topic"),
        (HEADER + "\npause B\npause B", "bad, line 5: B is paused."),
        (HEADER + "\npause B\nstop B", "bad, line 5: B is paused, and would stop later."),
        (HEADER + "\nresume B", "bad, line 4: B is not paused."),
        (HEADER + "\nconsume A from=-1", "bad, line 4: 'from' is an offset."),
        (HEADER + "\ntick B", "'tick' has too many words."),
        (HEADER + "\nfetch B =1", "bad, line 4: '=1' has no name before its value."),
        (HEADER + "\nfetch B when\n", "bad, line 4: 'when' is followed by rules such as"),
        (HEADER + "\nfetch B when mood=good", "bad, line 4: There is no rule 'mood'"),
        (
            HEADER + "\nwhen strict=perhaps:\n  fetch B",
            "bad, line 5: The rule strict can be yes or",
        ),
        (HEADER + "wait 5", "bad, line 3: '5' is not a time such as 500ms or 30s."),
        (HEADER + "wait 5us", "bad, line 3: '5us' is not a whole number of milliseconds."),
        (HEADER + "fly B", "bad, line 3: There is no verb 'fly'."),
        (HEADER + "fetch", "'fetch' has too few words."),
        (HEADER + "fetch B C", "'fetch' has too many words."),
        (HEADER + "fetch B acks=1", "'fetch' has no option 'acks'."),
        (HEADER + "fetch C", "There is no replica 'C'; there are A, B."),
        (HEADER + "fetch B lose-reply park", "A fetch cannot be 'lose-reply' and 'park'."),
        (HEADER + "start B", "B is running."),
        (HEADER + "kill B\nkill B", "bad, line 4: B is not running."),
        (HEADER + "wipe B", "B is running."),
        (HEADER + "deliver B", "No reply to B is held back."),
        (HEADER + "expire-fetch B", "No fetch of B is parked."),
        (HEADER + "reply A", "No answer of the controller to A is held back."),
        (HEADER + "marker B commit producer=1", "B does not lead."),
        (HEADER + "marker A perhaps producer=1", "A marker is commit or abort, not 'perhaps'."),
        (HEADER + "produce A m0 acks=2", "acks can be all, 1 or 0, not '2'."),
        (HEADER + "produce A m0 producer=x", "'x' is not a whole number."),
        (HEADER + "power-cut A keep=7", "A has records below 0, it cannot keep 7."),
        (HEADER + "elect C", "There is no replica 'C'"),
        (HEADER + "elect B isr=BC", "The partition is not assigned to C."),
        (HEADER + "min-in-sync 0", "min-in-sync is at least 1."),
        (HEADER + "delete-records A 3", "The high watermark of A is 0: it cannot delete to 3."),
        (HEADER + "expect A", "'expect A' expects nothing."),
        (HEADER + "expect C leo=1", "There is no replica 'C'"),
        (HEADER + "expect lost", "'expect lost' has too few words."),
        (HEADER + "expect low-watermark B 1", "B does not lead."),
    ],
)
def test_a_script_that_means_nothing_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadScript) as refused:
        play(parse_script("bad", text))
    assert sentence in str(refused.value)


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(BadScript, match="There is no rule 'trunc'"):
        play(parse_script("good", HEADER), {"trunc": "leader-epoch"})


@pytest.mark.parametrize(
    "expectation",
    [
        "A leo=7",
        "A nonsense=1",
        "controller leader=B",
        "logs-equal A B",
        "diverged A B",
        "lost m0",
        "kept m0",
        "acked m0",
        "acked m7",
        "lost m7",
        "acked m1@3",
        "failed m0 NOT_LEADER_OR_FOLLOWER",
        "waiting m1",
        "low-watermark A 3",
    ],
)
def test_an_expectation_can_fail(expectation: str) -> None:
    script = f"{HEADER}\nfetch B\nproduce A m0\nproduce A m1 acks=1\nexpect {expectation}"
    with pytest.raises(Unexpected, match="line 7"):
        play(parse_script("failing", script))


def test_a_violation_that_does_not_happen_is_reported() -> None:
    with pytest.raises(Unexpected, match="breaks nothing"):
        play(parse_script("calm", f"{HEADER}violates: I-23\n\nproduce A m0"))


def test_an_undeclared_violation_is_reported() -> None:
    """The test of the test: the checks, and not the header, find the loss."""
    text = (FOLDER / "high-watermark-truncation-loses-a-record.txt").read_text()
    undeclared = parse_script("loses", text.replace("violates when", "# violates when"))
    play(undeclared)
    with pytest.raises(Unexpected, match="I-23"):
        play(undeclared, {"truncate": "high-watermark"})


def test_a_player_goes_on_after_what_it_did_not_expect() -> None:
    player = Player(parse_script("wrong", f"{HEADER}expect A leo=1\nproduce A m0\nfetch B"), {})
    lines = [line.text for line in player.lines()]
    assert "    ! not met: A has leo=0, not 1" in lines
    assert lines[-1] == "    B  1/0 [| m0] epochs{0:0}"
    assert player.outcome.unmet == ("wrong, line 3: A has leo=0, not 1",)
    assert not player.outcome.is_as_expected


def test_consumers_read_what_is_committed_and_hear_why_they_cannot() -> None:
    trace = play(
        parse_script(
            "reading",
            f"{HEADER}\nproduce A a+b c\nfetch B one-batch\nfetch B\nconsume A from=1\nconsume B\n"
            "consume A from=9\npause A\nconsume A\nkill B\nconsume B\n",
        )
    )
    told = [line.strip("> ") for line in trace.splitlines() if "consumer" in line]
    assert told == [
        "a consumer reads b from 1 on; the high watermark is 2",
        "a consumer reads a b from 0 on; the high watermark is 2",  # of a follower (KIP-392)
        "the consumer is refused: OFFSET_OUT_OF_RANGE",
        "A does not answer the consumer",
        "B does not answer the consumer",
    ]


def test_segments_are_as_small_as_the_header_says() -> None:
    """A setting below Kafka's least would make brokers ignore all settings of the topic."""
    player = Player(parse_script("small", f"{HEADER}segment-bytes: 100\n\nproduce A m0 m1"), {})
    for _ in player.lines():
        pass
    assert len(player.world.replicas["A"].log.segments.all) == 2


def test_conditions_leave_out_what_does_not_hold() -> None:
    script = parse_script(
        "conditions",
        f"""{HEADER}policy: strict=yes|no

# always
when strict=no:
    # not strict
    produce A m0

    fetch B
produce A m1 when strict=yes
when strict=yes|no:
    fetch B  # both
""",
    )
    told = {
        strict: [line for line in play(script, {"strict": strict}).splitlines() if line[:4].strip()]
        for strict in ("yes", "no")
    }
    assert told == {
        "yes": ["# t", "# always", "produce A m1", "fetch B # both"],
        "no": ["# t", "# always", "# not strict", "produce A m0", "fetch B", "fetch B # both"],
    }
