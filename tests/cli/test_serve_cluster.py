"""Several brokers in one process, and one broker over ZooKeeper, as people start them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from strandline.broker.local_cluster import LocalCluster
from strandline.cli.main import cli
from strandline.cli.serving import run_until_stopped
from strandline.cluster.store import StoreUnavailable
from tests.cli.conftest import COMMAND, DEADLINE_S, run_here
from tests.faults.processes import until
from tests.zookeeper.ensemble import ZooKeeperEnsemble
from tests.zookeeper.server import Ports, missing

Serve = Callable[..., Any]


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[str]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with ZooKeeperEnsemble(1) as ensemble:
        yield ensemble.connect_string


def addresses(serving: Any) -> list[str]:
    return re.findall(r"PLAINTEXT://(127\.0\.0\.1:\d+)", "\n".join(serving.said))


def test_three_brokers_in_one_process(serve: Serve, tmp_path: Path) -> None:
    arguments = ("--brokers", "3", "--racks", "a,b,c", "--data-dir", str(tmp_path))
    serving = serve(*arguments, "--listen", "127.0.0.1:0")
    said = "\n".join(serving.said)
    found = addresses(serving)
    assert len(set(found)) == 3
    for number, address in enumerate(found, 1):
        assert f"  listening   PLAINTEXT://{address}  broker {number}\n" in said
        assert f"  data        {tmp_path}/broker-{number}\n" in said
    assert said.count("cluster id") == 1
    cluster = run_here(["cluster", "describe", "--json"], found[2]).json
    assert [(each["id"], each["rack"]) for each in cluster["brokers"]] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
    ]
    assert run_here(["topics", "create", "orders"], found[0]).out == (
        "Created topic 'orders' with 1 partition of 3 replicas each.\n"
    )
    ended = serving.stop()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err
    again = serve(*arguments, "--listen", "127.0.0.1:0")
    assert "topics      1 with 1 partition\n" in "\n".join(again.said)
    assert "not clean" not in "\n".join(again.said)
    assert again.stop().code == 0


def test_three_killed_brokers_recover(serve: Serve, tmp_path: Path) -> None:
    arguments = ("--brokers", "3", "--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    first = serve(*arguments)
    assert run_here(["topics", "create", "orders"], first.address).code == 0
    first.process.kill()
    first.process.communicate()
    again = serve(*arguments)
    said = "\n".join(again.said)
    assert "broker 2: the last shutdown was not clean" in said
    (described,) = run_here(["topics", "describe", "orders", "--json"], again.address).json
    assert described["partitions"][0]["leader"] in (1, 2, 3)
    assert again.stop().code == 0


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_with_fewer_brokers_the_partitions_of_the_others_wait_for_them(
    serve: Serve, tmp_path: Path, how: int
) -> None:
    arguments = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    three = serve("--brokers", "3", *arguments)
    create = ("topics", "create", "--replication-factor", "1", "--partitions", "3")
    assert run_here([*create, "spread"], three.address).code == 0
    lines = b"".join(b"%d\n" % number for number in range(300))
    written = subprocess.run(
        [*COMMAND, "-b", three.address, "produce", "spread"],
        input=lines,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert written.returncode == 0, written.stderr

    def described(address: str) -> list[Any]:
        (topic,) = run_here(["topics", "describe", "spread", "--json"], address).json
        partitions: list[Any] = topic["partitions"]
        return partitions

    before = described(three.address)
    assert sorted(each["leader"] for each in before) == [1, 2, 3]
    assert sum(each["high_watermark"] for each in before) == 300
    three.stop(how)

    one = serve("--brokers", "1", *arguments)
    said = "\n".join(one.said)
    assert "notice      Offline partitions: 2 of 3. Nothing of them is lost: " in said
    assert "brokers that do not run (2, 3), and is back when they do." in said
    for was, each in zip(before, described(one.address), strict=True):
        assert each["leader"] == (1 if was["leader"] == 1 else None)
        assert each["high_watermark"] == (was["high_watermark"] if was["leader"] == 1 else None)
    assert one.stop().code == 0

    again = serve("--brokers", "3", *arguments)
    assert "Offline" not in "\n".join(again.said)
    for was, each in zip(before, described(again.address), strict=True):
        assert each["leader"] == was["leader"]
        assert each["high_watermark"] == was["high_watermark"]
    assert again.stop().code == 0


@pytest.mark.parametrize("count", ["1", "3"])
def test_data_of_a_running_cluster_is_not_served_twice(
    serve: Serve, tmp_path: Path, count: str
) -> None:
    arguments = ("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    first = serve("--brokers", "3", *arguments)
    second = subprocess.run(
        [*COMMAND, "serve", "--brokers", count, *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert second.returncode == 1
    assert "Another process holds the lock" in second.stderr
    assert "Is a broker running on this data?" in second.stderr
    assert "Traceback" not in second.stderr
    assert run_here(["topics", "create", "orders"], first.address).code == 0
    assert first.stop().code == 0


def test_ports_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    ended = CliRunner().invoke(
        cli,
        ["serve", "--brokers", "3", "--listen", "localhost:65534", "--data-dir", str(tmp_path)],
    )
    assert ended.exit_code == 2
    assert "65536" in ended.output


def broker(zookeeper: str, number: int, data: Path, *more: str) -> tuple[str, ...]:
    return (
        *("broker", "--zookeeper", zookeeper, "--id", str(number)),
        *("--data-dir", str(data), "--listen", "127.0.0.1:0", *more),
    )


SHORT = ("--set", "zookeeper.session.timeout.ms=3000")
"""For tests in which a session ends. In others none may, however busy the machine is."""


def create_on_three(topic: str, address: str) -> None:
    """Create a topic when the controller has heard of all three brokers, which says they are."""

    def made() -> bool:
        ended = run_here(["topics", "create", topic, "--replication-factor", "3"], address)
        assert ended.code == 0 or "[INVALID_REPLICATION_FACTOR]" in ended.err, ended.err
        return ended.code == 0

    until(made, f"three brokers for {topic}", seconds=DEADLINE_S)


def test_brokers_over_zookeeper_are_one_cluster(
    start: Serve, zookeeper: str, tmp_path: Path
) -> None:
    path = f"{zookeeper}/one-cluster"
    running = [start(*broker(path, number, tmp_path / str(number))) for number in (1, 2, 3)]
    assert all("ready in" in each.said[-1] for each in running)
    create_on_three("orders", running[1].address)
    found = run_here(["cluster", "describe", "--json"], running[2].address).json
    assert [each["id"] for each in found["brokers"]] == [1, 2, 3]
    for each in running:
        ended = each.stop()
        assert (ended.code, ended.out.splitlines()[-1]) == (0, "Stopped cleanly."), ended.err
    again = start(*broker(path, 2, tmp_path / "2"))
    assert "topics      1 with 1 partition" in "\n".join(again.said)
    assert again.stop().code == 0


def test_an_id_that_is_in_use_is_refused(start: Serve, zookeeper: str, tmp_path: Path) -> None:
    path = f"{zookeeper}/in-use"
    first = start(*broker(path, 7, tmp_path / "first", *SHORT))
    second = subprocess.run(
        [*COMMAND, *broker(path, 7, tmp_path / "second", *SHORT)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert second.returncode == 1
    assert "A broker with the id 7 is running in this cluster" in second.stderr
    assert first.address in second.stderr
    assert "Traceback" not in second.stderr


def test_a_broker_whose_id_was_taken_over_stops(
    start: Serve, zookeeper: str, tmp_path: Path
) -> None:
    """It seemed dead for so long that another process with its id could start."""
    path = f"{zookeeper}/taken-over"
    first = start(*broker(path, 7, tmp_path / "first", *SHORT))
    first.process.send_signal(signal.SIGSTOP)
    # Waits until the session of the first has ended.
    second = start(*broker(path, 7, tmp_path / "second", *SHORT))
    ended = first.stop(signal.SIGCONT)
    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith(
        f"Error: Another process, at PLAINTEXT://{second.address}, runs as broker 7 now"
    )
    assert "Traceback" not in ended.err
    found = run_here(["cluster", "describe", "--json"], second.address).json
    assert [each["id"] for each in found["brokers"]] == [7]
    assert second.stop().code == 0


def test_the_wait_for_zookeeper_is_a_setting(tmp_path: Path) -> None:
    nobody = Ports.chosen()
    ended = run_here(
        [
            *broker(f"{nobody.host}:{nobody.client}", 1, tmp_path),
            *("--set", "zookeeper.connection.timeout.ms=200"),
        ]
    )
    assert ended.code == 1
    assert "within 200 ms, the limit of zookeeper.connection.timeout.ms" in ended.err


def test_a_killed_broker_comes_back_when_its_session_has_ended(
    start: Serve, zookeeper: str, tmp_path: Path
) -> None:
    path = f"{zookeeper}/killed"
    first = start(*broker(path, 1, tmp_path / "data", *SHORT))
    assert run_here(["topics", "create", "orders"], first.address).code == 0
    first.process.kill()
    first.process.communicate()
    again = start(*broker(path, 1, tmp_path / "data", *SHORT))
    assert "the last shutdown was not clean" in "\n".join(again.said)
    (described,) = run_here(["topics", "describe", "orders", "--json"], again.address).json
    assert described["partitions"][0]["leader"] == 1
    assert described["partitions"][0]["leader_epoch"] > 0
    assert again.stop().code == 0


def test_zookeeper_must_be_named(tmp_path: Path) -> None:
    nowhere = run_here(["broker", "--data-dir", str(tmp_path)])
    assert nowhere.code == 2
    wrong = run_here(["broker", "--zookeeper", "host:port", "--data-dir", str(tmp_path)])
    assert wrong.code == 1
    assert "host:port" in wrong.err


def test_serve_keeps_out_of_a_cluster_over_zookeeper(tmp_path: Path) -> None:
    data = tmp_path / "data"
    file = tmp_path / "server.properties"
    file.write_text("zookeeper.connect=zk1:2181,zk2:2181/kafka\n")
    told = run_here(["serve", "--config", str(file), "--data-dir", str(data)])
    assert told.code == 2
    assert "zookeeper.connect" in told.err
    assert f"strandline broker --config={file} --data-dir={data}\n" in told.err
    set_here = ("--set", "zookeeper.connect=zk1:2181", "--data-dir", str(data))
    told = run_here(["serve", "--processes", *set_here])
    assert told.code == 2
    assert f"strandline broker --set=zookeeper.connect=zk1:2181 --data-dir={data}\n" in told.err
    assert not data.exists()


def test_a_store_that_cannot_be_reached_is_a_sentence() -> None:
    async def start() -> LocalCluster:
        raise StoreUnavailable("No ZooKeeper server of 127.0.0.1:1 answers.")

    with pytest.raises(click.ClickException, match=r"No ZooKeeper server of 127\.0\.0\.1:1"):
        run_until_stopped(start)


def test_what_to_install_is_said(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['kazoo'] = None; from strandline.cli.main import main; main()"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, *broker("localhost", 1, tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr == (
        "Error: ZooKeeper needs the package kazoo: pip install 'strandline[zookeeper]'.\n"
    )
