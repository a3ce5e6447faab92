"""Checkpoints of runs that were killed go at the next start, and only those."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from strandline.lakehouse.scratch_directory import OF_QUERIES, ScratchDirectory, remove_leftovers

_OWNER = """
from strandline.lakehouse.scratch_directory import OF_QUERIES, ScratchDirectory
print(ScratchDirectory(OF_QUERIES).path, flush=True)
input()
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Instead of the machine's directory for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_goes_with_its_query(place: Path) -> None:
    checkpoint = ScratchDirectory(OF_QUERIES)
    (checkpoint.path / "offsets").mkdir()
    assert list(place.iterdir()) == [checkpoint.path]
    checkpoint.close()
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_start(place: Path) -> None:
    """As long as its owner lives no other process touches it."""
    with subprocess.Popen(
        [sys.executable, "-c", _OWNER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    ) as owner:
        assert owner.stdout is not None
        left = Path(owner.stdout.readline().strip())
        (left / "offsets").mkdir()
        (left / "offsets" / "0").write_text("v1")
        own = ScratchDirectory(OF_QUERIES)
        assert remove_leftovers(OF_QUERIES) == []
        assert (left / "offsets" / "0").exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert remove_leftovers(OF_QUERIES) == [left]
    assert list(place.iterdir()) == [own.path]
    own.close()


def test_what_only_looks_like_one_stays(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Links lead elsewhere, and a file is no checkpoint."""
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (place / "strandline-query-link").symlink_to(elsewhere)
    (place / "strandline-query-file").touch()
    with caplog.at_level("INFO"):
        assert remove_leftovers(OF_QUERIES) == []
    assert (elsewhere / "precious").exists()
    assert len(caplog.records) == 2


def test_a_directory_that_is_taken_for_a_leftover_is_made_again(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run starts between the making of a directory and the lock on it."""
    make = tempfile.mkdtemp
    taken: list[Path] = []

    def make_and_lose(prefix: str) -> str:
        made = make(prefix=prefix)
        if not taken:
            taken.extend(remove_leftovers(OF_QUERIES))
        return made

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    checkpoint = ScratchDirectory(OF_QUERIES)
    assert len(taken) == 1
    assert checkpoint.path.exists()
    assert checkpoint.path not in taken
    checkpoint.close()


_SPARK = """
import sys
from pyspark import SparkContext
from strandline.lakehouse.session import session
from strandline.lakehouse.session_lasting import LastingSession
with LastingSession(lambda: session(master="local[1]", memory="512m", log_level="OFF")) as lasting:
    frame = lasting.spark.range(10).repartition(2)
    frame.write.parquet(sys.argv[1])
    SparkContext._gateway.proc.kill()
    SparkContext._gateway.proc.wait()
    lasting.maybe_renew()
    lasting.spark.range(10).repartition(2).count()
ended = SparkContext._gateway.proc
ended.stdin.close()
ended.wait()
"""


def test_spark_leaves_no_temporary_files_whether_its_jvm_is_killed_or_stopped(place: Path) -> None:
    """What it unpacks, spills and shuffles."""
    temporary = place / "temporary"
    temporary.mkdir()
    subprocess.run(
        [sys.executable, "-c", _SPARK, str(place / "table")],
        env={**os.environ, "TMPDIR": str(temporary)},
        check=True,
    )
    assert list(temporary.iterdir()) == []
