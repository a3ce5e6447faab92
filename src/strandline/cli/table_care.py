"""`strandline table compact`, `widen`, `upgrade` and `drop`."""

from __future__ import annotations

import click

from strandline.cli.client_config import client_config
from strandline.cli.confirming import confirm
from strandline.cli.connecting import bootstrap_option, json_option
from strandline.cli.output import counted, print_json, size_text
from strandline.cli.table_options import (
    bootstrap_of,
    carrying,
    load_table,
    spark_options,
    tables_option,
)
from strandline.client.admin import Admin
from strandline.client.clock import SystemClock
from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.tables.caring import care_for
from strandline.lakehouse.tables.definition import SPEC_VERSION, parse_duration
from strandline.lakehouse.tables.expiring import Expired
from strandline.lakehouse.tables.identity import group_of
from strandline.lakehouse.tables.names import NAMES
from strandline.lakehouse.tables.store import drop_table, open_store
from strandline.lakehouse.tables.upkeep import check_upkeep

_MIB = 1 << 20
_PATIENCE_MS = 10_000


@click.command()
@click.argument("name")
@click.option(
    "--target",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    metavar="MIB",
    help="How large joined files may become.",
)
@click.option(
    "--vacuum",
    metavar="DURATION",
    help="Then delete files that no table names and that are older than this: '7 days'. "
    "[default: as the table says]",
)
@spark_options
@tables_option
@json_option
def compact(
    name: str,
    target: int,
    vacuum: str | None,
    spark: SparkOptions,
    tables: Location,
    as_json: bool,
) -> None:
    """Join small files of the table NAME. Readers and a running pipeline are not disturbed.

    Then comes what the table's settings ask for: rows that are too old go, and files that no
    version needs. `strandline table explain NAME` says beforehand what that will be. Spark is
    started for a large table.
    """
    spec = load_table(tables, name)
    try:
        older_than_ms = None if vacuum is None else parse_duration("vacuum", vacuum)
        check_upkeep(None, None, older_than_ms)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    store = open_store(spec, create=True)
    with carrying(store, spark):
        done = store.compact(target_bytes=target * _MIB)
    cared = care_for(store, now_ms=SystemClock().wall_ms(), vacuum_ms=older_than_ms)
    expired = Expired() if cared.expired is None else cared.expired
    if as_json:
        print_json(
            {
                "files_before": done.files_before,
                "files_after": done.files_after,
                "bytes_before": done.bytes_before,
                "vacuumed": cared.files or 0,
                "expired": expired.records,
            }
        )
        return
    click.echo(
        f"{counted(done.files_before, 'small file')} of {size_text(done.bytes_before)} "
        f"became {done.files_after}."
    )
    if cared.expired is not None:
        click.echo(f"{counted(expired.records, 'record')} too old: their rows and letters went.")
    if cared.files is not None:
        click.echo(f"{counted(cared.files, 'file')} of no table deleted.")


@click.command()
@click.argument("name")
@click.argument("column")
@spark_options
@tables_option
def widen(name: str, column: str, spark: SparkOptions, tables: Location) -> None:
    """Let an integer COLUMN of the table NAME hold fractions: its files are written again.

    Records that were dead letters for their fractions can then be replayed. Spark is started for a
    large table.
    """
    store = open_store(load_table(tables, name), create=True)
    try:
        with carrying(store, spark):
            files = store.widen(column)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    click.echo(f"Column {column} holds doubles now; {counted(files, 'file')} written again.")


@click.command()
@click.argument("name")
@spark_options
@tables_option
def upgrade(name: str, spark: SparkOptions, tables: Location) -> None:
    """Give the own columns of the table NAME the names of today, if version 0.1.0 made it.

    Its files are written again, and one commit replaces them: readers see the old names or the new
    ones. A run that goes on meanwhile ends at its next commit, and is then started again. Spark is
    started for a large table.
    """
    spec = load_table(tables, name, of_topics=True)
    store = open_store(spec, create=True)
    with carrying(store, spark):
        files = store.upgrade()
    names = ", ".join(NAMES.record)
    if spec.version == SPEC_VERSION:
        click.echo(f"Table {name} has the names of today: {names}.")
        return
    click.echo(f"Table {name} has the columns {names} now; {counted(files, 'file')} written again.")


@click.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@tables_option
@bootstrap_option
def drop(name: str, yes: bool, tables: Location, bootstrap: str | None) -> None:
    """Delete the table NAME with its data, dead letters and late rows. The topic stays."""
    spec = load_table(tables, name)
    address = bootstrap_of(bootstrap)
    if not yes:
        confirm(f"Delete everything in {spec.location}?")
    drop_table(spec)
    click.echo(f"Table {name} is deleted.")
    if spec.is_of_queries:
        return  # it has no group
    settings = ClientSettings(
        client_id="strandline-cli",
        operation_timeout_ms=_PATIENCE_MS,
        security=client_config().security,
    )
    with ClusterClient(address, settings) as client:
        try:
            Admin(client).groups.delete(group_of(name))
        except ProtocolError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                click.echo(
                    f"Its group {group_of(name)} could not be deleted: {error.sentence}",
                    err=True,
                )
