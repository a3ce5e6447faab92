"""Share groups from the command line: `consume --share-group`, and `groups` of that type."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from strandline import Cluster, Producer, ShareConsumer
from tests.cli.conftest import COMMAND, DEADLINE_S, Ended, environment, run_here

Run = Callable[..., Ended]
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.heartbeat.interval.ms": 100,
    "group.share.heartbeat.interval.ms": 100,
}


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Cluster(brokers=1, settings=SETTINGS) as running:
        yield running.bootstrap_servers


@pytest.fixture
def run(servers: str) -> Run:
    return lambda *arguments: run_here(arguments, servers)


@pytest.fixture
def work(servers: str, run: Run, name: str) -> Callable[..., str]:
    """Makes a topic with so many records, and a group of its name that begins at the start."""

    def make(count: int, value: bytes = b"%d") -> str:
        run("topics", "create", name)
        changed = run(
            "configs", "alter", "--group", name, "--set", "share.auto.offset.reset=earliest"
        )
        assert changed.out == f"Changed 1 setting of group '{name}'.\n"
        with Producer({"bootstrap.servers": servers}) as producer:
            for number in range(count):
                producer.send(name, value % number)
        return name

    return make


def place(run: Run, group: str) -> list[tuple[int, int]]:
    """Start and lag of the group in each partition."""
    found = run("groups", "describe", group, "--json").json["partitions"]
    return [(each["start_offset"], each["lag"]) for each in found]


def test_what_is_printed_is_accepted(run: Run, work: Callable[..., str], servers: str) -> None:
    group = work(5)
    consume = partial(run, "consume", group, "--share-group", group, "--format", "%p %o %s\\n")
    assert consume("--max", "2") == (0, "0 0 0\n0 1 1\n", "")
    assert place(run, group) == [(2, 3)]
    assert consume("--max", "1", "-X", "max.poll.records=7").out == "0 2 2\n"
    listed = {each["group"]: each for each in run("groups", "list", "--json").json}
    assert (listed[group]["type"], listed[group]["state"]) == ("share", "Empty")
    shown = run("groups", "describe", group).out.splitlines()
    assert shown[0].startswith(f"Group {group}  type share  state Empty  epoch ")
    assert [line.split() for line in shown[2:]] == [
        ["TOPIC", "PARTITION", "START", "LAG"],
        [group, "0", "3", "2"],
    ]
    with ShareConsumer({"bootstrap.servers": servers, "group.id": group}) as member:
        member.subscribe([group])
        assert len(member.poll(DEADLINE_S * 1000)) == 2
        (found,) = run("groups", "describe", group, "--json").json["members"]
        assert (found["protocol"], found["partitions"]) == ("share", [[group, 0]])
        assert f" {group}-0" in run("groups", "describe", group).out
        refused = run("groups", "reset", group, "--topic", group, "--to-latest", "--execute")
        assert refused.code == 1
        assert "NON_EMPTY_GROUP" in refused.err


def test_a_group_is_set_elsewhere_and_forgets(run: Run, work: Callable[..., str]) -> None:
    group = work(5)
    consume = partial(run, "consume", group, "--share-group", group)
    consume("--max", "4")
    reset = ("groups", "reset", group, "--all-topics", "--shift-by", "-3")
    assert [line.split() for line in run(*reset).out.splitlines()[1:2]] == [[group, "0", "4", "1"]]
    assert place(run, group) == [(4, 1)]
    assert run(*reset, "--execute").code == 0
    assert consume("--max", "2").out == "1\n2\n"
    forget = ("groups", "delete-offsets", group, "--topic", group)
    assert run(*forget).out == f"Group '{group}' has forgotten topic '{group}'.\n"
    assert place(run, group) == []
    assert consume("--max", "1").out == "0\n"
    assert "no topic 'nowhere'" in run(*forget[:-1], "nowhere").err.lower()
    assert run("groups", "delete", group).out == f"Deleted group '{group}'.\n"
    assert "There is no group" in run("groups", "describe", group).err


def test_what_a_closed_pipe_did_not_take_goes_back(
    run: Run, work: Callable[..., str], servers: str
) -> None:
    count = 300
    group = work(count, b"%01000d")  # more than a pipe holds
    with subprocess.Popen(
        [*COMMAND, "consume", group, "--share-group", group],
        stdout=subprocess.PIPE,
        env=environment(servers),
    ) as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        reader.stdout.close()
        reader.wait(DEADLINE_S)
    assert place(run, group) == [(0, count)]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--group", "g"), "--group cannot be given with --share-group"),
        (("-e",), "--exit-at-end cannot be given"),
        (("--offset", "3"), "--offset cannot be given"),
        (("--committed",), "--isolation cannot be given"),
        (("-X", "group.protocol=consumer"), "There is no setting 'group.protocol' here"),
        (("-X", "max.poll.records=x"), "max.poll.records takes a whole number"),
    ],
)
def test_what_is_not_for_share_groups(
    alone: Run, arguments: tuple[str, ...], sentence: str
) -> None:
    ended = alone("consume", "work", "--share-group", "w", *arguments)
    assert ended.code == 2
    assert sentence in ended.err


def test_consumer_groups_forget_topics_too(run: Run, work: Callable[..., str]) -> None:
    topic = work(3)
    group = f"{topic}-other"
    run("consume", topic, "--partition", "0", "--group", group, "--max", "2")
    run("groups", "delete-offsets", group, "--topic", topic)
    assert run("groups", "describe", group, "--json").json["partitions"] == []
