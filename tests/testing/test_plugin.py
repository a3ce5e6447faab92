"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

PLUGIN = "strandline.testing.plugin"
SOURCES = Path(__file__).parents[2] / "src"


def run(directory: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a test file with the plugin, which an installed Strandline brings by itself."""
    (directory / "test_it.py").write_text(code)
    installed = any(each.value == PLUGIN for each in entry_points(group="pytest11"))
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers"),
            *(() if installed else ("-p", PLUGIN)),
            *("-W", "error", *arguments, "test_it.py"),
        ],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_fixtures_and_marker(tmp_path: Path) -> None:
    code = """
import pytest

def test_three(strandline_cluster):
    assert len(strandline_cluster.brokers) == 3
    assert strandline_cluster.controller

def test_one(strandline_broker):
    strandline_broker.create_topic("orders")
    assert [each.broker_id for each in strandline_broker.brokers] == [1]

@pytest.mark.strandline(brokers=2, racks=["a", "b"], settings={"num.partitions": 5})
class TestMarked:
    def test_two(self, strandline_cluster):
        assert [each.rack for each in strandline_cluster.brokers] == ["a", "b"]

    @pytest.mark.strandline(brokers=1)
    def test_nearest(self, strandline_cluster):
        assert len(strandline_cluster.brokers) == 1
"""
    ended = run(tmp_path, code)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4 passed" in ended.stdout


def test_a_failure_tells_the_state_of_the_cluster(tmp_path: Path) -> None:
    code = """
import pytest

def test_fails(strandline_cluster):
    strandline_cluster.create_topic("orders", replication_factor=3)
    strandline_cluster.kill(2)
    assert False

@pytest.mark.strandline(3)
def test_positional(strandline_cluster): ...
"""
    ended = run(tmp_path, code)
    assert "1 failed, 1 error" in ended.stdout
    assert "strandline cluster" in ended.stdout
    assert "Cluster of 3 brokers, controller" in ended.stdout
    assert "orders-0" in ended.stdout
    assert "The marker strandline takes keywords" in ended.stdout
    assert "ResourceWarning" not in ended.stdout + ended.stderr


def test_every_cluster_of_what_failed_is_told(tmp_path: Path) -> None:
    code = """
import asyncio
import unittest

import pytest

import strandline

@pytest.fixture(scope="session")
def kafka():
    with strandline.Cluster(brokers=1) as cluster:
        cluster.create_topic("of-the-session")
        yield cluster.bootstrap_servers

@pytest.fixture
def breaks_at_first(strandline_broker):
    strandline_broker.create_topic("in-set-up")
    assert False

@pytest.fixture
def breaks_at_last(strandline_broker):
    strandline_broker.create_topic("in-tear-down")
    yield
    assert False

class TestCase(unittest.TestCase):
    def setUp(self):
        self.cluster = strandline.Cluster(brokers=1).open()
        self.addCleanup(self.cluster.close)

    def test_it(self):
        self.cluster.create_topic("of-unittest")
        self.fail()

def test_two(strandline_cluster, strandline_broker):
    strandline_cluster.create_topic("of-three")
    strandline_broker.create_topic("of-one")
    assert False

def test_set_up(breaks_at_first): ...

def test_tear_down(breaks_at_last): ...

def test_block():
    with strandline.Cluster(brokers=1) as cluster:
        cluster.create_topic("in-a-block")
        assert False

def test_coroutines():
    async def run():
        async with strandline.Cluster(brokers=1) as cluster:
            await cluster.create_topic("of-coroutines")
            assert False

    asyncio.run(run())

def test_passes():
    with strandline.Cluster(brokers=1) as cluster:
        cluster.create_topic("passed")

def test_of_the_session(kafka):
    assert False
"""
    ended = run(tmp_path, code, "-n", "1", "--tb=short")
    assert "5 failed, 2 passed, 2 errors" in ended.stdout, ended.stdout + ended.stderr
    told = re.findall(r"^([\w-]+-0)  ", ended.stdout, re.MULTILINE)
    assert sorted(told) == [
        *("in-a-block-0", "in-set-up-0", "in-tear-down-0", "of-coroutines-0", "of-one-0"),
        *("of-the-session-0", "of-three-0", "of-unittest-0"),
    ]
    assert ended.stdout.count("strandline cluster at its end") == 4


def test_a_thread_of_brokers_that_hangs_keeps_no_report(tmp_path: Path) -> None:
    code = """
import time

def test_hangs(strandline_broker):
    strandline_broker.wait_until(lambda status: time.sleep(9))
"""
    ended = run(tmp_path, code, "--timeout=1", "-o", "timeout_func_only=true")
    assert "1 failed" in ended.stdout
    assert "not to be told: the brokers' thread did not answer within" in ended.stdout


def test_parameters_of_the_fixtures_are_those_of_clusters(tmp_path: Path) -> None:
    code = """
import pytest

@pytest.mark.strandline(settings={"num.partitions": 5})
@pytest.mark.parametrize("strandline_cluster", [{"brokers": 1}, {"brokers": 2}], indirect=True)
def test_it(strandline_cluster, request):
    wanted = request.node.callspec.params["strandline_cluster"]["brokers"]
    assert len(strandline_cluster.brokers) == wanted

@pytest.mark.parametrize("strandline_broker", [1], indirect=True)
def test_number(strandline_broker): ...
"""
    ended = run(tmp_path, code)
    assert "2 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    assert "A parameter of strandline_broker is a dict of what Cluster" in ended.stdout


def test_workers_beside_each_other(tmp_path: Path) -> None:
    code = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_it(strandline_cluster, number):
    strandline_cluster.create_topic("orders", replication_factor=3)
    assert strandline_cluster.leader_of("orders")
"""
    ended = run(tmp_path, code, "-n", "3")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "6 passed" in ended.stdout


def test_a_session_without_clusters_loads_none(tmp_path: Path) -> None:
    code = """
import sys

def test_it():
    assert "strandline.broker.server" not in sys.modules
"""
    ended = run(tmp_path, code)
    assert ended.returncode == 0, ended.stdout + ended.stderr
