"""`strandline broker`: run one broker of a cluster whose metadata is in ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping

import click

from strandline.broker.handle_budget import raise_limit
from strandline.broker.running import Broker
from strandline.broker.start_report import StartReport
from strandline.broker.startup import start_broker
from strandline.cli.broker_options import (
    broker_options,
    load_config,
    parse_users,
)
from strandline.cli.log_lines import log_to_standard_error
from strandline.cli.numbers import BROKER
from strandline.cli.serving import run_until_stopped
from strandline.cluster.store import Store
from strandline.config.broker import BrokerConfig


@click.command()
@click.option(
    "--zookeeper",
    metavar="HOST:PORT,...[/PATH]",
    help="The ZooKeeper servers. Short for --set zookeeper.connect=HOST:PORT,...",
)
@click.option(
    "--id",
    "broker_id",
    type=BROKER,
    metavar="N",
    help="The broker's own number in the cluster. Short for --set node.id=N.",
)
@broker_options
def broker(
    zookeeper: str | None,
    broker_id: int | None,
    config_path: str | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    listen: str | None,
    insecure: bool,
    first_users: tuple[str, ...],
    log_level: str,
) -> None:
    """Run one broker of a cluster over ZooKeeper.

    Brokers that name the same ZooKeeper path are one cluster; each needs an id, an address and a
    data directory of its own. Ctrl-C, SIGTERM or the end of its terminal gives its leaderships away
    and stops it cleanly.
    """
    log_to_standard_error(log_level)
    raise_limit()
    short = {"zookeeper.connect": zookeeper, "node.id": broker_id}
    wanted = [f"{name}={value}" for name, value in short.items() if value is not None]
    config = load_config(config_path, (*overrides, *wanted), data_dir, listen, insecure=insecure)
    if not config.zookeeper_connect:
        raise click.UsageError("Where is ZooKeeper? Say --zookeeper HOST:PORT.")
    users = parse_users(first_users)
    store = _zookeeper(config, config.zookeeper_connect)

    async def start() -> _OneBroker:
        return _OneBroker(await start_broker(config, store, is_alone=False, users=users))

    run_until_stopped(start)


class _OneBroker:
    """A broker, as what runs."""

    def __init__(self, running: Broker) -> None:
        self._running = running

    @property
    def reports(self) -> Mapping[int, StartReport]:
        return {self._running.broker_id: self._running.report}

    @property
    def notice(self) -> str | None:
        return self._running.notice

    async def until_unfit(self) -> str:
        return await self._running.until_unfit()

    async def stop(self) -> bool:
        return await self._running.stop()


def _zookeeper(config: BrokerConfig, hosts: str) -> Store:
    """The store, whose driver is an extra: who runs `serve` need not install it."""
    try:
        from strandline.broker.zookeeper_access import ZooKeeperAccess
        from strandline.broker.zookeeper_store import ZooKeeperStore
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "kazoo":
            raise
        raise click.ClickException(
            "ZooKeeper needs the package kazoo: pip install 'strandline[zookeeper]'."
        ) from missing
    return ZooKeeperStore(
        hosts,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        access=ZooKeeperAccess.of(config),
    )
