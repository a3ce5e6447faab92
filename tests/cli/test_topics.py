"""Topics, settings and the cluster from the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
