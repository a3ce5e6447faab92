"""`status`, `why` and `ledger` on three real brokers, one of which goes away and comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from strandline.cli.why import merge
from strandline.client.cluster import ClusterClient
from strandline.client.ledger import entries, kept
from strandline.client.producer import Producer, ProducerSettings
from strandline.errors import ProtocolError
from strandline.testing import Cluster
from strandline.types import BrokerId
from tests.cli.conftest import Ended, run_here

pytestmark = pytest.mark.xdist_group("inspected")
Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3) as cluster:
        cluster.create_topic("orders", partitions=2, assignment={0: (1, 2, 3), 1: (2, 3, 1)})
        yield cluster


@pytest.fixture
def run(cluster: Cluster) -> Run:
    return lambda *arguments: run_here(arguments, cluster.bootstrap_servers)


def send(
    servers: str, topic: str, *values: bytes, settings: ProducerSettings | None = None
) -> None:
    with ClusterClient(servers) as client, Producer(client, settings) as producer:
        for value in values:
            producer.send(topic, value, key=b"k", partition=0)
        producer.flush().raise_failure()


# -- status ----------------------------------------------------------------------------------


def test_status_of_the_cluster(run: Run) -> None:
    ended = run("status")
    assert ended.code == 0, ended.err
    assert "Cluster " in ended.out
    rows = [line.split() for line in ended.out.splitlines() if line[:1].strip().isdigit() or
            line.strip()[:1].isdigit()]  # fmt: skip
    assert [row[0] for row in rows[:3]] == ["1", "2", "3"]
    assert "partitions are fully replicated" in ended.out


def test_status_of_a_topic_and_of_a_partition(cluster: Cluster, run: Run) -> None:
    send(cluster.bootstrap_servers, "orders", b"a", b"b")
    ended = run("status", "orders/0")
    assert "orders/0  leader 1" in ended.out
    assert "orders/1" not in ended.out
    assert "HIGH WATERMARK" in ended.out
    assert sum("follower" in line for line in ended.out.splitlines()) == 2
    assert "orders/1  leader 2" in run("status", "orders").out


def test_status_as_json_and_metrics(run: Run) -> None:
    documents = run("status", "orders", "--json").json
    assert sorted(documents) == ["1", "2", "3"]
    assert {each["broker"] for each in documents.values()} == {1, 2, 3}
    assert len(documents["1"]["replicas"]) == 2
    text = run("status", "--metrics").out
    assert text.count("# TYPE strandline_log_end_offset gauge") == 1
    for broker in (1, 2, 3):
        assert f'strandline_partitions{{broker="{broker}"}}' in text


def test_status_that_makes_no_sense(run: Run) -> None:
    assert run("status", "nothing").code == 1
    assert "There is no topic 'nothing'" in run("status", "nothing").err
    assert "There is no partition 7 of topic 'orders'" in run("status", "orders/7").err
    for wrong in ("orders/", "orders/x", "/1", ""):
        ended = run("status", wrong)
        assert (ended.code, "neither TOPIC nor TOPIC/PARTITION" in ended.err) == (2, True), wrong
    assert run("status", "--metrics", "--json").code == 2


def test_status_is_watched_until_it_is_interrupted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("strandline.cli.status.time.sleep", wait)
    ended = run("status", "--watch", "--every", "0.5", "--json")
    assert waits == [0.5, 0.5, 0.5]
    lines = [json.loads(line) for line in ended.out.splitlines() if line.startswith("{")]
    assert [sorted(line) for line in lines] == [["1", "2", "3"]] * 3


# -- why -------------------------------------------------------------------------------------


def test_why_with_nothing_wrong(cluster: Cluster, run: Run) -> None:
    cluster.create_topic("healthy", replication_factor=3)
    cluster.wait_until_in_sync("healthy")
    ended = run("why", "healthy")
    assert ended.out == "Nothing that the brokers know of is refused or stands still.\n"
    assert run("why", "healthy", "--json").json == []


def test_why_a_produce_is_refused(cluster: Cluster, run: Run) -> None:
    cluster.create_topic("strict", assignment={0: (1, 2, 3)}, min_insync_replicas=3)
    cluster.kill(3)
    cluster.wait_until(
        lambda status: (
            all(3 not in each.in_sync for each in status.partitions)
            and not status.brokers[2].is_registered
        ),
        "broker 3 has left the cluster and the in-sync sets",
    )
    try:
        with pytest.raises(ProtocolError):
            send(
                cluster.bootstrap_servers,
                "strict",
                b"m",
                settings=ProducerSettings(delivery_timeout_ms=3000),
            )
        ended = run("why", "strict/0")
        assert "only 2 of 3 replicas that acks=all needs are in sync" in ended.out
        assert "broker 3 is not registered" in ended.out
        assert "PRODUCE of strandline" in ended.out
        assert "ends by   Bring broker 3 back, or lower min.insync.replicas" in ended.out
        by_error = run("why", "--error", "not_enough_replicas", "--json").json
        assert {each["rule"] for each in by_error} == {"too-few-in-sync"}
        assert "strict" in run("status").out
    finally:
        cluster.start(3)
        cluster.wait_until_in_sync()


def test_why_that_makes_no_sense(run: Run) -> None:
    assert run("why", "orders", "--group", "g").code == 2
    ended = run("why", "--error", "NONSENSE")
    assert (ended.code, "no error with the name 'NONSENSE'" in ended.err) == (1, True)


@pytest.mark.parametrize("error", [(), ("--error", "NOT_ENOUGH_REPLICAS")])
def test_why_of_a_topic_that_does_not_exist(run: Run, error: tuple[str, ...]) -> None:
    ended = run("why", "ordres", *error)
    assert (ended.code, ended.err) == (
        1,
        "There is no topic 'ordres'. [UNKNOWN_TOPIC_OR_PARTITION]",
    )
    assert "topic ordres: there is no such topic; did you mean 'orders'?\n" in ended.out
    assert "stands still" not in ended.out
    assert "told by   broker 1, 2, 3\n" in ended.out
    ended = run("why", "ordres", *error, "--json")
    assert (ended.code, [each["rule"] for each in ended.json]) == (1, ["unknown-topic"])


def test_why_of_a_partition_that_does_not_exist(run: Run) -> None:
    ended = run("why", "orders/7")
    assert (ended.code, ended.err) == (
        1,
        "There is no partition 7 of topic 'orders'. [UNKNOWN_TOPIC_OR_PARTITION]",
    )
    assert "orders-7: the topic has the partitions 0 to 1\n" in ended.out


def test_why_of_a_topic_that_exists_by_now(cluster: Cluster, run: Run) -> None:
    assert run("consume", "late", "--exit-at-end").code == 1
    assert "topic late: there is no such topic\n" in run("why").out
    assert run("why", "late").code == 1
    cluster.create_topic("late", replication_factor=3)
    cluster.wait_until_in_sync("late")
    ended = run("why", "late")
    assert (ended.code, ended.out) == (
        0,
        "Nothing that the brokers know of is refused or stands still.\n",
    )
    assert "topic late" not in run("why").out
    by_error = run("why", "late", "--error", "UNKNOWN_TOPIC_OR_PARTITION").out
    assert "topic late: it was not known then, and is known now\n" in by_error
    assert "ends by" not in by_error


def test_why_of_a_group_that_does_not_exist(cluster: Cluster, run: Run) -> None:
    ended = run("why", "--group", "nothing")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "There is no group 'nothing'. [GROUP_ID_NOT_FOUND]"
    send(cluster.bootstrap_servers, "orders", b"m")
    consumed = run("consume", "orders", "--group", "readers", "--exit-at-end")
    assert consumed.code == 0, consumed.err
    assert "the group has no members" in run("why", "--group", "readers").out


def test_a_broker_that_found_something_twice_is_named_once() -> None:
    """Brokers before 0.2 tell each refusal alone."""
    finding = {"rule": "r", "about": "a", "cause": "c", "since_wall_ms": 5, "evidence": ["x"]}
    twice = [finding, {**finding, "since_wall_ms": 3, "evidence": ["y"]}]
    (told,) = merge({BrokerId(1): {"findings": twice}, BrokerId(2): {"findings": [finding]}})
    assert (told["brokers"], told["since_wall_ms"], told["evidence"]) == ([1, 2], 3, ["x", "y"])


def test_what_brokers_found_alike_is_told_once() -> None:
    finding = {"rule": "r", "about": "a", "cause": "c", "since_wall_ms": 5, "evidence": ["x"]}
    answers = {
        BrokerId(1): {"findings": [finding]},
        BrokerId(2): {"findings": [{**finding, "since_wall_ms": 3, "evidence": ["x", "y"]}]},
        BrokerId(3): {"findings": [{**finding, "about": "b", "since_wall_ms": None}]},
    }
    both, other = merge(answers)
    assert (both["brokers"], both["since_wall_ms"], both["evidence"]) == ([1, 2], 3, ["x", "y"])
    assert (other["brokers"], other["since_wall_ms"]) == ([3], None)


# -- ledger ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def entry(cluster: Cluster) -> str:
    """The entry of broker 1, which led alone while it was cut off, and had to give that up."""
    cluster.create_topic("lost", assignment={0: (1, 2, 3)})
    servers = cluster.bootstrap_servers
    send(servers, "lost", b"kept 0", b"kept 1")
    cluster.partition((1,), (2, 3))
    # Who asks broker 1 is told that it leads, also when the others have elected another.
    send(
        cluster.brokers[0].address, "lost", b"lost 2", b"lost 3", settings=ProducerSettings(acks=1)
    )
    cluster.wait_for_leader("lost", other_than=1)
    cluster.heal()
    cluster.wait_until_in_sync("lost")
    send(servers, "lost", b"new 2")
    with ClusterClient(cluster.bootstrap_servers) as client:
        (found,) = (each for each in entries(client) if each["topic"] == "lost")
        assert [each.value for each in kept(client, found).records] == [b"lost 2", b"lost 3"]
    assert found["broker"] == 1
    return str(found["id"])


def test_the_ledger_lists_and_shows(run: Run, entry: str) -> None:
    listed = run("ledger", "list")
    (line,) = [line for line in listed.out.splitlines() if entry in line]
    assert "lost-0" in line
    assert "the leader's log has other records from here on" in line
    assert "at least 0" in line, "a mark that is not at the end says nothing of what is above it"
    assert [each["id"] for each in run("ledger", "list", "lost/0", "--json").json] == [entry]
    assert run("ledger", "list", "orders").out == "The ledger is empty.\n"
    shown = run("ledger", "show", entry)
    assert [line.split("value=")[1] for line in shown.out.splitlines()] == ["lost 2", "lost 3"]
    first = json.loads(run("ledger", "show", entry, "--json").out.splitlines()[0])
    assert (first["offset"], first["value"]) == (2, "lost 2")


def test_the_ledger_is_compared_with_today(run: Run, entry: str) -> None:
    ended = run("ledger", "diff", entry)
    assert ended.code == 1
    signs = [(line[0], line.split()[-1]) for line in ended.out.splitlines()]
    assert signs == [("-", "2"), ("+", "2"), ("-", "3")]
    changes = run("ledger", "diff", entry, "--json").json
    assert [(c["offset"], c["removed"]["value"]) for c in changes] == [(2, "lost 2"), (3, "lost 3")]
    assert changes[0]["now"]["value"] == "new 2"
    assert changes[1]["now"] is None


def test_removed_records_are_produced_again_where_one_says(
    cluster: Cluster, run: Run, entry: str
) -> None:
    cluster.create_topic("rescued", partitions=1)
    assert run("ledger", "recover", entry).code == 2  # without a topic nothing is written
    ended = run("ledger", "recover", entry, "--to", "rescued", "--missing-only")
    assert ended.out == "Produced 2 records to 'rescued'.\n", ended.err
    found = run("consume", "rescued", "--exit-at-end", "--format", "json").out.splitlines()
    assert [(json.loads(each)["key"], json.loads(each)["value"]) for each in found] == [
        ("k", "lost 2"),
        ("k", "lost 3"),
    ]


def test_an_entry_that_is_not_there(run: Run) -> None:
    ended = run("ledger", "show", "1-2-3")
    assert (ended.code, "No broker has an entry '1-2-3'" in ended.err) == (1, True)
