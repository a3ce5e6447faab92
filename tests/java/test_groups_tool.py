"""kafka-consumer-groups and the console and verifiable clients, with groups of living members."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.java.processes import Broker, Outcome, Process, ToolServer, Workshop
from tests.java.tables import (
    CONSOLE_CONSUMER,
    CONSOLE_PRODUCER,
    GROUPS,
    OFFSETS,
    TOOLS,
    TOPICS,
    table,
)


class Groups:
    """kafka-consumer-groups, and what it takes to have groups at all."""

    def __init__(self, server: ToolServer, broker: Broker) -> None:
        self._server = server
        self.address = broker.address

    def run(self, main: str, *arguments: str | Path, stdin: str = "") -> Outcome:
        return self._server.run(main, *arguments, "--bootstrap-server", self.address, stdin=stdin)

    def __call__(self, *arguments: str | Path) -> Outcome:
        return self.run(GROUPS, *arguments)

    def describe(self, group: str, *options: str) -> list[dict[str, str]]:
        return table(self("--describe", "--group", group, *options).succeeded())

    def committed(self, group: str) -> dict[str, str]:
        """The committed offset of each partition."""
        return {
            f"{row['TOPIC']}-{row['PARTITION']}": row["CURRENT-OFFSET"]
            for row in self.describe(group)
        }

    def topic(self, name: str, partitions: int, records: int = 0) -> None:
        """A topic, its records spread evenly: record n is in partition n % partitions."""
        self.run(TOPICS, "--create", "--topic", name, "--partitions", str(partitions)).succeeded()
        if records:
            self._server.run(
                "Spread", self.address, name, str(partitions), str(records)
            ).succeeded()

    def consume(self, group: str, topic: str, count: int) -> list[str]:
        """Read so many values as a member of the group, which then leaves."""
        said = self.run(
            CONSOLE_CONSUMER,
            *("--topic", topic, "--group", group, "--from-beginning"),
            *("--max-messages", str(count), "--timeout-ms", "120000"),
        ).succeeded()
        return said.split()


@pytest.fixture(scope="module")
def groups(tools: ToolServer, broker: Broker) -> Groups:
    return Groups(tools, broker)


def next_event(process: Process, name: str) -> dict[str, Any]:
    """The next event of this name that a verifiable client prints."""
    event: dict[str, Any] = {"name": None}
    while event["name"] != name:
        line = process.line()
        assert line is not None, f"There was no {name}. {process.complaint()}"
        event = json.loads(line)
    return event


def test_console_clients_keep_keys_and_headers_and_nulls(groups: Groups) -> None:
    groups.topic("console", 1)
    lines = "h1:a,h2:b\tk1\tv1\nNULL\tk2\tNULL\nh1:ü\tk3\t\n"
    groups.run(
        CONSOLE_PRODUCER,
        *("--topic", "console", "--compression-codec", "lz4"),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        stdin=lines,
    ).succeeded()
    said = groups.run(
        CONSOLE_CONSUMER,
        *("--topic", "console", "--from-beginning", "--max-messages", "3"),
        *(
            word
            for name in ("key", "headers", "offset", "partition")
            for word in ("--formatter-property", f"print.{name}=true")
        ),
    ).succeeded()
    assert said.splitlines() == [
        "Partition:0\tOffset:0\th1:a,h2:b\tk1\tv1",
        "Partition:0\tOffset:1\tNO_HEADERS\tk2\tnull",
        "Partition:0\tOffset:2\th1:ü\tk3\t",
    ]


def test_a_group_that_has_left(groups: Groups) -> None:
    groups.topic("left", 2, 10)
    assert sorted(groups.consume("leavers", "left", 10), key=int) == [str(n) for n in range(10)]
    assert "leavers" in groups("--list").succeeded().split()
    assert {"GROUP": "leavers", "STATE": "Empty"} in table(groups("--list", "--state").succeeded())
    assert "leavers" in groups("--list", "--state", "empty").succeeded()
    assert "leavers" not in groups("--list", "--state", "stable").succeeded()
    listed = groups.run(TOOLS + "GroupsCommand", "--list", "--consumer").succeeded()
    assert {"GROUP": "leavers", "TYPE": "Classic", "PROTOCOL": "consumer"} in table(listed)
    assert {"GROUP": "leavers", "TYPE": "Classic"} in table(groups("--list", "--type").succeeded())
    rows = groups.describe("leavers")
    assert [
        (row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) for row in rows
    ] == [("0", "5", "5", "0"), ("1", "5", "5", "0")]
    assert groups.describe("leavers", "--members") == []
    (state,) = groups.describe("leavers", "--state")
    assert "Empty" in state.values()
    assert "not found" in groups("--describe", "--group", "nobody").err
    everything = groups("--describe", "--all-groups").succeeded()
    assert "leavers" in everything


RESETS = (
    (("--to-earliest",), ("0", "0")),
    (("--to-latest",), ("5", "5")),
    (("--to-offset", "2"), ("2", "2")),
    (("--to-offset", "99"), ("5", "5")),
    (("--shift-by", "-1"), ("4", "4")),
    (("--shift-by", "-100"), ("0", "0")),
    (("--to-current",), ("0", "0")),
    (("--to-datetime", "2000-01-01T00:00:00.000"), ("0", "0")),
    (("--to-datetime", "2099-01-01T00:00:00.000"), ("5", "5")),
    (("--by-duration", "P1D"), ("0", "0")),
)


def test_offsets_are_reset_in_every_way(groups: Groups, tmp_path: Path) -> None:
    groups.topic("reset", 2, 10)
    groups.consume("resetters", "reset", 10)
    which = ("--group", "resetters", "--reset-offsets")
    for how, expected in RESETS:
        before = groups.committed("resetters")
        if how == ("--shift-by", "-1"):
            assert before == {"reset-0": "5", "reset-1": "5"}
        plan = table(groups(*which, "--topic", "reset", *how, "--dry-run").succeeded())
        assert {row["PARTITION"]: row["NEW-OFFSET"] for row in plan} == dict(
            zip("01", expected, strict=True)
        ), how
        assert groups.committed("resetters") == before, how
        groups(*which, "--topic", "reset", *how, "--execute").succeeded()
        assert tuple(groups.committed("resetters").values()) == expected, how
    one = ("--topic", "reset:1", "--to-offset", "3", "--execute")
    groups(*which, *one).succeeded()
    assert groups.committed("resetters") == {"reset-0": "0", "reset-1": "3"}
    saved = tmp_path / "offsets.csv"
    export = ("--all-topics", "--to-current", "--dry-run", "--export")
    saved.write_text(groups(*which, *export).succeeded())
    groups(*which, "--all-topics", "--to-latest", "--execute").succeeded()
    assert groups.committed("resetters") == {"reset-0": "5", "reset-1": "5"}
    groups(*which, "--from-file", saved, "--execute").succeeded()
    assert groups.committed("resetters") == {"reset-0": "0", "reset-1": "3"}


def test_offsets_and_groups_are_deleted(groups: Groups) -> None:
    for topic in ("forget-a", "forget-b"):
        groups.topic(topic, 1, 4)
        groups.consume("forgetters", topic, 4)
    assert groups.committed("forgetters") == {"forget-a-0": "4", "forget-b-0": "4"}
    said = groups("--group", "forgetters", "--delete-offsets", "--topic", "forget-a").succeeded()
    assert "Successful" in said
    assert groups.committed("forgetters") == {"forget-b-0": "4"}
    deleted = groups("--delete", "--group", "forgetters", "--group", "nobody")
    assert "nobody" in deleted.out
    assert "forgetters" not in groups("--list").succeeded().split()


def test_groups_with_living_members(groups: Groups, workshop: Workshop) -> None:
    groups.topic("alive", 4)

    def member(instance: str) -> Process:
        return workshop.java(
            TOOLS + "VerifiableConsumer",
            *("--bootstrap-server", groups.address, "--topic", "alive", "--group-id", "living"),
            *("--group-instance-id", instance, "--reset-policy", "earliest"),
        )

    members = [member("one"), member("two")]
    shares: list[list[dict[str, Any]]] = []
    for process in members:
        # The first member may have had all four partitions for a while.
        share = next_event(process, "partitions_assigned")["partitions"]
        while len(share) != 2:
            share = next_event(process, "partitions_assigned")["partitions"]
        shares.append(share)
    producer = workshop.java(
        TOOLS + "VerifiableProducer",
        *("--bootstrap-server", groups.address, "--topic", "alive"),
        *("--max-messages", "200", "--acks", "-1", "--repeating-keys", "8"),
    )
    sent = next_event(producer, "tool_data")
    assert (sent["sent"], sent["acked"]) == (200, 200)
    assert producer.wait() == 0

    rows = groups.describe("living", "--members", "--verbose")
    assert [row["#PARTITIONS"] for row in rows] == ["2", "2"]
    assert {row["GROUP-INSTANCE-ID"] for row in rows} == {"one", "two"}
    assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
    (state,) = groups.describe("living", "--state")
    assert {"range", "Stable", "2"} <= set(state.values())
    assert "living" in groups("--list", "--state", "stable").succeeded()
    to_earliest = ("--topic", "alive", "--to-earliest", "--execute")
    refused = groups("--reset-offsets", "--group", "living", *to_earliest)
    assert "inactive" in refused.out + refused.err
    refused = groups("--delete", "--group", "living")
    assert "not empty" in refused.out + refused.err

    ends: dict[int, int] = {}
    for row in groups.run(OFFSETS, "--topic", "alive").succeeded().split():
        _, partition, end = row.split(":")
        ends[int(partition)] = int(end)
    assert sum(ends.values()) == 200

    def is_end(at: dict[str, Any]) -> bool:
        return bool(at["offset"] == ends[at["partition"]])

    for process, share in zip(members, shares, strict=True):
        behind = {item["partition"] for item in share if ends[item["partition"]]}
        while behind:
            commit = next_event(process, "offsets_committed")
            assert commit["success"] is True
            behind -= {at["partition"] for at in commit["offsets"] if is_end(at)}
    assert {row["LAG"] for row in groups.describe("living")} <= {"0", "-"}
    for process in members:
        process.end()


def test_performance_tools(groups: Groups) -> None:
    groups.topic("perf", 3)
    said = groups.run(
        TOOLS + "ProducerPerformance",
        *("--topic", "perf", "--num-records", "5000", "--record-size", "300"),
        *("--throughput", "-1", "--command-property", "compression.type=gzip"),
    ).succeeded()
    assert re.search(r"^5000 records sent, .* 99.9th\.$", said, re.MULTILINE), said
    said = groups.run(
        TOOLS + "ConsumerPerformance",
        *("--topic", "perf", "--num-records", "5000", "--timeout", "120000"),
    ).succeeded()
    header, row = (line.split(", ") for line in said.splitlines()[-2:])
    assert dict(zip(header, row, strict=True))["data.consumed.in.nMsg"] == "5000"
    said = groups.run(
        TOOLS + "EndToEndLatency",
        *("--topic", "perf", "--num-records", "20", "--producer-acks", "all"),
        *("--record-size", "100"),
    ).succeeded()
    assert "99.9th" in said


def test_client_compatibility(groups: Groups) -> None:
    supported = {
        "offsets-for-times": True,
        "cluster-id": True,
        "create-topics": True,
        "describe-acls": True,
        "describe-configs": True,
        "idempotent-producer": True,
    }
    groups.topic("compatible", 1)
    groups.run(
        TOOLS + "ClientCompatibilityTest",
        *("--topic", "compatible", "--num-cluster-nodes", "1"),
        *("--expect-record-too-large-exception", "False"),
        *(f"--{name}-supported={is_so}" for name, is_so in supported.items()),
    ).succeeded()
