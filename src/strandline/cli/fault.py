"""`strandline fault`: cause the classical accidents on a local cluster that allows it."""

from __future__ import annotations

import click

from strandline.cli.connecting import LOOKING_MS, bootstrap_option, open_cluster
from strandline.client.faults import (
    DELAY_MS_DEFAULT,
    DELAY_MS_MAX,
    FAULTS,
    Fault,
    cause,
    find_control,
)
from strandline.client.settings import Address, parse_addresses
from strandline.errors import InvalidSetting


@click.command()
@click.argument("what", metavar="FAULT", type=click.Choice(FAULTS))
@click.argument("brokers", metavar="[BROKER]...", type=int, nargs=-1)
@click.option(
    "--delay",
    "delay_ms",
    type=click.IntRange(1, DELAY_MS_MAX),
    default=DELAY_MS_DEFAULT,
    show_default=True,
    metavar="MS",
    help="How much longer writing takes, for slow-disk.",
)
@click.option(
    "--control",
    metavar="HOST:PORT",
    help="Where 'serve --faults' listens for this; asked of the brokers by default.",
)
@bootstrap_option
def fault(
    what: str,
    brokers: tuple[int, ...],
    delay_ms: int,
    control: str | None,
    bootstrap: str | None,
) -> None:
    """Pause, kill or cut off brokers of a cluster that 'strandline serve --faults' runs.

    \b
    pause, resume     stop and go on, as SIGSTOP and SIGCONT do
    kill, restart     end without warning, and start
    partition         cut these brokers off from the others and the metadata
    heal              end all partitions and slow disks, or those of these brokers
    slow-disk         make writing records slow
    expire-session    let the metadata store take these brokers for dead
    """
    click.echo(cause(_address(control, bootstrap), Fault(what, brokers, delay_ms)))


def _address(control: str | None, bootstrap: str | None) -> Address:
    if control is not None:
        try:
            return parse_addresses(control)[0]
        except InvalidSetting as wrong:
            raise click.UsageError(str(wrong)) from wrong
    with open_cluster(bootstrap, patience_ms=LOOKING_MS) as client:
        return find_control(client)
