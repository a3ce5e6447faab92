"""Topics, settings and the cluster from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


def test_a_topic_is_created_described_altered_and_deleted(strandline: Run, name: str) -> None:
    made = strandline("topics", "create", name, "--partitions", "2", "--config", "retention.ms=99")
    assert made == (0, f"Created topic '{name}' with 2 partitions of 1 replica each.\n", "")
    assert name in strandline("topics", "list").out.splitlines()
    (described,) = strandline("topics", "describe", name, "--json").json
    assert described["configs"] == {"retention.ms": "99"}
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "in_sync": [1],
        "offline": [],
        "eligible_leaders": [],
        "start_offset": 0,
        "high_watermark": 0,
        "error": None,
        "size_bytes": 0,
    }
    altered = strandline(
        "topics", "alter", name, "--partitions", "3", "--delete-config", "retention.ms"
    )
    assert altered.out.splitlines() == [
        f"Changed 1 setting of topic '{name}'.",
        f"Topic '{name}' now has 3 partitions.",
    ]
    text = strandline("topics", "describe", name).out
    assert text.startswith(f"Topic {name}  id ")
    assert "retention.ms" not in text
    assert len(text.splitlines()) == 2 + 3
    assert strandline("topics", "delete", name).out == f"Deleted topic '{name}'.\n"
    gone = strandline("topics", "describe", name)
    assert gone == (1, "", f"There is no topic '{name}'. [UNKNOWN_TOPIC_OR_PARTITION]")


def test_creating_twice(strandline: Run, name: str) -> None:
    assert strandline("topics", "create", name).code == 0
    again = strandline("topics", "create", name)
    assert again.code == 1
    assert "TOPIC_ALREADY_EXISTS" in again.err
    calm = strandline("topics", "create", name, "--if-not-exists")
    assert calm == (0, f"Topic '{name}' is there already.\n", "")


def test_deleting_goes_on_after_a_topic_that_is_not_there(strandline: Run, name: str) -> None:
    strandline("topics", "create", name)
    ended = strandline("topics", "delete", "nowhere", name)
    assert (ended.code, ended.out) == (1, f"Deleted topic '{name}'.\n")
    assert "Topic 'nowhere' was not deleted: " in ended.err


def test_a_refusal_is_a_sentence(strandline: Run) -> None:
    bad = strandline("topics", "create", "a/b")
    assert bad.code == 1
    assert "INVALID_TOPIC_EXCEPTION" in bad.err
    many = strandline("topics", "create", "x", "--replication-factor", "3")
    assert "INVALID_REPLICATION_FACTOR" in many.err


def test_settings(strandline: Run, name: str) -> None:
    strandline("topics", "create", name)
    nothing = strandline("configs", "describe", "--topic", name)
    assert nothing.out == f"Nothing is set for topic '{name}'; --all shows what it follows.\n"
    dry = strandline("configs", "alter", "--topic", name, "--set", "retention.ms=5", "--dry-run")
    assert dry.out == f"Would change 1 setting of topic '{name}'.\n"
    strandline("configs", "alter", "--topic", name, "--set", "retention.ms=5")
    found = strandline("configs", "describe", "--topic", name, "--json").json
    assert [(each["name"], each["value"], each["source"]) for each in found] == [
        ("retention.ms", "5", "topic")
    ]
    everything = strandline("configs", "describe", "--topic", name, "--all").out
    assert "cleanup.policy" in everything
    wrong = strandline("configs", "alter", "--topic", name, "--set", "retention.mss=5")
    assert wrong.code == 1
    assert "did you mean retention.ms? [INVALID_CONFIG]" in wrong.err


def test_a_reset_of_what_cannot_have_been_set_is_told(strandline: Run, name: str) -> None:
    strandline("topics", "create", name, "--config", "retention.ms=5")
    misspelt = strandline("topics", "alter", name, "--delete-config", "retention.mss")
    assert misspelt == (
        0,
        f"Changed 0 settings of topic '{name}'.\n",
        "retention.mss is not a topic setting; did you mean retention.ms?\n",
    )
    both = ("--delete", "nope", "--delete", "retention.ms")
    reset = strandline("configs", "alter", "--topic", name, *both)
    assert reset.out == f"Changed 1 setting of topic '{name}'.\n"
    assert reset.err == "nope is not a topic setting.\n"
    of_group = strandline("configs", "alter", "--group", name, "--delete", "foo")
    assert "foo is not a group setting." in of_group.err
    of_broker = strandline("configs", "alter", "--broker", "all", "--delete", "node.id")
    assert of_broker.err == "node.id cannot change at run time.\n"
    assert "Changed 0 settings" in of_broker.out


def test_a_reset_of_a_plugins_setting_is_told_as_a_change(strandline: Run) -> None:
    setting = ("configs", "alter", "--broker", "all")
    assert strandline(*setting, "--set", "my.plugin.url=x").code == 0
    reset = strandline(*setting, "--delete", "my.plugin.url")
    assert (reset.out, reset.err) == ("Changed 1 setting of all brokers.\n", "")


def test_settings_of_brokers(strandline: Run) -> None:
    own = strandline("configs", "describe", "--broker", "1").out
    assert "log.dirs" in own
    assert strandline("configs", "describe", "--broker", "all").code == 0
    assert strandline("configs", "describe", "--broker", "9").code == 1


def test_the_cluster(strandline: Run, address: str, data: Any) -> None:
    found = strandline("cluster", "describe", "--json").json
    host, port = address.split(":")
    assert found["brokers"] == [{"id": 1, "host": host, "port": int(port), "rack": None}]
    assert found["controller"] == 1
    assert found["log_directories"][0]["path"] == str(data)
    text = strandline("cluster", "describe").out
    assert address in text
    assert str(data) in text


def test_the_address_may_stand_behind_the_command(alone: Run, address: str) -> None:
    assert alone("cluster", "describe", "-b", address).code == 0
    assert alone("-b", address, "cluster", "describe").code == 0


def starts(strandline: Run, name: str) -> list[int]:
    (described,) = strandline("topics", "describe", name, "--json").json
    return [each["start_offset"] for each in described["partitions"]]


@pytest.fixture
def filled(strandline: Run, spawn: Run, name: str) -> str:
    """A topic of two partitions with four records each, of the times 1000 to 4000."""
    strandline("topics", "create", name, "--partitions", "2")
    for number in ("0", "1"):
        lines = [json.dumps({"timestamp": 1000 * (n + 1), "value": f"v{n}"}) for n in range(4)]
        said = spawn(
            *("produce", name, "--partition", number, "--format", "json"),
            stdin="\n".join(lines).encode(),
        )
        assert said.code == 0, said.err
    return name


def test_records_are_deleted_below_an_offset(strandline: Run, filled: str) -> None:
    done = strandline("topics", "delete-records", f"{filled}:1", "--before", "3")
    assert done.code == 0
    assert done.out.splitlines()[1].split() == [filled, "1", "3"]
    assert starts(strandline, filled) == [0, 3]
    done = strandline("topics", "delete-records", filled, "--before", "end", "--json")
    assert [each["low_watermark"] for each in done.json] == [4, 4]
    assert starts(strandline, filled) == [4, 4]
    beyond = strandline("topics", "delete-records", filled, "--before", "5")
    assert (beyond.code, beyond.out) == (1, "")
    assert "OFFSET_OUT_OF_RANGE" in beyond.err


@pytest.mark.parametrize(
    ("time", "start"),
    [("1970-01-01", 0), ("1970-01-01T00:00:02.5", 2), ("1970-01-01T00:00:09Z", 4)],
)
def test_records_are_deleted_below_a_time(
    strandline: Run, filled: str, time: str, start: int
) -> None:
    assert strandline("topics", "delete-records", filled, "--before-time", time).code == 0
    assert starts(strandline, filled) == [start, start]


def test_records_are_deleted_as_a_file_of_kafkas_tool_says(
    strandline: Run, filled: str, tmp_path: Path
) -> None:
    partitions = [
        {"topic": filled, "partition": 0, "offset": -1},
        {"topic": filled, "partition": 1, "offset": 2},
    ]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": partitions, "version": 1}))
    assert strandline("topics", "delete-records", "--offset-json-file", str(file)).code == 0
    assert starts(strandline, filled) == [4, 2]
    for wrong in ("", "[]", "{}", '{"partitions": []}', '{"partitions": [{"topic": "a"}]}',
                  '{"partitions": [], "version": 2}'):  # fmt: skip
        file.write_text(wrong)
        said = strandline("topics", "delete-records", "--offset-json-file", str(file))
        assert said.code == 2, wrong
    file.write_text(json.dumps({"partitions": [*partitions, partitions[0]]}))
    said = strandline("topics", "delete-records", "--offset-json-file", str(file))
    assert "twice" in said.err


@pytest.mark.parametrize(
    "words",
    [
        ("orders",),
        ("orders", "--before", "-1"),
        ("orders", "--before", "latest"),
        ("orders", "--before", "1", "--before-time", "1"),
        ("--before", "1"),
    ],
)
def test_what_to_delete_must_be_said(alone: Run, words: tuple[str, ...]) -> None:
    said = alone("topics", "delete-records", *words)
    assert (said.code, said.out) == (2, "")


def test_settings_of_one_broker_change_where_the_system_chose_its_port(strandline: Run) -> None:
    """The port was held against the 0 of the settings, and every change was refused."""
    for change in (("--set", "max.connections=55"), ("--delete", "max.connections")):
        changed = strandline("configs", "alter", "--broker", "1", *change)
        assert (changed.code, changed.out) == (0, "Changed 1 setting of broker 1.\n"), changed.err
