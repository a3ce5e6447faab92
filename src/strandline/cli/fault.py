"""`strandline fault`: cause the classical accidents on a local cluster that allows it."""

from __future__ import annotations

import json
import socket
from typing import Final

import click

from strandline.cli.connecting import LOOKING_MS, bootstrap_option, open_cluster
from strandline.client.inspection import inspect
from strandline.client.settings import Address, parse_addresses
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError

FAULTS: Final = (
    "pause",
    "resume",
    "kill",
    "restart",
    "partition",
    "heal",
    "slow-disk",
    "expire-session",
)
_TIMEOUT_S: Final = 120.0
"""A restart after a kill waits until the session of the killed broker has ended."""


@click.command()
@click.argument("what", metavar="FAULT", type=click.Choice(FAULTS))
@click.argument("brokers", metavar="[BROKER]...", type=int, nargs=-1)
@click.option(
    "--delay",
    "delay_ms",
    type=click.IntRange(1, 60_000),
    default=500,
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
    heal              end all partitions and slow disks
    slow-disk         make writing records slow
    expire-session    let the metadata store take these brokers for dead
    """
    click.echo(ask(_address(control, bootstrap), what, brokers, delay_ms))


def ask(address: Address, what: str, brokers: tuple[int, ...], delay_ms: int) -> str:
    """Have it done; what was done, as a sentence. Raises `ProtocolError`."""
    request = {"fault": what, "brokers": brokers, "delay_ms": delay_ms}
    try:
        with socket.create_connection(address, _TIMEOUT_S) as connection:
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = json.loads(connection.makefile().readline() or "{}")
    except (OSError, ValueError) as error:
        raise ProtocolError(
            ErrorCode.NETWORK_EXCEPTION, f"The fault control at {address} cannot be asked: {error}."
        ) from error
    if "done" not in answer:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, answer.get("error", "There was no answer."))
    return str(answer["done"])


def _address(control: str | None, bootstrap: str | None) -> Address:
    if control is not None:
        try:
            return parse_addresses(control)[0]
        except InvalidSetting as wrong:
            raise click.UsageError(str(wrong)) from wrong
    with open_cluster(bootstrap, patience_ms=LOOKING_MS) as client:
        failure: ProtocolError | None = None
        for broker_id in sorted(client.refresh().brokers):
            try:
                return parse_addresses(inspect(client, broker_id, "faults")["address"])[0]
            except ProtocolError as error:
                failure = failure or error
    raise failure or ProtocolError(ErrorCode.BROKER_NOT_AVAILABLE, "No broker is registered.")
