"""What is done with locations: files read and written whole, listed, removed.

Theory: one way for all of them, pyarrow's file systems. In a store a file is there when its writer
has closed it, and not before, so no file is ever renamed. What is written to a disk is synced.
What pyarrow cannot is to make a file only if there is none, in one step, which a store must do by
itself (`create_text`): a Delta table's log hangs on it (`conditions`).

Raises StoreTrouble throughout for what a store refuses, and OSError for local disks.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from strandline.lakehouse.locations.credentials import (
    bucket_of,
    for_arrow,
    for_obstore,
    public_settings,
)
from strandline.lakehouse.locations.errors import StoreTrouble, sentence, told
from strandline.lakehouse.locations.location import Location

BY_CONDITION: Final = ("s3", "gs", "abfs")
"""Stores that can be asked to make a file only if there is none."""


class Entry(NamedTuple):
    """A file in a listing; `at_ms` is when it was written last."""

    location: Location
    size: int
    at_ms: int


def file_system(location: Location) -> pafs.FileSystem:
    """pyarrow's way to it; one per process and store. Raises StoreTrouble, InvalidSetting."""
    if location.is_local:
        return _local()
    where = replace(location, path="/")
    with told(location, "opened"):
        return _remote(where, tuple(public_settings().items()))


def path_of(location: Location) -> str:
    """What pyarrow's file system calls it."""
    if location.scheme in ("file", "hdfs"):
        return location.path
    return f"{bucket_of(location)}{location.path}".rstrip("/")


def sizes(files: Iterable[Location]) -> list[int | None]:
    """The sizes of files of one store in bytes; None for those that are not there."""
    wanted = list(files)
    if not wanted:
        return []
    with told(wanted[0], "looked at"):
        found = file_system(wanted[0]).get_file_info([path_of(each) for each in wanted])
    return [each.size if each.type == pafs.FileType.File else None for each in found]


def exists(location: Location) -> bool:
    """Whether there is a file, or a directory with anything in it."""
    with told(location, "looked at"):
        found = file_system(location).get_file_info(path_of(location))
    return bool(found.type != pafs.FileType.NotFound)


def listed(directory: Location) -> list[Entry]:
    """The files in a directory, by name; none if there is no directory."""
    return [
        Entry(directory / each.base_name, each.size, each.mtime_ns // 1_000_000)
        for each in _infos(directory)
        if each.type == pafs.FileType.File
    ]


def directories(directory: Location) -> list[Location]:
    """The directories in a directory, by name."""
    return [
        directory / each.base_name
        for each in _infos(directory)
        if each.type == pafs.FileType.Directory
    ]


def read_text(file: Location) -> str:
    """The text of a file. Raises FileNotFoundError, NotADirectoryError, UnicodeDecodeError."""
    if file.is_local:
        return file.local.read_text(encoding="utf-8")
    try:
        with told(file, "read"), file_system(file).open_input_stream(path_of(file)) as stream:
            return bytes(stream.read()).decode("utf-8")
    except FileNotFoundError:
        _check_bucket(file)
        raise


def replace_text(file: Location, text: str) -> None:
    """Make a file, or put another in its place, in one step that lasts."""
    if not file.is_local:
        with told(file, "written"), file_system(file).open_output_stream(path_of(file)) as stream:
            stream.write(text.encode())
        return
    made = file.local.with_name(f".{file.name}.{os.getpid()}")
    try:
        with told(file, "written"), made.open("w", encoding="utf-8") as output:
            output.write(text)
            output.flush()
            os.fsync(output.fileno())
        made.replace(file.local)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    sync(file.parent)


def create_text(file: Location, text: str) -> None:
    """Make a file if there is none, in one step where the store can. Raises FileExistsError."""
    if file.is_local:
        file.local.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file.local, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            with told(file, "written"), os.fdopen(handle, "w", encoding="utf-8") as output:
                output.write(text)
                output.flush()
                os.fsync(output.fileno())
        except BaseException:
            file.local.unlink()  # an empty one would be taken for what was to be in it
            raise
    elif file.scheme in BY_CONDITION:
        _put_new(file, text.encode())
    else:
        if exists(file):
            raise FileExistsError(str(file))
        replace_text(file, text)


def remove(file: Location) -> bool:
    """Remove a file; whether it was there, as far as the store says."""
    if file.is_local:
        there = file.local.exists()
        file.local.unlink(missing_ok=True)
        return there
    if file.scheme in BY_CONDITION:
        # pyarrow would leave an empty file in the place of the directory.
        return _delete(file)
    try:
        with told(file, "removed"):
            file_system(file).delete_file(path_of(file))
    except FileNotFoundError:
        return False
    return True


def remove_tree(directory: Location) -> None:
    """Remove a directory with all that is in it."""
    if directory.is_local:
        shutil.rmtree(directory.local)
        return
    if directory.scheme in BY_CONDITION:
        _delete_below(directory)
        return
    with told(directory, "removed"):
        file_system(directory).delete_dir(path_of(directory))


def make_directory(directory: Location) -> None:
    """Make a directory with its parents; a store has none."""
    if directory.is_local:
        directory.local.mkdir(parents=True, exist_ok=True)


def sync(location: Location) -> None:
    """Let a file, or the names in a directory, outlast a power failure; a store does by itself."""
    if not location.is_local:
        return
    handle = os.open(location.local, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def parquet(file: Location) -> Iterator[pq.ParquetFile]:
    """A Parquet file, open; errors of the store while it is read are told too."""
    with (
        told(file, "read"),
        pq.ParquetFile(
            path_of(file), filesystem=None if file.is_local else file_system(file)
        ) as opened,
    ):
        yield opened


def dataset(files: Sequence[Location], schema: pa.Schema) -> pads.Dataset:
    """The rows of Parquet files of one store, in the columns of `schema`."""
    first = files[0]
    return pads.dataset(
        [path_of(each) for each in files],
        schema=schema,
        format="parquet",
        filesystem=None if first.is_local else file_system(first),
    )


def probe(directory: Location) -> float:
    """Write, read, list and remove a file below a directory; the seconds that it took."""
    began = time.monotonic()
    name = f".strandline-probe-{uuid.uuid4().hex}"
    make_directory(directory)
    replace_text(directory / name, name)
    try:
        if read_text(directory / name) != name:
            raise StoreTrouble(f"{directory} gave other bytes back than it was given.")
        if name not in [each.location.name for each in listed(directory)]:
            raise StoreTrouble(f"{directory} does not list a file that was just written to it.")
    finally:
        remove(directory / name)
    return time.monotonic() - began


def _infos(directory: Location) -> list[Any]:
    selector = pafs.FileSelector(path_of(directory), allow_not_found=True)
    with told(directory, "listed"):
        found = file_system(directory).get_file_info(selector)
    if not found:
        _check_bucket(directory)
    return sorted(found, key=lambda each: each.base_name)


def _check_bucket(location: Location) -> None:
    """That what seems empty is there at all: to most calls, an absent bucket is an empty one."""
    if location.scheme not in BY_CONDITION:
        return
    with told(location, "read"):
        if exists(replace(location, path="/")):
            return
    raise StoreTrouble(sentence(location, "read", OSError("NoSuchBucket")))


def _put_new(file: Location, content: bytes) -> None:
    import obstore
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        obstore.put(_objects(file), file.path.lstrip("/"), content, mode="create")
    except AlreadyExistsError:
        raise FileExistsError(str(file)) from None
    except (BaseError, OSError) as error:
        raise StoreTrouble(sentence(file, "written", error)) from error


def _delete(file: Location) -> bool:
    import obstore
    from obstore.exceptions import BaseError, NotFoundError

    try:
        obstore.delete(_objects(file), file.path.lstrip("/"))
    except (NotFoundError, FileNotFoundError):
        return False
    except (BaseError, OSError) as error:
        raise StoreTrouble(sentence(file, "removed", error)) from error
    return True


def _delete_below(directory: Location) -> None:
    import obstore
    from obstore.exceptions import BaseError

    store = _objects(directory)
    try:
        for found in obstore.list(store, prefix=directory.path.strip("/") + "/"):
            obstore.delete(store, [each["path"] for each in found])
    except (BaseError, OSError) as error:
        raise StoreTrouble(sentence(directory, "removed", error)) from error


def _objects(location: Location) -> Any:
    """obstore's way to a bucket, for what pyarrow cannot do."""
    return _bucket(replace(location, path="/"), tuple(public_settings().items()))


@lru_cache(maxsize=16)
def _bucket(store: Location, settings: tuple[tuple[str, str], ...]) -> Any:
    from obstore.store import from_url

    del settings  # as in `_remote`
    scheme = {"s3": "s3", "gs": "gs", "abfs": "az"}[store.scheme]
    return from_url(f"{scheme}://{bucket_of(store)}", **for_obstore(store))


@lru_cache(maxsize=1)
def _local() -> pafs.FileSystem:
    return pafs.LocalFileSystem()


@lru_cache(maxsize=16)
def _remote(store: Location, settings: tuple[tuple[str, str], ...]) -> pafs.FileSystem:
    del settings  # part of the key: another address is another store
    kind, arguments = for_arrow(store)
    try:
        made = getattr(pafs, kind)
    except ImportError as error:
        raise OSError(f"pyarrow was built without {kind}.") from error
    return made(**arguments)
