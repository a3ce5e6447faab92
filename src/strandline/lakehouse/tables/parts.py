"""Where parts of a work on files are carried out that do not depend on one another.

Theory: joining small files, merging changes into buckets, writing a table again with other columns
and reading dead letters again read and write files, and come apart into parts that share no file.
What asks for a work says how; where is decided by the process: in this one, part by part, or in
tasks of Spark (`pipeline.parts_in_spark`). Only the description of a part and the list of its files
travel. The commit is made by the one that asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

Part = TypeVar("Part")
Done = TypeVar("Done")


class Sized(Protocol):
    """A file."""

    @property
    def size(self) -> int: ...


_File = TypeVar("_File", bound=Sized)
SMALL_BYTES: Final = 32 << 20
"""Less than this is read and written here before Spark has started its tasks."""
PORTION_BYTES: Final = 64 << 20
"""About as much as one task reads, where files may be divided among tasks at will."""


def portions(files: Iterable[_File], most: int = PORTION_BYTES) -> Iterator[list[_File]]:
    """Files in groups of so many bytes, if not a single one has more."""
    group: list[_File] = []
    size = 0
    for each in files:
        if group and size + each.size > most:
            yield group
            group, size = [], 0
        group.append(each)
        size += each.size
    if group:
        yield group


class Carrier(Protocol):
    """Carries out parts; what it gives is in their order."""

    def __call__(
        self,
        work: Callable[[Part], Done],
        parts: Sequence[Part],
        *,
        size: int,
        undo: Callable[[Done], object],
    ) -> list[Done]:
        """`size` is about how many bytes are read. If a part fails, the others are undone.

        `work` is a function of a module, and parts can be pickled.
        """


def here(
    work: Callable[[Part], Done],
    parts: Sequence[Part],
    *,
    size: int,
    undo: Callable[[Done], object],
) -> list[Done]:
    """In this process, one part after the other."""
    del size
    done: list[Done] = []
    try:
        for part in parts:
            done.append(work(part))  # noqa: PERF401 -- what was done is needed when one fails
    except BaseException:
        for each in done:
            undo(each)
        raise
    return done
