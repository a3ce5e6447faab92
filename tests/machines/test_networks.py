"""Machines with IPv6 only, without any network, and with an address that changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.machines.networks import Network, missing, network

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"No network can be made: {missing()}")

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240
COMMAND = (sys.executable, "-W", "error", "-m", "strandline.cli")
IPV6_ONLY = "ip link set lo up; ip address delete 127.0.0.1/8 dev lo"


def run(
    there: Network, *words: str, stdin: str = "", code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command of ours there, to its end."""
    ended = subprocess.run(
        there.within(*(words if words[0] == sys.executable else (*COMMAND, *words))),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env={**os.environ, **environment},
        cwd=ROOT,
        check=False,
    )
    assert ended.returncode == code, ended.stderr
    return ended


@contextmanager
def serving(there: Network, *words: str) -> Iterator[str]:
    """`strandline serve` there; what it said until it was ready."""
    with subprocess.Popen(
        there.within(*COMMAND, "serve", "--log-level", "error", *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if line.startswith("ready"):
                break
        try:
            assert "ready" in said, process.communicate(timeout=DEADLINE_S)
            yield said
            process.terminate()
            out, err = process.communicate(timeout=DEADLINE_S)
            assert out.endswith("Stopped cleanly.\n"), err
        finally:
            process.kill()


def test_ipv6_only(tmp_path: Path) -> None:
    with network(tmp_path, "::1 localhost\n", IPV6_ONLY) as there:
        refused = run(there, "serve", "--data-dir", str(tmp_path / "none"), code=1)
        assert "Choose another address with --listen [::1]:9092 or the setting" in refused.stderr
        data = ("--data-dir", str(tmp_path / "data"))
        with serving(there, *data, "--brokers", "2", "--listen", "[::1]:9092", "--faults") as said:
            assert "listening   PLAINTEXT://[::1]:9093  broker 2" in said
            assert "faults      [::1]:" in said
            run(there, "topics", "create", "t", "--replication-factor", "2")
            run(there, "produce", "t", stdin="ours\n")  # at localhost, the default
            read = run(there, "-b", "[::1]:9093", "consume", "t", "--offset", "earliest", "-e")
            assert read.stdout == "ours\n"
            assert "until 'heal'" in run(there, "fault", "slow-disk", "2").stdout
            both = ("-m", "tests.machines.clients_within", "[::1]:9092,localhost:9093", "t", "ours")
            found = json.loads(run(there, sys.executable, *both).stdout)
            assert found == [["ours", "librdkafka"], ["ours", "librdkafka", "kafka-python"]]


@pytest.mark.parametrize("listen", ["localhost:9092", ":9092"])
def test_names_and_any_interface_with_ipv6_only(tmp_path: Path, listen: str) -> None:
    hosts = f"::1 localhost {os.uname().nodename}\n"
    with (
        network(tmp_path, hosts, IPV6_ONLY) as there,
        serving(there, "--data-dir", str(tmp_path / "data"), "--listen", listen, "--insecure"),
    ):
        run(there, "produce", "t", stdin="one\n")
        read = run(there, "consume", "t", "--offset", "earliest", "-e")
        assert read.stdout == "one\n"


def test_no_network_at_all(tmp_path: Path) -> None:
    """No interface but loopback, no route, and no server of names that answers."""
    with (
        network(tmp_path, "127.0.0.1 localhost\n", "ip link set lo up") as there,
        serving(there, "--data-dir", str(tmp_path / "data"), "--brokers", "2"),
    ):
        run(there, "produce", "t", stdin="one\n")
        read = run(there, "consume", "t", "--offset", "earliest", "-e")
        assert read.stdout == "one\n"


def test_an_own_name_that_is_not_resolved(tmp_path: Path) -> None:
    with network(tmp_path, "127.0.0.1 localhost\n", "ip link set lo up") as there:
        data = ("--data-dir", str(tmp_path / "data"))
        refused = run(there, "serve", *data, "--listen", ":9092", "--insecure", code=2)
        name = os.uname().nodename
        assert f"Clients would be told this machine's name, '{name}'," in refused.stderr
        assert "set advertised.listeners" in refused.stderr


def test_an_address_that_changes(tmp_path: Path) -> None:
    """As of a laptop that moves: what is advertised is a name, and connections are made anew."""
    first = "ip link set lo up; ip address add 10.9.0.1/24 dev lo"
    with network(tmp_path, "10.9.0.1 laptop.test\n", first) as there:
        settings = (
            *("--data-dir", str(tmp_path / "data"), "--brokers", "2", "--listen", "0.0.0.0:9092"),
            "--insecure",
            *("--set", "advertised.listeners=PLAINTEXT://laptop.test:9092"),
        )
        with serving(there, *settings):
            at = ("-b", "laptop.test:9092")
            create = ("topics", "create", "t", "--replication-factor", "2")
            run(there, *at, *create, "--config", "min.insync.replicas=2")
            run(there, *at, "produce", "t", stdin="before\n")
            there.ip("address delete 10.9.0.1/24 dev lo")
            there.ip("address add 10.9.0.77/24 dev lo")
            there.tell_names("10.9.0.77 laptop.test\n")
            run(there, *at, "produce", "t", stdin="after\n")
            read = run(there, *at, "consume", "t", "--offset", "earliest", "-e")
            assert read.stdout == "before\nafter\n"
