"""`strandline serve`: run one broker or several in this process, with their metadata."""

from __future__ import annotations

import click

from strandline.broker.local_cluster import LocalCluster
from strandline.broker.local_layout import broker_configs, metadata_directory
from strandline.cli.broker_options import broker_options, load_config, log_to_standard_error
from strandline.cli.serving import run_until_stopped
from strandline.errors import InvalidSetting
from strandline.storage.real_files import RealFiles


@click.command()
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="How many brokers. Ids and ports count up; topics get up to 3 replicas by default.",
)
@click.option("--racks", metavar="NAME,...", help="The racks of the brokers, dealt out in turn.")
@broker_options
def serve(
    brokers: int,
    racks: str | None,
    config_path: str | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    listen: str | None,
    log_level: str,
) -> None:
    """Run a broker, or a cluster of several in one process.

    Without options it listens on 127.0.0.1:9092 and keeps its data in ./strandline-data. Ctrl-C or
    SIGTERM stops it cleanly; a second Ctrl-C stops it at once, and the next start recovers.
    """
    log_to_standard_error(log_level)
    config = load_config(config_path, overrides, data_dir, listen)
    names = [name.strip() for name in (racks or "").split(",") if name.strip()]
    try:
        configs = broker_configs(config, brokers, RealFiles(), racks=names)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    run_until_stopped(lambda: LocalCluster.start(configs, metadata_directory(config)))
