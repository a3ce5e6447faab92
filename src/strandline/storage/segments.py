"""The segments of one log in order, and the files that are on their way out.

This file knows which segments there are, how to find the one for an offset, and that files go in
two steps: they are renamed to `.deleted` at once, so that a restart does not take them for data,
and removed after `file.delete.delay.ms`, so that a slow reader can finish. It must not know why a
segment is dropped.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from strandline.errors import InvariantViolated
from strandline.storage.files import Files
from strandline.storage.segment import Segment
from strandline.storage.segment_names import DELETED, SEGMENT_FILES
from strandline.storage.transaction_index import AbortedTransaction


@dataclass(slots=True, eq=False)
class Removal:
    """Files that were renamed away and go at `due_ms`."""

    due_ms: int
    paths: tuple[str, ...]
    segment: Segment | None
    is_under_way: bool = False


class Segments:
    """Never empty once a log is loaded; base offsets strictly increase (I-02).

    `active` is the last one, to which appends go: `activate` names it when it is ready for them.
    `removals` are files that were renamed away and wait to be removed.
    """

    __slots__ = ("_bases", "_segments", "_with_aborts", "active", "removals")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = [segment.base_offset for segment in self._segments]
        self._with_aborts: list[Segment] | None = None
        """Those with a transaction index, which few of thousands have; None: to be looked for."""
        self.active: Segment
        self.removals: list[Removal] = []

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def all(self) -> Sequence[Segment]:
        """Oldest first; not to be changed."""
        return self._segments

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def last(self) -> Segment:
        return self._segments[-1]

    @property
    def base_offsets(self) -> Sequence[int]:
        return self._bases

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    def add(self, segment: Segment) -> None:
        """Put a segment behind all others."""
        if self._bases and segment.base_offset <= self._bases[-1]:
            raise InvariantViolated(
                f"A segment at {segment.base_offset} cannot follow one at {self._bases[-1]}."
            )
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self._with_aborts = None

    def activate(self, segment: Segment) -> None:
        """Have appends go to the last segment."""
        if segment is not self._segments[-1]:
            raise InvariantViolated(f"The segment at {segment.base_offset} is not the last.")
        self.active = segment

    def insert(self, segment: Segment) -> None:
        """Put a segment where compaction took others away."""
        index = bisect_left(self._bases, segment.base_offset)
        self._segments.insert(index, segment)
        self._bases.insert(index, segment.base_offset)
        self._with_aborts = None

    def index_of(self, offset: int) -> int:
        """The index of the segment whose range holds `offset`: the first for one below all."""
        return max(0, bisect_right(self._bases, offset) - 1)

    def since(self, offset: int) -> list[Segment]:
        """The segments that may hold `offset` or what comes after it."""
        return self._segments[self.index_of(offset) :]

    def with_aborts_since(self, offset: int) -> list[Segment]:
        """Those of `since` with aborted transactions, at least."""
        found = self._with_aborts
        if found is None:
            found = self._with_aborts = [
                each for each in self._segments if each.transaction_index.file is not None
            ]
        if not found:
            return found
        first = self._bases[self.index_of(offset)]
        return [each for each in found if each.base_offset >= first]

    def index_abort(self, segment: Segment, aborted: AbortedTransaction) -> None:
        """Write an aborted transaction into the index of one of them. Raises `StorageError`."""
        if segment.transaction_index.file is None:
            segment.synced_names = False  # the file gets its name now
        segment.transaction_index.append(aborted)
        self._with_aborts = None

    def above(self, offset: int) -> list[Segment]:
        """The segments with a base offset greater than `offset`."""
        return self._segments[bisect_right(self._bases, offset) :]

    def forget(self, segments: Iterable[Segment]) -> None:
        """Take segments out of the list; their files are the caller's affair."""
        for segment in list(segments):
            index = bisect_left(self._bases, segment.base_offset)
            del self._segments[index], self._bases[index]
        self._with_aborts = None

    def retire(self, files: Files, segments: Iterable[Segment], due_ms: int) -> None:
        """Drop segments in the given order, and have their files removed at `due_ms`.

        The order matters if it is interrupted: what is left must have no hole.
        """
        for segment in list(segments):
            paths = []
            for kind in SEGMENT_FILES:
                path = segment.path(kind)
                if files.exists(path):
                    files.rename(path, path + DELETED)
                    paths.append(path + DELETED)
            segment.moved_to(segment.directory, DELETED)
            self.forget([segment])
            self.removals.append(Removal(due_ms, tuple(paths), segment))

    def retire_files(self, paths: Iterable[str], due_ms: int) -> None:
        """Have files that were already renamed removed at `due_ms`."""
        paths = tuple(paths)
        if paths:
            self.removals.append(Removal(due_ms, paths, None))

    def take_due(self, now_ms: int, at_most: int) -> list[Removal]:
        """The retired files whose time has come, to be removed in any thread; then `settle`."""
        due = islice(
            (each for each in self.removals if each.due_ms <= now_ms and not each.is_under_way),
            at_most,
        )
        taken = list(due)
        for removal in taken:
            removal.is_under_way = True
            if removal.segment is not None:
                removal.segment.close()
        return taken

    def settle(self, taken: Iterable[Removal], *, is_done: bool) -> None:
        """Forget what was removed, or have what could not be removed taken again."""
        for removal in taken:
            removal.is_under_way = False
        if is_done:
            done = set(taken)
            self.removals = [each for each in self.removals if each not in done]

    def moved_to(self, directory: str) -> None:
        """Tell that the directory of the partition was renamed."""
        for segment in self._segments:
            segment.moved_to(directory)
        for removal in self.removals:
            removal.paths = tuple(_inside(directory, path) for path in removal.paths)
            if removal.segment is not None:
                removal.segment.moved_to(directory, DELETED)

    def close(self) -> None:
        """Give all handles up without writing anything."""
        for segment in self._segments:
            segment.close()
        for removal in self.removals:
            if removal.segment is not None:
                removal.segment.close()


def _inside(directory: str, path: str) -> str:
    return directory + path[path.rindex("/") :]
