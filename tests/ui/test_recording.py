"""A recording of a live cluster whose leader dies, and what cannot be recorded or played."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.client.cluster import ClusterClient
from strandline.client.producer import Producer
from strandline.sim.scenarios.documents import load
from strandline.sim.scenarios.script import BadScript
from strandline.testing import Cluster
from tests.ui.server import PATIENCE_S

pytestmark = pytest.mark.xdist_group("ui")


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "strandline.cli", *words]


def write(cluster: Cluster, count: int) -> None:
    with ClusterClient(cluster.bootstrap_servers) as client:
        producer = Producer(client)
        for _ in range(count):
            producer.send("orders", b"written", partition=0)
        producer.flush()


def is_down(replica: dict[str, Any]) -> bool:
    return bool(replica["role"] == "down")


def until(path: Path, holds: Callable[[dict[str, Any]], bool]) -> None:
    """Wait until a condition holds for the newest frame that is in the file."""
    deadline = time.monotonic() + PATIENCE_S
    while not (seen := frames(path)) or not holds(seen[-1]):
        assert time.monotonic() < deadline, seen[-1:]
        time.sleep(0.1)  # between two looks


def frames(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["runs"][0]["frames"]
    return found


def test_a_leader_dies_and_the_recording_plays(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "accident.json"
    write(cluster, 3)
    words = ("record", "orders", "--to", str(path), "--interval", "0.05")
    recorder = subprocess.Popen(
        command("-b", cluster.bootstrap_servers, *words),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert recorder.stderr is not None
    assert recorder.stderr.readline().startswith("Recording orders-0")
    until(path, lambda last: last["controller"]["leader"] is not None)
    leader = cluster.leader_of("orders", 0)
    cluster.kill(leader)
    cluster.wait_for_leader("orders", 0, other_than=leader)
    write(cluster, 2)
    until(path, lambda last: str(leader) in {r["name"] for r in last["replicas"] if is_down(r)})
    # Not the frame from between the death and the election, in which all are still in sync.
    until(path, lambda last: last["controller"]["leader"] not in (None, str(leader)))
    cluster.restart(leader)
    until(path, lambda last: len(last["controller"]["in_sync"]) == 3)
    recorder.send_signal(signal.SIGTERM)
    out, err = recorder.communicate(timeout=PATIENCE_S)
    assert recorder.returncode == 0, err
    assert f"moments in {path}" in out

    seen = frames(path)
    events = [event for frame in seen for event in frame["events"]]
    assert any(event.startswith(f"leader {leader} → ") for event in events), events
    assert any(event == f"broker {leader} does not answer" for event in events), events
    assert seen[0]["controller"]["leader"] == str(leader)
    assert seen[-1]["controller"]["leader_epoch"] > seen[0]["controller"]["leader_epoch"]
    down = [r["name"] for frame in seen for r in frame["replicas"] if is_down(r)]
    assert set(down) == {str(leader)}

    played = subprocess.run(
        command("play", str(path)), capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert "leader" in played.stdout
    assert "invariant" not in played.stdout


def test_what_was_seen_survives_a_kill(cluster: Cluster, tmp_path: Path) -> None:
    """The file is there from the beginning, whole at any moment."""
    path = tmp_path / "killed.json"
    recorder = subprocess.Popen(
        command("-b", cluster.bootstrap_servers, "record", "orders", "--to", str(path)),
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert recorder.stderr is not None
    recorder.stderr.readline()
    recorder.kill()
    recorder.communicate(timeout=PATIENCE_S)
    assert frames(path) == []
    with pytest.raises(BadScript, match=r"Nothing was recorded in killed\.json"):
        load(path)


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("record", "/7"), 2, "'/7' is neither TOPIC nor TOPIC/PARTITION."),
        (("record", "orders/x"), 2, "'orders/x' is neither TOPIC nor TOPIC/PARTITION."),
        (("record", "orders/7"), 1, "The topic 'orders' has no partition 7."),
        (("record", "nowhere"), 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("record", "orders", "--to", "/nowhere/x.json"), 1, "/nowhere/"),
    ],
)
def test_what_cannot_be_recorded(
    cluster: Cluster, words: tuple[str, ...], code: int, sentence: str
) -> None:
    ended = subprocess.run(
        command("-b", cluster.bootstrap_servers, *words),
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (ended.returncode, sentence in ended.stderr) == (code, True), ended.stderr


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is no document that can be played"),
        ("[]", "is no document that can be played"),
        ('{"format": "x", "version": 1, "runs": []}', "is a document 'x' of version 1"),
        ('{"format": "strandline-play", "version": 2, "runs": []}', "of version 2"),
    ],
)
def test_what_cannot_be_played(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "d.json"
    path.write_text(text)
    with pytest.raises(BadScript) as refused:
        load(path)
    assert sentence in str(refused.value)
