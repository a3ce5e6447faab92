"""What commands show of a cluster of which a part does not answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.client.cluster import ClusterClient
from strandline.testing import Cluster
from tests.cli.conftest import Ended, run_here
from tests.client.half_led import ORPHAN, half_led

NEVER_MS = 600_000
"""A session that lasts longer than any test."""
GONE = 2


@pytest.fixture(scope="module")
def leaderless() -> Iterator[str]:
    """Of three brokers, where t-1 has no leader and t-0 three records."""
    with half_led(is_noticed=True) as brokers:
        address = brokers.brokers[0].address
        with ClusterClient(address) as client:
            while client.refresh(["t"]).topics["t"].partitions[ORPHAN.partition].leader >= 0:
                pass
        yield address


@pytest.fixture(scope="module")
def unnoticed() -> Iterator[str]:
    """Of two brokers, one of which is dead, and led t-1."""
    with Cluster(brokers=2, session_timeout_ms=NEVER_MS) as brokers:
        brokers.create_topic("t", assignment={0: (1,), 1: (GONE,)})
        brokers.kill(GONE)
        yield brokers.brokers[0].address


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again for four seconds."""
    for command in ("cluster", "topic_replicas", "topics"):
        monkeypatch.setattr(f"strandline.cli.{command}.DESCRIBING_MS", 2000)


def run(address: str, *arguments: str) -> Ended:
    return run_here(arguments, address)


def test_a_topic_is_described_at_once_when_a_partition_has_no_leader(leaderless: str) -> None:
    said = run(leaderless, "topics", "describe", "t")
    assert said.code == 0
    assert said.err == (
        "No offsets of t-1: no broker leads there at the moment. [LEADER_NOT_AVAILABLE]\n"
    ), "and it did not say that it waits"
    head, led, orphan = (line.split() for line in said.out.splitlines()[1:])
    assert head[:2] == ["PARTITION", "LEADER"]
    assert (led[:2], led[6:8]) == (["0", "1"], ["0", "3"])
    assert (orphan[:2], orphan[6:8]) == (["1", "-"], ["-", "-"])
    (described,) = run(leaderless, "topics", "describe", "t", "--json").json
    led, orphan = described["partitions"]
    assert (led["high_watermark"], led["error"]) == (3, None)
    assert [orphan[each] for each in ("leader", "start_offset", "high_watermark", "error")] == [
        *(None, None, None, "LEADER_NOT_AVAILABLE")
    ]


def test_a_search_for_hanging_transactions_tells_where_it_could_not_look(leaderless: str) -> None:
    search = ("transactions", "find-hanging", "--topic", "t")
    assert run(leaderless, *search) == (
        1,
        "No transaction hangs in 1 partition.\n",
        "Looked at 1 of 2 partitions.\n"
        "Nothing is known of t-1: no broker leads there at the moment. [LEADER_NOT_AVAILABLE]\n",
    )
    said = run(leaderless, *search, "--json")
    assert said.code == 1
    assert (said.json["hanging"], said.json["undecided"], said.json["looked_at"]) == ([], [], 1)
    (missing,) = said.json["not_looked_at"]
    assert (missing["partition"], missing["error"]) == ("t-1", "LEADER_NOT_AVAILABLE")


def test_a_topic_is_described_without_a_broker_that_died_unnoticed(unnoticed: str) -> None:
    said = run(unnoticed, "topics", "describe", "t")
    assert said.code == 0
    assert "No offsets of t-1: Cannot connect to " in said.err
    led, orphan = (line.split() for line in said.out.splitlines()[2:])
    assert (led[:2], led[6:]) == (["0", "1"], ["0", "0", "0", "B"])
    assert (orphan[:2], orphan[6:]) == (["1", "2"], ["-", "-", "-"])


def test_log_directories_of_the_living_are_shown(unnoticed: str) -> None:
    found = run(unnoticed, "cluster", "describe", "--json").json
    assert [each["broker"] for each in found["log_directories"]] == [1]
    (silent,) = found["unanswered"]
    assert (silent["broker"], silent["error"]) == (GONE, "NETWORK_EXCEPTION")
    said = run(unnoticed, "cluster", "describe")
    assert said.code == 0
    living, dead = (line.split(maxsplit=5) for line in said.out.splitlines()[-2:])
    assert (living[0], living[-1].split()[-1]) == ("1", "online")
    assert dead[:5] == ["2", "-", "-", "-", "-"]
    assert dead[5].startswith("unknown: Cannot connect to ")


def test_moves_of_logs_are_not_over_because_their_broker_does_not_answer(unnoticed: str) -> None:
    said = run(unnoticed, "topics", "moves", "--logs")
    assert (said.code, said.out) == (1, "")
    assert "Broker 2 did not tell its moves: Cannot connect to " in said.err
