"""What keeps a table fast: small files joined, files without a use deleted.

Theory: joining is a commit like any other, on the very table that was read (`replacing`), so that
it can neither lose nor double a row. What becomes one file is a part that may be joined elsewhere
(`parts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import Backend, DataFile, Snapshot
from strandline.lakehouse.tables.committing import Committer
from strandline.lakehouse.tables.definition import STAGING, TableSpec
from strandline.lakehouse.tables.files import PartitionedFiles, remove_files
from strandline.lakehouse.tables.history import COMPACTION
from strandline.lakehouse.tables.parts import Carrier, here
from strandline.lakehouse.tables.presence import check_present
from strandline.lakehouse.tables.reading import read_batches, stored_columns
from strandline.lakehouse.tables.removals import drop_notes
from strandline.lakehouse.tables.replacing import Replaced, Replacing
from strandline.lakehouse.tables.settling import SIDES, SideTables
from strandline.lakehouse.tables.written import WrittenFile, by_partition


class CompactionResult(NamedTuple):
    """How many files became how many, and the bytes of the former.

    All 0: nothing was worth it, or all of it was replaced by others meanwhile.
    """

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0


class Maintenance:
    """Compaction and vacuum of one table and its side tables."""

    def __init__(
        self, spec: TableSpec, backend: Backend, sides: SideTables, committer: Committer
    ) -> None:
        self._spec = spec
        self._backend = backend
        self._sides = sides
        self._committer = committer
        self._replacing = Replacing(spec, backend, sides, committer)
        self.carrier: Carrier = here
        """Where files are joined."""

    def compact(self, *, target_bytes: int, min_files: int) -> CompactionResult:
        """As `TableStore.compact`."""
        snapshot = self._committer.settled()
        joined: list[Replaced] = []
        try:
            for side in (None, *SIDES):
                present = snapshot if side is None else self._sides.load(side)
                if present is not None:
                    joined += self._join(side, present, target_bytes, min_files)
        except BaseException:
            self._replacing.forget(joined)
            raise
        if joined:
            joined = self._replacing.commit(snapshot, joined, COMPACTION, same_rows=True)
        return CompactionResult(
            sum(len(item.removes) for item in joined),
            sum(len(item.adds) for item in joined),
            sum(file.size for item in joined for file in item.removes),
        )

    def vacuum(self, *, before_ms: int, dry_run: bool) -> list[str]:
        """As `TableStore.vacuum`."""
        found = self._backend.orphans(self._committer.settled(), before_ms=before_ms)
        for side in SIDES:
            present = self._sides.load(side)
            if present is not None:
                found += self._sides.backend(side).orphans(present, before_ms=before_ms)
        found += _left_behind(self._spec.directory(STAGING), before_ms)
        if not dry_run:
            for path in found:
                stores.remove(path)
            for each in (None, *SIDES):
                drop_notes(self._spec.directory(each), before_ms=before_ms)
        return [str(path) for path in found]

    def _join(
        self, side: str | None, snapshot: Snapshot, target_bytes: int, min_files: int
    ) -> list[Replaced]:
        chosen = bins(snapshot.files(), target_bytes=target_bytes, min_files=min_files)
        removes = [file for files in chosen for file in files]
        check_present(removes)
        schema = stored_columns(self._spec, side, snapshot.schema)
        directory = self._spec.directory(side)
        made = self.carrier(
            join_files,
            [Bin(directory, tuple(files), schema) for files in chosen],
            size=sum(file.size for file in removes),
            undo=partial(remove_files, directory),
        )
        return [
            Replaced(side, files, list(files_made))
            for files, files_made in zip(chosen, made, strict=True)
        ]


class Bin(NamedTuple):
    """Files of one partition value that become one, or few, in the columns of `schema`."""

    directory: Location
    files: tuple[DataFile, ...]
    schema: pa.Schema


def join_files(part: Bin) -> tuple[WrittenFile, ...]:
    """Write a bin's rows again; belonging to nothing until a commit."""
    # Divided by nothing: the files of a bin have one partition value, which is kept.
    with PartitionedFiles(part.directory, (), "compact") as output:
        for batch in read_batches([each.path for each in part.files], part.schema):
            output.write(batch)
        return tuple(each.placed(part.files[0].partition) for each in output.finish())


def _left_behind(directory: Location, before_ms: int) -> list[Location]:
    """What killed runs left on its way to a transform."""
    found = [each for batch in stores.directories(directory) for each in stores.listed(batch)]
    return [each.location for each in found if each.at_ms < before_ms]


def bins(files: Iterable[DataFile], *, target_bytes: int, min_files: int) -> list[list[DataFile]]:
    """Small files of one partition value each, together at most about `target_bytes`."""
    small = (item for item in files if item.size < target_bytes)
    found: list[list[DataFile]] = []
    for group in by_partition(small).values():
        current: list[DataFile] = []
        total = 0
        for item in sorted(group, key=lambda file: file.path):
            if current and total + item.size > target_bytes:
                found.append(current)
                current, total = [], 0
            current.append(item)
            total += item.size
        found.append(current)
    return [item for item in found if len(item) >= max(2, min_files)]
