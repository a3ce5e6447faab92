"""Log directories at the start of a broker: made durably, and what their markers say."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from strandline.node.log_directories import UNKNOWN_EPOCH, LogDirectories
from strandline.storage.clean_shutdown import CleanShutdown, HeldLogs, write_marker
from strandline.storage.durable_directory import make_durably
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId


def test_a_new_directory_survives_a_power_failure() -> None:
    files = MemoryFiles()
    files.make_directory("/disk")
    files.sync_directory("/")
    make_durably(files, "/disk/data/broker-1")
    assert files.crash_clone().is_directory("/disk/data/broker-1")


def test_a_relative_name_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_durably(RealFiles(), "data")
    make_durably(RealFiles(), "data")
    assert (tmp_path / "data").is_dir()


@pytest.mark.parametrize(
    ("epochs", "previous"),
    [
        ((7, 7), 7),
        ((7, 8), UNKNOWN_EPOCH),
        ((7, None), UNKNOWN_EPOCH),
        ((None, None), UNKNOWN_EPOCH),
    ],
)
def test_the_previous_epoch_is_known_if_all_directories_agree(
    epochs: tuple[int | None, ...], previous: int
) -> None:
    files = MemoryFiles()
    paths = [f"/{number}" for number in range(len(epochs))]
    for path, epoch in zip(paths, epochs, strict=True):
        files.make_directory(path)
        if epoch is not None:
            write_marker(files, path, CleanShutdown(epoch))
    directories = LogDirectories(files, paths, Random(1))
    directories.open(BrokerId(1), "cluster")
    assert directories.previous_epoch == previous


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (({0}, {1, 2}), {0, 1, 2}),
        ((set(), set()), set()),
        (({0}, None), None),  # of Kafka, or of an earlier version
    ],
)
def test_the_logs_that_were_there_are_known_if_every_directory_tells_its_own(
    held: tuple[set[int] | None, ...], expected: set[int] | None
) -> None:
    files = MemoryFiles()
    paths = [f"/{number}" for number in range(len(held))]
    topic_id = UUID(int=1)

    def logs(numbers: set[int] | None) -> HeldLogs | None:
        return None if numbers is None else frozenset((topic_id, each) for each in numbers)

    for path, numbers in zip(paths, held, strict=True):
        files.make_directory(path)
        write_marker(files, path, CleanShutdown(7, logs=logs(numbers)))
    directories = LogDirectories(files, paths, Random(1))
    directories.open(BrokerId(1), "cluster")
    assert directories.held == logs(expected)
