"""Offsets that a log does not have: those that a user names, and those that a group stopped at."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.offsets import commit_offsets
from strandline.testing import Cluster
from strandline.types import Offset, TopicPartition
from tests.cli.conftest import COMMAND, DEADLINE_S, Ended, environment, run_here

Run = Callable[..., Ended]
AS_MEMBERS = (("--protocol", "classic"), ("--protocol", "consumer"))


@pytest.fixture
def topic(spawn: Run, name: str) -> str:
    """Partition 0 has the offsets 2 to 4, partition 1 only the offset 0."""
    spawn("topics", "create", name, "--partitions", "2")
    spawn("produce", name, "--partition", "0", stdin=b"0\n1\n2\n3\n4\n")
    spawn("produce", name, "--partition", "1", stdin=b"other\n")
    spawn("topics", "delete-records", f"{name}:0", "--before", "2")
    return name


CLASSIC, CONSUMER = (("--group", "{}", *each) for each in AS_MEMBERS)


@pytest.mark.parametrize(
    ("offset", "arguments"),
    [
        ("6", ("--partition", "0", "-e")),
        ("6", ("--partition", "0")),
        ("1", ("--partition", "0", "-e")),
        ("1", ("--partition", "0")),
        ("99", (*CLASSIC, "-e")),
        ("99", CLASSIC),
        ("1", (*CONSUMER, "-e")),
        ("99", CONSUMER),
    ],
)
def test_an_offset_that_is_not_in_the_log_is_refused(
    spawn: Run, topic: str, offset: str, arguments: tuple[str, ...]
) -> None:
    ended = spawn("consume", topic, "--offset", offset, *(each.format(topic) for each in arguments))
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"strandline: Offset {offset} is outside of the log of partition {topic}-0, which has the "
        "offsets 2 to 4. [OFFSET_OUT_OF_RANGE]\n"
    )


def test_a_partition_of_several_that_lacks_the_offset_is_named(strandline: Run, topic: str) -> None:
    ended = strandline("consume", topic, "--offset", "3", "-e")
    assert (ended.code, ended.out) == (1, "")
    assert f"of partition {topic}-1, which has only offset 0. " in ended.err
    strandline("topics", "delete-records", f"{topic}:1", "--before", "end")
    ended = strandline("consume", topic, "--offset", "3", "-e")
    assert f"of partition {topic}-1, which is empty and ends at 1. " in ended.err


def test_the_end_of_the_log_is_a_place(strandline: Run, topic: str) -> None:
    for offset, printed in (("5", ""), ("4", "4\n"), ("2", "2\n3\n4\n")):
        ended = strandline("consume", topic, "--partition", "0", "--offset", offset, "-e")
        assert ended == (0, printed, "")


@pytest.mark.parametrize("as_member", [(), *AS_MEMBERS])
@pytest.mark.parametrize("stopped_at", [9, 1])
def test_a_group_that_stopped_outside_of_the_log_goes_on_at_the_reset(
    strandline: Run, address: str, topic: str, as_member: tuple[str, ...], stopped_at: int
) -> None:
    first = TopicPartition(topic, 0)
    with ClusterClient(address) as client:
        commit_offsets(client, topic, {first: Offset(stopped_at)})
    who = ("--group", topic, *(as_member or ("--partition", "0", "--partition", "1")))
    ended = strandline("consume", topic, *who, "-e", "--format", "%p %o\\n")
    assert ended.code == 0
    assert sorted(ended.out.splitlines()) == ["0 2", "0 3", "0 4", "1 0"]
    assert ended.err.splitlines() == [
        f"Offset {stopped_at} is outside of the log of partition {topic}-0, which has the offsets "
        "2 to 4: reading goes on at 2 (auto.offset.reset)."
    ]
    assert strandline("consume", topic, *who, "-e") == (0, "", "")


def test_a_reset_of_latest_is_told_too(strandline: Run, address: str, topic: str) -> None:
    with ClusterClient(address) as client:
        commit_offsets(client, topic, {TopicPartition(topic, 0): Offset(9)})
    ended = strandline(
        *("consume", topic, "--group", topic, "-e", "-X", "auto.offset.reset=latest")
    )
    assert (ended.code, ended.out) == (0, "")
    assert "reading goes on at 5 (auto.offset.reset)." in ended.err


def test_a_partition_without_a_leader_does_not_keep_the_others_from_being_read(name: str) -> None:
    with Cluster(brokers=2) as cluster:
        cluster.create_topic(name, assignment={0: (1,), 1: (2,)})
        written = subprocess.run(
            [*COMMAND, "produce", name, "--partition", "0"],
            input=b"0\n1\n",
            env=environment(cluster.bootstrap_servers),
            check=False,
            timeout=DEADLINE_S,
        )
        assert written.returncode == 0
        cluster.kill(2)
        cluster.wait_until(
            lambda status: not status.brokers[1].is_registered, "broker 2 has left the cluster"
        )
        ended = run_here(
            ["consume", name, "--offset", "1", "--max", "1"], cluster.bootstrap_servers
        )
        assert (ended.code, ended.out) == (0, "1\n"), ended.err
