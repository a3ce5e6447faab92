"""`strandline serve`: run a broker until it is told to stop.

This file starts, reports and stops; everything else is the broker's. It must not import what
serving does not need: the client stays outside.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from typing import Final

import click

from strandline import __version__
from strandline.broker.startup import Broker, StartReport, start_broker
from strandline.cli.counts import counted
from strandline.cli.started import STARTED_S
from strandline.config.broker import BrokerConfig
from strandline.config.listeners import ANY_INTERFACE, Listener
from strandline.config.load import load_broker_config
from strandline.errors import InvalidSetting, StorageError
from strandline.storage.files import LockHeld

log = logging.getLogger(__name__)

LEVELS: Final = ("debug", "info", "warning", "error")
_ANY_HOSTS: Final = (ANY_INTERFACE, "0.0.0.0", "::")  # noqa: S104 - recognised, not bound
_GC_THRESHOLDS: Final = (50_000, 20, 50)
_INTERRUPTED: Final = 130


@click.command()
@click.option(
    "--config",
    "config_path",
    metavar="FILE",
    help="A properties file, as Kafka's server.properties.",
)
@click.option(
    "--set",
    "overrides",
    metavar="NAME=VALUE",
    multiple=True,
    help="One setting; wins over the file. May be repeated.",
)
@click.option("--data-dir", metavar="DIR", help="Where data is kept. Short for --set log.dirs=DIR.")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Where clients connect. Short for --set listeners=PLAINTEXT://HOST:PORT.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="What is logged to standard error.",
)
def serve(
    config_path: str | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    listen: str | None,
    log_level: str,
) -> None:
    """Run a broker.

    Without options it listens on 127.0.0.1:9092 and keeps its data in ./strandline-data. Ctrl-C or
    SIGTERM stops it cleanly; a second Ctrl-C stops it at once, and the next start recovers.
    """
    logging.basicConfig(
        level=log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    wanted = list(overrides)
    if data_dir is not None:
        wanted.append(f"log.dirs={data_dir}")
    if listen is not None:
        wanted.append(f"listeners=PLAINTEXT://{listen}")
    try:
        loaded = load_broker_config(config_path, wanted)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except OSError as error:
        raise click.UsageError(
            f"The properties file {config_path} cannot be read: {error.strerror}."
        ) from error
    for warning in loaded.warnings:
        log.warning("%s", warning)
    with asyncio.Runner() as runner:
        was_clean = runner.run(_serve(loaded.config))
    if not was_clean:
        raise click.ClickException("The shutdown was not clean; the next start recovers.")


async def _serve(config: BrokerConfig) -> bool:
    """Start, wait for a signal, stop; whether the shutdown was clean."""
    try:
        broker = await start_broker(config)
    except InvalidSetting as error:
        hint = ""
        if isinstance(error.__cause__, OSError):
            hint = " Choose another address with --listen HOST:PORT."
        raise click.ClickException(f"{error}{hint}") from error
    except LockHeld as error:
        raise click.ClickException(
            f"{error} Is a broker running on this data? Choose other data with --data-dir DIR."
        ) from error
    except StorageError as error:
        raise click.ClickException(str(error)) from error
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _on_signal, number, stop)
    # What a start leaves behind lives as long as the process: never look at it again.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    _report(broker.report)
    await stop.wait()
    click.echo("Stopping. Ctrl-C again stops at once.")
    was_clean = await _stop(broker)
    if was_clean:
        click.echo("Stopped cleanly.")
    return was_clean


async def _stop(broker: Broker) -> bool:
    begun = time.monotonic()
    was_clean = await broker.stop()
    log.info("The shutdown took %.2f s", time.monotonic() - begun)
    return was_clean


def _on_signal(number: int, stop: asyncio.Event) -> None:
    # A person who presses Ctrl-C twice means it: leave without flushing or marking anything;
    # recovery is made for that. SIGTERM often comes twice when a wrapper passes it on.
    if stop.is_set() and number == signal.SIGINT:
        os._exit(_INTERRUPTED)
    stop.set()


def _report(report: StartReport) -> None:
    address = client_address(report.addresses[0])
    lines = [
        f"Strandline {__version__}",
        *(f"  listening   {each}" for each in report.addresses),
        *(f"  data        {os.path.abspath(each)}" for each in report.log_dirs),
        f"  cluster id  {report.cluster_id}",
        f"  topics      {report.topics} with {counted(report.partitions, 'partition')}",
    ]
    if not report.was_clean:
        lines.append("  recovery    the last shutdown was not clean; the logs were checked")
    lines += [f"  notice      {notice}" for notice in report.notices]
    lines += [
        f"  try         kcat -b {address} -L",
        f"  try         strandline -b {address} topics list",
        f"ready in {time.monotonic() - STARTED_S:.2f} s; Ctrl-C stops",
    ]
    click.echo("\n".join(lines))
    sys.stdout.flush()


def client_address(listener: Listener) -> str:
    """What a client on this machine connects to."""
    host = "localhost" if listener.host in _ANY_HOSTS else listener.host
    return f"[{host}]:{listener.port}" if ":" in host else f"{host}:{listener.port}"
