"""`strandline dump`: what the files of a data directory say, and whether it can be right.

This file finds out what a file is and prints what the readers (`dump_log`, `dump_indexes`,
`dump_tables`) yield. Nothing is changed on disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Final

import click

from strandline.cli.connecting import json_option
from strandline.cli.dump_indexes import dump_offset_index, dump_time_index, dump_transaction_index
from strandline.cli.dump_items import Item, Problem, Reading
from strandline.cli.dump_log import dump_log
from strandline.cli.dump_tables import TABLES, dump_snapshot
from strandline.cli.output import json_text
from strandline.cli.stopping import ends_with_its_reader
from strandline.errors import StorageError
from strandline.storage.real_files import RealFiles
from strandline.storage.segment_names import (
    DELETED,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    parse_segment_name,
)

_BY_KIND: Final = {
    LOG: dump_log,
    OFFSET_INDEX: dump_offset_index,
    TIME_INDEX: dump_time_index,
    TRANSACTION_INDEX: dump_transaction_index,
    SNAPSHOT: dump_snapshot,
}


@click.command()
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option("--records", "with_records", is_flag=True, help="Also every record of a .log file.")
@click.option(
    "--verify",
    is_flag=True,
    help="Also read every record, and compare a segment's indexes with its batches.",
)
@json_option
def dump(paths: tuple[str, ...], with_records: bool, verify: bool, as_json: bool) -> None:
    """Print FILEs of a data directory, or all such files of a directory, and check them.

    Reads .log, .index, .timeindex, .txnindex and .snapshot files, offset checkpoints,
    leader-epoch-checkpoint, partition.metadata and meta.properties; of a directory all but those
    on their way out (.deleted). Checksums and order are always checked. Ends with 1 if something
    is wrong, after saying where.
    """
    files = RealFiles()
    problems = 0
    given = [each for path in paths for each in _expand(path)]
    with ends_with_its_reader():
        for path in given:
            if not as_json:
                click.echo(f"{path}:")
            reading = Reading(
                files=files, path=os.path.abspath(path), with_records=with_records, verify=verify
            )
            for found in _read(reading):
                problems += isinstance(found, Problem)
                _print(path, found, as_json)
    if problems:
        raise click.exceptions.Exit(1)


def _expand(path: str) -> list[str]:
    if not os.path.exists(path):
        raise click.UsageError(f"There is no file or directory '{path}'.")
    if not os.path.isdir(path):
        if not _is_known(os.path.basename(path)):
            raise click.UsageError(f"'{path}' is not called like a file of a data directory.")
        return [path]
    found = [os.path.join(path, name) for name in sorted(os.listdir(path)) if _is_in_use(name)]
    if not found:
        below = sorted(each.name for each in os.scandir(path) if _has_files(each))
        hint = f" Name one of those in it: {', '.join(below)}." if below else ""
        raise click.UsageError(f"The directory '{path}' has no files that can be dumped.{hint}")
    return found


def _has_files(entry: os.DirEntry[str]) -> bool:
    """A partition, or the log directory of a broker in that of a cluster."""
    return entry.is_dir() and any(_is_in_use(name) for name in os.listdir(entry.path))


def _is_known(name: str) -> bool:
    return name in TABLES or parse_segment_name(name) is not None


def _is_in_use(name: str) -> bool:
    """What a log reads. Its `.deleted` files are waiting to go, and have no neighbours any more."""
    segment = parse_segment_name(name)
    return name in TABLES if segment is None else segment.suffix != DELETED


def _read(reading: Reading) -> Iterator[Item | Problem]:
    """What the file says; a file that cannot be read is one problem."""
    name = os.path.basename(reading.path)
    segment = parse_segment_name(name)
    reader = TABLES[name] if segment is None else _BY_KIND[segment.kind]
    try:
        yield from reader(reading)
    except StorageError as error:
        yield Problem(str(error))


def _print(path: str, found: Item | Problem, as_json: bool) -> None:
    if as_json:
        if isinstance(found, Problem):
            line: dict[str, object] = {"kind": "problem", "message": found.sentence}
        else:
            line = {"kind": found.kind, **found.fields}
        click.echo(json_text({"file": path, **line}))
    elif isinstance(found, Problem):
        click.echo(f"  PROBLEM {found.sentence}")
        click.echo(f"{path}: {found.sentence}", err=True)
    else:
        shown = "  ".join(f"{name} {_text(value)}" for name, value in found.fields.items())
        indent = "      " if found.kind == "record" else "  "
        click.echo(f"{indent}{found.kind}  {shown}")


def _text(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
