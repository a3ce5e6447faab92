"""What the commands about files of tables share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from strandline.cli.client_config import take_client_config
from strandline.cli.table_create import first_of_registry
from strandline.cli.table_options import bootstrap_of
from strandline.lakehouse.service.changes import Plan, plan_of
from strandline.lakehouse.tables.errors import TableMissing
from strandline.lakehouse.tables.spec import load_spec

if TYPE_CHECKING:
    from strandline.cli.tables_file import ServiceFile, TableEntry

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


def load_file(path: Path) -> ServiceFile:
    """The file, with its settings of clients taken. Raises `click.UsageError`."""
    from strandline.cli.tables_file import load_service

    found = load_service(path)
    if found.client_config is not None:
        try:
            take_client_config(found.client_config)
        except click.UsageError as wrong:
            raise click.UsageError(f"{path}: client-config: {wrong.message}") from wrong
    return found


def brokers_of(file: ServiceFile, given: str | None) -> str:
    """The brokers: of the command line, else of the file, else as for every command."""
    root = click.get_current_context().find_root()
    if given is None and root.get_parameter_source("bootstrap") is not ParameterSource.COMMANDLINE:
        given = file.bootstrap
    return bootstrap_of(given)


def plan_for(entry: TableEntry) -> Plan:
    """What would become of a table. Raises what reading its definition, or a registry, does."""
    try:
        present = load_spec(entry.place / entry.name)
    except TableMissing:
        return plan_of(entry.spec(first_of_registry), None)
    # What the registry knew when the table was made is the table's own since then.
    kept = present.schema, present.message
    return plan_of(entry.spec(lambda *_: kept), present)
