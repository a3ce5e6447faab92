"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
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
