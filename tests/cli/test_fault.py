"""`strandline fault` on a cluster that `serve --faults` runs, and on one that does not allow it."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.faults import Fault, asking, asking_for_states, cause, states_of
from strandline.client.producer import Producer, ProducerSettings
from strandline.client.settings import Address, ClientSettings, parse_addresses
from strandline.errors import ErrorCode, ProtocolError
from tests.cli.conftest import DEADLINE_S, Ended, Serving, run_here

pytestmark = pytest.mark.xdist_group("faults")
Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    data = tmp_path_factory.mktemp("faults")
    serving = Serving(
        "serve", "--brokers", "3", "--faults", "--data-dir", str(data), "--listen", "127.0.0.1:0",
        "--set", "zookeeper.session.timeout.ms=1000",
    )  # fmt: skip
    yield serving
    ended = serving.stop()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err


@pytest.fixture(scope="module")
def addresses(serving: Serving) -> str:
    return ",".join(re.findall(r"PLAINTEXT://(127\.0\.0\.1:\d+)", "\n".join(serving.said)))


@pytest.fixture
def run(addresses: str) -> Run:
    return lambda *arguments: run_here(arguments, addresses)


def control_of(serving: Serving) -> str:
    (address,) = re.findall(r"^  faults +(\S+)$", "\n".join(serving.said), re.MULTILINE)
    return str(address)


def until(serving: Serving, condition: Callable[[set[int]], bool]) -> None:
    """Wait until the brokers that broker 1 knows to live are so."""
    deadline = time.monotonic() + DEADLINE_S
    with ClusterClient(serving.address) as client:
        while not condition(set(client.refresh().brokers)):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_killed_broker_is_missed_and_comes_back(run: Run, serving: Serving) -> None:
    ended = run("fault", "kill", "3")
    assert ended.out == "Killed broker 3; 'restart' starts again what was killed.\n", ended.err
    until(serving, lambda found: found == {1, 2})
    again = run("fault", "kill", "3")
    assert (again.code, again.err.strip()) == (1, "Broker 3 is not running. [INVALID_REQUEST]")
    assert run("fault", "restart", "3").out == "Started broker 3.\n"
    until(serving, lambda found: found == {1, 2, 3})


def test_all_are_restarted_where_clients_look_for_them(run: Run, addresses: str) -> None:
    """Though the system was to choose their ports."""
    assert run("fault", "restart", "1", "2", "3").out == "Started brokers 1, 2, 3.\n"
    with ClusterClient(addresses) as client:
        found = {str(each.address) for each in client.refresh().brokers.values()}
    assert found == set(addresses.split(","))


def test_a_paused_broker_loses_its_session(run: Run, serving: Serving) -> None:
    control = control_of(serving)
    assert run("fault", "pause", "2", "--control", control).out == "Paused broker 2.\n"
    assert "paused already" in run("fault", "pause", "2", "--control", control).err
    until(serving, lambda found: found == {1, 3})
    assert run("fault", "resume", "2", "--control", control).out == "Resumed broker 2.\n"
    assert "not paused" in run("fault", "resume", "2").err
    until(serving, lambda found: found == {1, 2, 3})


def test_a_broker_that_is_cut_off_is_missed_until_it_is_healed(run: Run, serving: Serving) -> None:
    assert "off from the others" in run("fault", "partition", "3").out
    until(serving, lambda found: found == {1, 2})
    assert "reach each other" in run("fault", "heal").out
    until(serving, lambda found: found == {1, 2, 3})


def test_brokers_are_cut_off_and_healed_one_by_one(run: Run, serving: Serving) -> None:
    run("fault", "partition", "2")
    run("fault", "partition", "3")
    until(serving, lambda found: found == {1})
    refused = run("fault", "restart", "3")
    assert "'heal' it first" in refused.err
    assert "Nothing cuts broker 2 off" in run("fault", "heal", "2").out
    until(serving, lambda found: found == {1, 2})
    assert "Nothing cuts broker 3 off" in run("fault", "heal", "3").out
    until(serving, lambda found: found == {1, 2, 3})


def test_a_broker_is_restarted_though_its_disk_is_slow(run: Run, serving: Serving) -> None:
    run("fault", "slow-disk", "2", "--delay", "60000")
    run("topics", "create", "held", "--replication-factor", "3")
    assert run("fault", "restart", "2").out == "Started broker 2.\n"
    assert "its disk is not slow" in run("fault", "heal", "2").err


def test_a_cluster_ends_cleanly_whatever_its_brokers_suffer(
    serve: Callable[..., Serving], tmp_path: Path
) -> None:
    """One is killed and about to be started, one is cut off, one is paused."""
    serving = serve(
        "--brokers", "3", "--faults", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0",
        "--set", "zookeeper.session.timeout.ms=600000",
    )  # fmt: skip
    address = parse_addresses(control_of(serving))[0]
    cause(address, Fault("kill", (1,)))
    restarting = socket.create_connection(address, DEADLINE_S)
    idle = socket.create_connection(address, DEADLINE_S)
    with restarting, idle:
        restarting.sendall(asking(Fault("restart", (1,))))
        cause(address, Fault("partition", (2,)))
        cause(address, Fault("pause", (3,)))
        lives = [each["life"] for each in states(address)]
        assert lives == ["restarting", "running", "paused"]
        with pytest.raises(ProtocolError, match="Broker 1 is being restarted already"):
            cause(address, Fault("restart", (1,)))
        ended = serving.stop()
        assert b"The cluster is stopping" in restarting.makefile("rb").readline()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err


def states(address: Address) -> list[dict[str, Any]]:
    with socket.create_connection(address, DEADLINE_S) as connection:
        connection.sendall(asking_for_states())
        return states_of(connection.makefile("rb").readline())


def test_an_expired_session_is_made_anew(run: Run, serving: Serving) -> None:
    def session() -> str | None:
        """The session that broker 1 sees broker 2 registered with; none between two of them."""
        documents = run("status", "--json").json
        seen = [each for each in documents["1"]["brokers"] if each["broker"] == 2]
        return str(seen[0]["session"]) if seen else None

    before = session()
    assert before is not None
    assert (
        run("fault", "expire-session", "2").out == "The metadata sessions of broker 2 have ended.\n"
    )
    until(serving, lambda found: found == {1, 2, 3} and session() not in (None, before))


def test_a_slow_disk_holds_its_broker_up(run: Run, addresses: str) -> None:
    run("topics", "create", "slow", "--replication-factor", "1")
    (partition,) = run("topics", "describe", "slow", "--json").json[0]["partitions"]
    leader = str(partition["leader"])
    text = run("fault", "slow-disk", leader, "--delay", "60000").out
    assert text == f"Writing records takes broker {leader} 60000 ms more, until 'heal'.\n"
    produce(addresses)  # it is answered, and then the disk takes its time
    with pytest.raises(ProtocolError) as refused:
        produce(addresses, ClientSettings(request_timeout_ms=500, operation_timeout_ms=500))
    assert refused.value.code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE)
    assert run("fault", "heal").code == 0
    produce(addresses)


def produce(addresses: str, settings: ClientSettings | None = None) -> None:
    cluster = ClusterClient(addresses, settings)
    limit_ms = 30_000 if settings is None else settings.operation_timeout_ms
    patience = ProducerSettings(delivery_timeout_ms=limit_ms)
    with cluster as client, Producer(client, patience) as producer:
        producer.send("slow", b"m")
        producer.flush().raise_failure()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("kill",), "Say which brokers 'kill' is for."),
        (("kill", "9"), "There is no broker 9; the brokers are 1, 2, 3."),
        (("heal", "1"), "Broker 1 is not cut off, and its disk is not slow."),
        (("heal", "9"), "There is no broker 9; the brokers are 1, 2, 3."),
        (("partition", "1", "2", "3"), "A partition needs brokers on both sides."),
    ],
)
def test_what_cannot_be_done_is_said(run: Run, arguments: tuple[str, ...], sentence: str) -> None:
    ended = run("fault", *arguments)
    assert (ended.code, ended.err.strip()) == (1, f"{sentence} [INVALID_REQUEST]")


@pytest.mark.parametrize(
    "line",
    [b"\n", b"[]\n", b"{}\n", b'{"fault": 1, "brokers": []}\n',
     b'{"fault": "kill", "brokers": ["1"]}\n', b"\xff\n", b"[" * 60_000 + b"\n",
     b"x" * 100_000 + b"\n"],
)  # fmt: skip
def test_invalid_lines_do_no_harm(serving: Serving, run: Run, line: bytes) -> None:
    host, port = control_of(serving).split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as connection:
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile().readline()
    assert not answer or "error" in answer
    assert run("fault", "heal").code == 0


def test_without_the_flag_faults_are_refused(
    strandline: Run, serve: Callable[..., Serving], tmp_path: Path
) -> None:
    ended = strandline("fault", "kill", "1")
    assert ended.code == 1
    assert ended.err.strip() == (
        "This cluster does not allow faults: start it with `strandline serve --faults`. "
        "[POLICY_VIOLATION]"
    )


def test_no_process_listens_there(alone: Run) -> None:
    ended = alone("fault", "heal", "--control", "127.0.0.1:1")
    assert (ended.code, "cannot be asked" in ended.err) == (1, True)
    assert alone("fault", "heal", "--control", "x:y:z:").code in (1, 2)
    assert alone("fault", "nonsense").code == 2
