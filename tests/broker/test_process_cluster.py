"""What the supervisor makes of what its processes say and how they end; they are played here.

Real ones are in tests/cli/test_serve_processes.py.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from strandline.broker import child_words as words
from strandline.broker.process_cluster import SOCKET_PATH_BYTES_MAX, ProcessCluster
from strandline.config.broker import SettingLayers
from strandline.config.load import make_broker_config
from strandline.errors import StorageError, StrandlineError
from strandline.storage.files import LockHeld
from strandline.types import BrokerId
from tests.broker.store_worlds import until

ONE, TWO = BrokerId(1), BrokerId(2)
PLAYED = """
import json, os, sys
order = json.loads(sys.stdin.readline())
def say(word, **more):
    print(json.dumps({"word": word, **more}), flush=True)
def hear(word):
    assert json.loads(sys.stdin.readline())["word"] == word
def be_ready():
    say("prepared")
    hear("go")
    say("ready", warning="Few handles.", report={
        "cluster_id": "c", "addresses": [{"name": "A", "host": "h", "port": 1}],
        "log_dirs": ["/d"], "topics": 0, "partitions": 0, "was_clean": True, "notices": ["New."],
    })
def leave():
    say("leaving")
    hear("leave")
    say("ended", clean=True)
"""


def play(
    tmp_path: Path, script: str, scenario: Callable[[ProcessCluster], Awaitable[None]]
) -> None:
    """Run a scenario with two brokers whose processes follow a script."""

    async def run() -> None:
        configs = [
            make_broker_config(
                SettingLayers(
                    static={
                        "node.id": str(number),
                        "listeners": "PLAINTEXT://127.0.0.1:0",
                        "log.dirs": str(tmp_path / f"broker-{number}"),
                    }
                )
            ).config
            for number in (1, 2)
        ]
        command = [sys.executable, "-S", "-c", PLAYED + script] if script else ["/is/not/there"]
        cluster = await ProcessCluster.start(configs, str(tmp_path), command)
        try:
            await scenario(cluster)
        finally:
            await cluster.abandon()

    asyncio.run(run())


async def nothing(_: ProcessCluster) -> None:
    raise AssertionError("The cluster has started.")


def test_reports_come_over_the_pipe_and_both_leave_together(tmp_path: Path) -> None:
    async def scenario(cluster: ProcessCluster) -> None:
        assert sorted(cluster.reports) == [1, 2]
        report = cluster.reports[2]
        assert str(report.addresses[0]) == "A://h:1"
        assert report.notices == ("New.", "Few handles.")
        assert await cluster.stop()

    play(tmp_path, "be_ready(); hear('stop'); leave()", scenario)


def test_a_path_too_long_for_a_socket_is_no_hindrance(tmp_path: Path) -> None:
    async def scenario(cluster: ProcessCluster) -> None:
        assert await cluster.stop()

    play(tmp_path / ("x" * SOCKET_PATH_BYTES_MAX), "be_ready(); hear('stop'); leave()", scenario)


def test_who_must_not_go_on_is_not_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: ProcessCluster) -> None:
        assert await cluster.until_unfit() == "No disk."
        await until(lambda: caplog.text.count("is not started again: No disk.") == 2)
        assert await cluster.stop()
        assert "says b'noise" in caplog.text

    play(tmp_path, "be_ready(); print('noise'); say('unfit', reason='No disk.'); leave()", scenario)


def test_who_dies_is_started_again_after_growing_pauses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(cluster: ProcessCluster) -> None:
        def is_ready() -> bool:
            return not cluster.children[TWO].has_ended and TWO in cluster.reports

        for pause_s in ("0.1", "0.2", "0.4"):
            await until(is_ready)
            cluster.children[TWO].tell(words.STOP)
            line = f"broker 2 ended with status 7; it is started again in {pause_s} s."
            await until(lambda line=line: line in caplog.text)  # type: ignore[misc]
        assert "Broker 2 is ready again." in caplog.text
        assert not await cluster.stop()

    dies = "be_ready(); hear('stop')\nif order['broker_id'] == 2: os._exit(7)\nleave()"
    play(tmp_path, dies, scenario)


def test_a_stop_waits_for_no_process_that_is_still_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: ProcessCluster) -> None:
        is_made = asyncio.Event()

        async def never(*_: object, **__: object) -> None:
            is_made.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(asyncio, "create_subprocess_exec", never)
        cluster.children[TWO].kill()
        await is_made.wait()
        assert not await cluster.stop(), "one was killed"
        assert cluster.children[ONE].was_clean
        assert "are killed" not in caplog.text

    play(tmp_path, "be_ready(); hear('stop'); leave()", scenario)


@pytest.mark.parametrize(
    ("kind", "raised"), [("lock", LockHeld), ("storage", StorageError), ("", StrandlineError)]
)
def test_what_keeps_one_from_starting_is_raised(
    tmp_path: Path, kind: str, raised: type[StrandlineError]
) -> None:
    says = f"say('failed', kind={kind!r}, setting='', text='It cannot be.', errno=13)"
    with pytest.raises(raised, match="It cannot be") as failed:
        play(tmp_path, says, nothing)
    assert isinstance(failed.value.__cause__, OSError)
    assert failed.value.__cause__.errno == 13


def test_an_end_without_a_word_and_no_process_at_all(tmp_path: Path) -> None:
    with pytest.raises(StrandlineError, match="ended with status 7 before it was ready"):
        play(tmp_path, "os._exit(7)", nothing)
    with pytest.raises(StrandlineError, match="cannot be started: No such file"):
        play(tmp_path, "", nothing)
