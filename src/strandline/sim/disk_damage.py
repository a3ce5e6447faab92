"""Damage to files that the broker does not see happen: bit rot, and files deleted by hand.

This file knows which files a log directory holds by their names, and changes what is durable. It
must not know what the broker makes of it. Each function says what it did, or gives None when there
was nothing to do it to. They are meant for a disk whose process is down, except `rot`, which can
happen at any time to what is not in the page cache as new.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final, NamedTuple

from strandline.records.batch import LOG_OVERHEAD
from strandline.sim.checkers.batches import header_fields
from strandline.storage.clean_shutdown import FILE_NAME as CLEAN_MARKER
from strandline.storage.files import join, name_of, parent_of
from strandline.storage.memory_files import MemoryFiles
from strandline.storage.memory_inodes import PAGE_BYTES, Contents, Directory
from strandline.storage.segment_names import LOG

UNCOVERED_BYTES: Final = 17
"""Of each batch, in front of its checksum."""


class Damage(NamedTuple):
    """What was done, and to which file."""

    path: str
    sentence: str


def files_with(files: MemoryFiles, path_part: str) -> list[tuple[str, Contents]]:
    """Every file whose path contains the text, in order of paths."""
    return [(path, found) for path, found in _below(files.root, "") if path_part in path]


def rot(files: MemoryFiles, path_part: str, random: Random) -> Damage | None:
    """Flip one bit that is on disk (F-50, F-51), in a log one that a checksum covers."""
    found = [
        (path, contents, pages)
        for path, contents in files_with(files, path_part)
        if (pages := _settled_pages(contents))
    ]
    if not found:
        return None
    path, contents, pages = random.choice(found)
    page = random.choice(pages)
    at, bit = random.randrange(page.start, page.stop), random.randrange(8)
    if path.endswith(LOG):
        at = _into_the_checksum(contents.data, at)
    contents.data[at] ^= 1 << bit
    return Damage(path, f"bit {bit} of byte {at} of {path} flips")


def _into_the_checksum(data: bytearray, at: int) -> int:
    """That place in a file of batches, or the next one that a checksum covers.

    Offset, length, leader epoch and magic of a batch stand in front of it. If they rot,
    a follower believes them, too, and the checkers cannot tell damage from a bug.
    """
    position = 0
    while position <= at and (fields := header_fields(data, position)) is not None:
        if at < position + UNCOVERED_BYTES:
            return position + UNCOVERED_BYTES
        position += fields[1] + LOG_OVERHEAD
    return at


def lose_file(files: MemoryFiles, path_part: str, random: Random) -> Damage | None:
    """Remove a file (F-55)."""
    found = files_with(files, path_part)
    if not found:
        return None
    path, _ = random.choice(found)
    _forget(files, path)
    return Damage(path, f"{path} is gone")


def lose_partition(files: MemoryFiles, path: str, random: Random) -> Damage | None:
    """Remove one of the directories in another one, with all that is in it."""
    parent = files.find(path)
    if not isinstance(parent, Directory):
        return None
    names = sorted(name for name, node in parent.names.items() if isinstance(node, Directory))
    if not names:
        return None
    lost = join(path, random.choice(names))
    _forget(files, lost)
    return Damage(lost, f"{lost} is gone")


def lose_contents(files: MemoryFiles, path: str) -> Damage | None:
    """Leave a directory empty, as a mount point without its volume."""
    found = files.find(path)
    if not isinstance(found, Directory) or not found.names:
        return None
    found.change(*((name, None) for name in sorted(found.names)))
    found.sync()
    return Damage(path, f"{path} is empty")


def cut_file(files: MemoryFiles, path_part: str, random: Random) -> Damage | None:
    """Make a file shorter (F-55)."""
    found = [(path, contents) for path, contents in files_with(files, path_part) if contents.data]
    if not found:
        return None
    path, contents = random.choice(found)
    size = random.randrange(len(contents.data))
    contents.truncate(size)
    contents.sync()
    return Damage(path, f"{path} is cut to {size} bytes")


def restore_older(
    files: MemoryFiles, older: Mapping[str, Sequence[bytes]], path_part: str, random: Random
) -> Damage | None:
    """Put one of its older contents in the place of a file (F-54)."""
    now = {path: bytes(contents.data) for path, contents in files_with(files, path_part)}
    found = [
        (path, copy) for path in sorted(now) for copy in older.get(path, ()) if copy != now[path]
    ]
    if not found:
        return None
    path, copy = random.choice(found)
    _put(files, path, copy)
    return Damage(path, f"{path} is as it was earlier, {len(copy)} bytes")


def forget_clean_marker(files: MemoryFiles, data_dir: str) -> Damage | None:
    """Remove the marker of a clean shutdown: the next start finds a crash."""
    path = join(data_dir, CLEAN_MARKER)
    if files.find(path) is None:
        return None
    _forget(files, path)
    return Damage(path, f"{path} is gone")


def forge_clean_marker(files: MemoryFiles, data_dir: str, contents: bytes) -> Damage | None:
    """Say that the last shutdown was clean; None if it says so already."""
    path = join(data_dir, CLEAN_MARKER)
    if files.find(path) is not None or files.find(data_dir) is None:
        return None
    _put(files, path, contents)
    return Damage(path, f"{path} is there, and says what is not true")


def _below(directory: Directory, path: str) -> Iterator[tuple[str, Contents]]:
    for name, node in sorted(directory.names.items()):
        if isinstance(node, Directory):
            yield from _below(node, f"{path}/{name}")
        else:
            yield f"{path}/{name}", node


def _settled_pages(contents: Contents) -> list[range]:
    """The stretches whose bytes are on disk and not newer in memory."""
    end = min(len(contents.data), contents.durable_size)
    return [
        range(at, min(at + PAGE_BYTES, end))
        for at in range(0, end, PAGE_BYTES)
        if at // PAGE_BYTES not in contents.before
    ]


def _forget(files: MemoryFiles, path: str) -> None:
    parent = files.find(parent_of(path))
    if isinstance(parent, Directory):
        parent.change((name_of(path), None))
        parent.sync()


def _put(files: MemoryFiles, path: str, data: bytes) -> None:
    parent = files.find(parent_of(path))
    if isinstance(parent, Directory):
        contents = Contents(bytearray(data), len(data), len(data), modified_ms=files.now_ms)
        parent.change((name_of(path), contents))
        parent.sync()
