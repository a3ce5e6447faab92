"""Consumer groups from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer

Run = Callable[..., Any]


@pytest.fixture
def group(spawn: Run, name: str) -> str:
    """A group of its topic's name: partition 0 has 10 records and is read up to 6, 1 has none."""
    spawn("topics", "create", name, "--partitions", "2")
    lines = [{"value": "", "timestamp": 1000 * number, "partition": 0} for number in range(10)]
    stdin = "".join(json.dumps(line) + "\n" for line in lines).encode()
    spawn("produce", name, "--format", "json", stdin=stdin)
    spawn("consume", name, "--partition", "0", "--group", name, "--max", "6")
    return name


def test_lists_and_descriptions(strandline: Run, group: str) -> None:
    listed = {each["group"]: each for each in strandline("groups", "list", "--json").json}
    assert listed[group]["state"] == "Empty"
    assert listed[group]["type"].lower() == "classic"
    assert group in strandline("groups", "list").out
    found = strandline("groups", "describe", group, "--json").json
    assert found["state"] == "Empty"
    assert found["partitions"] == [
        {"topic": group, "partition": 0, "committed": 6, "end": 10, "lag": 4, "member": None}
    ]
    text = strandline("groups", "describe", group).out
    assert text.splitlines()[-1].split() == [group, "0", "6", "10", "4", "-"]


def test_a_group_of_the_consumer_protocol(strandline: Run, address: str, group: str) -> None:
    """Epochs, and what a member owns, has to give up, and is to get."""
    new = f"{group}-new"
    settings = {"bootstrap.servers": address, "group.id": new, "group.protocol": "consumer"}
    with Consumer(settings) as member:
        member.subscribe([group])
        while len(member.assignment()) < 2:
            member.poll(0.1)
        found = strandline("groups", "describe", new, "--json").json
        assert (found["type"], found["state"], found["epoch"]) == ("consumer", "Stable", 2)
        (only,) = found["members"]
        assert (only["protocol"], only["epoch"]) == ("consumer", 2)
        assert only["partitions"] == [[group, 0], [group, 1]]
        assert (only["to_give_up"], only["to_come"]) == ([], [])
        text = strandline("groups", "describe", new).out
        assert f"Group {new}  type consumer  state Stable  epoch 2  assignment epoch 2" in text
        assert "TO GIVE UP" in text
        listed = {each["group"]: each for each in strandline("groups", "list", "--json").json}
        assert listed[new]["type"] == "consumer"
    assert strandline("groups", "describe", new, "--json").json["members"] == []
    assert strandline("groups", "delete", new).out == f"Deleted group '{new}'.\n"


def test_a_group_that_is_not_there(strandline: Run) -> None:
    for arguments in (("describe", "absent"), ("delete", "absent")):
        ended = strandline("groups", *arguments)
        assert (ended.code, ended.out) == (1, "")
        assert ended.err.strip().endswith("There is no group 'absent'. [GROUP_ID_NOT_FOUND]")


def test_of_several_groups_each_is_deleted_that_can_be(strandline: Run, group: str) -> None:
    ended = strandline("groups", "delete", "missing", group, "missing-too")
    assert (ended.code, ended.out) == (1, f"Deleted group '{group}'.\n")
    assert ended.err.splitlines() == [
        f"Group '{missing}' was not deleted: There is no group '{missing}'. [GROUP_ID_NOT_FOUND]"
        for missing in ("missing", "missing-too")
    ]
    assert group not in {each["group"] for each in strandline("groups", "list", "--json").json}


def test_of_several_topics_each_is_forgotten_that_was_read(strandline: Run, group: str) -> None:
    strandline("topics", "create", f"{group}-unread")
    forget = ("groups", "delete-offsets", group)
    ended = strandline(
        *forget, "--topic", f"{group}-unread", "--topic", group, "--topic", "nowhere"
    )
    assert (ended.code, ended.out) == (1, f"Group '{group}' has forgotten topic '{group}'.\n")
    assert ended.err.splitlines() == [
        f"Group '{group}' has no offsets of topic '{topic}'."
        for topic in (f"{group}-unread", "nowhere")
    ]


def test_a_topic_that_a_member_reads_is_not_forgotten(
    strandline: Run, address: str, group: str
) -> None:
    with Consumer({"bootstrap.servers": address, "group.id": group}) as member:
        member.subscribe([group])
        while len(member.assignment()) < 2:
            member.poll(0.1)
        ended = strandline("groups", "delete-offsets", group, "--topic", group)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"Group '{group}' has not forgotten topic '{group}': ")
    assert "[GROUP_SUBSCRIBED_TO_TOPIC]" in ended.err


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), 10),
        (("--to-offset", "3"), 3),
        (("--to-offset", "99"), 10),
        (("--shift-by", "-2"), 4),
        (("--shift-by", "-99"), 0),
        (("--to-datetime", "1970-01-01T00:00:08"), 8),
        (("--to-datetime", "2100-01-01T00:00:00Z"), 10),
        (("--by-duration", "P100000D"), 0),
        (("--by-duration", "PT1S"), 10),
    ],
)
def test_a_reset_is_planned_then_done(
    strandline: Run, group: str, arguments: tuple[str, ...], after: int
) -> None:
    planned = strandline("groups", "reset", group, "--topic", f"{group}:0", *arguments)
    assert planned.code == 0
    assert planned.out.splitlines()[1].split() == [group, "0", "6", str(after)]
    assert "Nothing was changed" in planned.out
    done = strandline("groups", "reset", group, "--all-topics", *arguments, "--execute", "--json")
    assert done.json == {
        "group": group,
        "executed": True,
        "partitions": [{"topic": group, "partition": 0, "before": 6, "after": after}],
    }
    found = strandline("groups", "describe", group, "--json").json
    assert [each["committed"] for each in found["partitions"]] == [after]


def test_a_reset_makes_a_group_for_a_topic(strandline: Run, group: str) -> None:
    fresh = f"{group}-fresh"
    strandline("groups", "reset", fresh, "--topic", group, "--to-latest", "--execute")
    found = strandline("groups", "describe", fresh, "--json").json["partitions"]
    assert [(each["partition"], each["committed"]) for each in found] == [(0, 10), (1, 0)]
    assert strandline("groups", "delete", fresh).out == f"Deleted group '{fresh}'.\n"


def test_resets_that_cannot_be(strandline: Run, group: str) -> None:
    for arguments, sentence in (
        (("--topic", f"{group}:7", "--to-latest"), "no partition 7"),
        (("--topic", "nowhere", "--to-latest"), "no topic 'nowhere'"),
        (("--topic", f"{group}:1", "--shift-by", "1"), "has none of"),
        (("--topic", f"{group}:x", "--to-latest"), "Partitions are named as TOPIC"),
    ):
        ended = strandline("groups", "reset", group, *arguments, "--execute")
        assert ended.code in (1, 2)
        assert sentence in ended.err
    missing = strandline("groups", "reset", "absent", "--all-topics", "--to-latest")
    assert "There is no group 'absent'" in missing.err
