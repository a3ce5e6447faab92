"""Segments whose records have no timestamp: their time index is empty, and whole."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.config.topic import TopicConfig
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.segment_names import REBUILT, TIME_INDEX
from tests.storage.conftest import World


@pytest.mark.parametrize("timestamps", [(-1, -1, -1), (-1, 5_000, -1)])
def test_an_index_without_an_entry_is_made_anew_only_if_it_should_have_one(
    kit: Any, timestamps: tuple[int, ...]
) -> None:
    """Each start made it anew in the node's turn, and synced it twice."""
    world = World(MemoryFiles(), "/data", "memory")
    files = world.files
    assert isinstance(files, MemoryFiles)
    log = world.create(TopicConfig())
    for timestamp in timestamps:
        kit.append(log, b"x", timestamp=timestamp)
    log.roller.roll(kit.now_ms)
    path = log.segments.first.path(TIME_INDEX)
    log.close_clean()
    is_lost = max(timestamps) > 0
    if is_lost:
        index = files.open(path)
        index.truncate(0)
        index.close()
    changes: list[str] = []
    files.on_call = lambda operation, path: changes.append(f"{operation} {path}")
    log = world.load(clean=True, recovery_point=len(timestamps))
    assert log.segments.first.largest_timestamp().timestamp == max(timestamps)
    files.on_call = None
    assert any(path + REBUILT in each for each in changes) == is_lost
