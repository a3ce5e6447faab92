"""`strandline ui`: the live page of any Strandline cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strandline.cli.connecting import bootstrap_option
from strandline.cli.page_options import edit_option
from strandline.cli.schema_options import schema_options, schema_places
from strandline.client.settings import join_addresses, parse_addresses
from strandline.config.loopback import loopback
from strandline.errors import InvalidSetting
from strandline.schemas.places import NOWHERE, SchemaPlaces

if TYPE_CHECKING:
    from strandline.ui.questions import Question

DEFAULT_PORT = 9080


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    metavar="PORT",
    show_default=True,
    help="Where the page is served; 0 takes a free port.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default=loopback,
    show_default="loopback",
    help="Keep it on loopback: the page shows all data of the cluster.",
)
@edit_option
@schema_options
@click.option(
    "--tables",
    metavar="DIR",
    help="Show the lakehouse tables in this directory, here or in a store, as well.",
)
@bootstrap_option
def ui(
    port: int,
    host: str,
    may_edit: bool,
    schema_directory: str | None,
    registry: str | None,
    tables: str | None,
    bootstrap: str | None,
) -> None:
    """Serve the live page of a cluster until Ctrl-C."""
    if bootstrap is None:
        bootstrap = click.get_current_context().find_root().params["bootstrap"]
    try:
        addresses = parse_addresses(bootstrap)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    places = schema_places(schema_directory, registry)
    serve_page(
        host,
        port,
        join_addresses(addresses),
        schemas=places,
        may_edit=may_edit,
        tables=None if tables is None else _tables_in(tables),
    )


def _tables_in(directory: str) -> Question:
    """What tells of the tables in a directory. Raises `click.UsageError`, `ClickException`."""
    from strandline.cli.table_options import check_installed
    from strandline.lakehouse.locations.location import Location

    check_installed(needs_spark=False)
    from strandline.lakehouse.service.showing import TablesShown

    try:
        return TablesShown(Location.parse(directory, setting="--tables")).document
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong


def serve_page(
    host: str,
    port: int,
    bootstrap: str | None,
    path: str = "",
    schemas: SchemaPlaces = NOWHERE,
    *,
    may_edit: bool = False,
    tables: Question | None = None,
) -> None:
    """Serve, and say where. Without `bootstrap` there are scenarios only."""
    try:
        from strandline.schemas.sources import Schemas
        from strandline.ui import serving
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"The page needs {missing.name}. Install it with: pip install 'strandline[ui]'"
        ) from missing
    try:
        listening = serving.listen(host, port)
    except InvalidSetting as wrong:
        raise click.ClickException(str(wrong)) from wrong
    if may_edit and not serving.is_local(listening):
        listening.close()
        raise click.UsageError(
            "--edit is for a page on loopback: whatever can open the page could change the cluster."
        )
    click.echo(f"{serving.address_of(listening)}{path}\nCtrl-C stops")
    serving.serve(
        listening, bootstrap, schemas=Schemas.at(schemas), may_edit=may_edit, tables=tables
    )
