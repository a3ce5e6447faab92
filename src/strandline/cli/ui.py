"""`strandline ui`: the live page of any Strandline cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_of, bootstrap_option
from strandline.cli.page_options import edit_option, page_tables_option, tables_in
from strandline.cli.schema_options import schema_options, schema_places
from strandline.client.security.settings import PLAINTEXT, Security
from strandline.client.settings import join_addresses
from strandline.config.loopback import loopback
from strandline.errors import CannotListen, InvalidSetting
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
    help="Elsewhere than on loopback the page asks for a token: it shows all data of the cluster.",
)
@click.option(
    "--tokens",
    "tokens_path",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="look=TOKEN and change=TOKEN: who may see the page, and who may use --edit and faults. "
    "Without it a page that is not on loopback makes up tokens, and prints them.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(dir_okay=False),
    help="A PEM file with a private key and certificates: serve the page over TLS.",
)
@edit_option
@schema_options
@page_tables_option
@bootstrap_option
def ui(
    port: int,
    host: str,
    may_edit: bool,
    schema_directory: str | None,
    registry: str | None,
    tables: str | None,
    bootstrap: str | None,
    tokens_path: str | None,
    certificate: str | None,
) -> None:
    """Serve the live page of a cluster until Ctrl-C."""
    addresses = bootstrap_of(bootstrap)
    places = schema_places(schema_directory, registry)
    serve_page(
        host,
        port,
        join_addresses(addresses),
        schemas=places,
        may_edit=may_edit,
        tables=None if tables is None else tables_in(tables),
        tokens_path=tokens_path,
        certificate=certificate,
        security=client_config().security,
    )


def serve_page(
    host: str,
    port: int,
    bootstrap: str | None,
    path: str = "",
    schemas: SchemaPlaces = NOWHERE,
    *,
    may_edit: bool = False,
    tables: Question | None = None,
    tokens_path: str | None = None,
    certificate: str | None = None,
    security: Security = PLAINTEXT,
) -> None:
    """Serve, and say where. Without `bootstrap` there are scenarios only."""
    try:
        from strandline.schemas.sources import Schemas
        from strandline.ui import serving
        from strandline.ui.access import Tokens
    except ModuleNotFoundError as missing:
        raise click.ClickException(
            f"The page needs {missing.name}. Install it with: pip install 'strandline[ui]'"
        ) from missing
    try:
        if certificate is not None:
            serving.check_certificate(certificate)
        tokens = None if tokens_path is None else Tokens.read(tokens_path)
        listening = serving.listen(host, port)
    except CannotListen as taken:
        raise click.ClickException(str(taken)) from taken
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    address = f"{serving.address_of(listening, is_secure=certificate is not None)}{path}"
    if tokens is None and not serving.is_local(listening):
        tokens, made_up = Tokens.made_up()
        for role, token in made_up.items():
            click.echo(f"{address}?token={token}   to {role.value}")
    else:
        click.echo(address)
    if not serving.is_local(listening) and certificate is None:
        click.echo("Without --certificate tokens and data can be read on the way.", err=True)
    click.echo("Ctrl-C stops")
    serving.serve(
        listening,
        bootstrap,
        schemas=Schemas.at(schemas),
        may_edit=may_edit,
        tables=tables,
        tokens=tokens,
        certificate=certificate,
        security=security,
    )
