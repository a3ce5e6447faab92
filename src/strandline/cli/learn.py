"""`strandline learn`: a small cluster and lessons in a browser tab, without a server behind it."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from pathlib import Path

import click

from strandline.config.loopback import loopback
from strandline.errors import CannotListen
from strandline.ui.lab.building import build, built
from strandline.ui.lab.pyodide import CannotBuild
from strandline.ui.lab.serving import serving

DEFAULT_PORT = 9070


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    metavar="PORT",
    show_default=True,
    help="Where the page is served, on loopback; 0 takes a free port.",
)
@click.option("--open/--no-open", "opens", default=True, help="Open it in the browser.")
@click.option(
    "--build",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIRECTORY",
    help="Only make the page there, as plain files for any web server.",
)
def learn(port: int, opens: bool, directory: Path | None) -> None:
    """Learn replication in a browser: lessons, scenarios, and a cluster to break.

    The brokers run in the browser tab, with the code of real ones; nothing is sent anywhere. The
    page is made the first time: that fetches Python for browsers (6 MB) with npm, so it needs
    Node.js. After that it works without a network.
    """
    try:
        if directory is not None:
            build(directory)
            click.echo(f"{directory}/index.html is there, for any web server.")
            return
        page = built(lambda: click.echo("Making the page, once for this version ...", err=True))
        with serving(page, loopback(), port) as server:
            address = f"http://{loopback()}:{server.server_port}/"
            click.echo(f"{address}\nCtrl-C stops")
            if opens:
                webbrowser.open(address)
            with suppress(KeyboardInterrupt):
                server.serve_forever()
    except (CannotBuild, CannotListen) as error:
        raise click.ClickException(str(error)) from error
