"""A disk that takes no more: what was begun does not stay there, and the file is named."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.files import PartitionedFiles
from strandline.lakehouse.tables.transforms import parse_transform
from tests.alone import run_alone

ROWS = 2_000


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file grows beyond so many bytes: it fails as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fail_to_write(path: str) -> None:
    """A task of which the disk does not take all files."""
    rows = pa.RecordBatch.from_pydict(
        {"k": [0, 1] * (ROWS // 2), "s": [os.urandom(64).hex() for _ in range(ROWS)]}
    )
    directory = Location.parse(Path(path) / "data")
    files = PartitionedFiles(directory, (parse_transform("k"),), "0")

    def write() -> None:
        with files:
            files.write(rows)
            files.finish()

    with at_most(10_000), pytest.raises(OSError, match="File too large") as failed:
        write()
    assert str(failed.value.filename).startswith(f"{path}/data/part-0-")
    assert list((Path(path) / "data").iterdir()) == []


def fail_to_define(path: str) -> None:
    """A definition that the disk does not take, and then one that it does."""
    directory = Path(path)
    file = Location.parse(directory / "table.json")
    for write in (stores.create_text, stores.replace_text):
        with at_most(10), pytest.raises(OSError, match="File too large") as failed:
            write(file, "a definition")
        assert failed.value.filename == str(file)
        assert list(directory.iterdir()) == []
    stores.create_text(file, "a definition")
    with at_most(10), pytest.raises(OSError, match="File too large"):
        stores.replace_text(file, "another definition")
    assert stores.read_text(file) == "a definition"
    assert list(directory.iterdir()) == [file.local]


# The limit is that of a whole process, whose other threads write files as well.


def test_files_of_a_task_that_failed_are_removed(tmp_path: Path) -> None:
    """Each of its attempts left them, and a run that tried again filled what was left."""
    run_alone(fail_to_write, str(tmp_path))


def test_a_definition_is_whole_or_not_there(tmp_path: Path) -> None:
    """An empty one was left, which made each command about each table fail."""
    run_alone(fail_to_define, str(tmp_path))
