"""`strandline serve`: run one broker or several in this process, with their metadata."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.util import find_spec
from typing import Final

import click

from strandline.broker.handle_budget import raise_limit
from strandline.broker.local_layout import broker_configs, metadata_directory
from strandline.cli.broker_options import (
    broker_options,
    load_config,
    parse_users,
)
from strandline.cli.log_lines import log_to_standard_error
from strandline.cli.page_options import edit_option, page_tables_option, tables_place
from strandline.cli.schema_options import schema_options, schema_places
from strandline.cli.serving import (
    Beside,
    RunningBrokers,
    client_address,
    run_until_stopped,
    sentence_about_data,
)
from strandline.config.listeners import Listener
from strandline.errors import InvalidSetting, InvariantViolated, StorageError
from strandline.schemas.places import NOWHERE, SchemaPlaces
from strandline.storage.real_files import RealFiles
from strandline.ui.child import PROGRAM, page

_CHILD: Final = (sys.executable, "-m", "strandline.cli.child")
_PAGE_WITH_TABLES: Final = (sys.executable, "-m", "strandline.cli.page_child")


@click.command()
@click.option(
    "--brokers",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="N",
    help="How many brokers. Ids and ports count up; topics get up to 3 replicas by default.",
)
@click.option(
    "--processes",
    is_flag=True,
    help="Give each broker a process of its own, so that several cores work. Not with --faults.",
)
@click.option("--racks", metavar="NAME,...", help="The racks of the brokers, dealt out in turn.")
@click.option("--ui", "with_page", is_flag=True, help="Serve the live page of the cluster, too.")
@click.option(
    "--ui-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Where on loopback. [default: 8989, or the next free port; 0 takes any]",
)
@edit_option
@schema_options
@page_tables_option
@click.option("--faults", is_flag=True, help="Allow faults, by 'strandline fault' and the page.")
@broker_options
def serve(
    brokers: int,
    processes: bool,
    racks: str | None,
    with_page: bool,
    ui_port: int | None,
    may_edit: bool,
    schema_directory: str | None,
    registry: str | None,
    tables: str | None,
    faults: bool,
    config_path: str | None,
    overrides: tuple[str, ...],
    data_dir: str | None,
    listen: str | None,
    insecure: bool,
    first_users: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a broker, or a cluster of several, in one process or in one process each.

    Without options it listens on 127.0.0.1:9092 and keeps its data in ./strandline-data. Ctrl-C,
    SIGTERM or the end of its terminal stops it cleanly; a second Ctrl-C stops it at once, and the
    next start recovers.
    """
    if may_edit and not with_page:
        raise click.UsageError("--edit is for the page: add --ui.")
    if tables is not None:
        if not with_page:
            raise click.UsageError("--tables is for the page: add --ui.")
        tables_place(tables)  # refused before a broker starts
    if processes and faults:
        raise click.UsageError(
            "--faults is for brokers in one process: leave out --processes. Brokers in processes "
            "of their own can be killed and paused as such, with kill -KILL, -STOP and -CONT."
        )
    log_to_standard_error(log_level)
    raise_limit()
    config = load_config(config_path, overrides, data_dir, listen, insecure=insecure)
    if config.zookeeper_connect:
        given = [f"--set={each}" for each in overrides]
        given += [f"--config={config_path}"] if config_path is not None else []
        given += [f"--data-dir={data_dir}"] if data_dir is not None else []
        given += [f"--listen={listen}"] if listen is not None else []
        raise click.UsageError(_over_zookeeper(config.zookeeper_connect, given))
    names = [name.strip() for name in (racks or "").split(",") if name.strip()]
    try:
        configs = broker_configs(config, brokers, RealFiles(), racks=names)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except StorageError as error:
        raise click.ClickException(sentence_about_data(error)) from error
    if with_page:
        for each in configs:
            _listener_of_page(each.listeners)  # refused before a broker starts
    users = parse_users(first_users)
    schemas = schema_places(schema_directory, registry) if with_page else NOWHERE
    directory = metadata_directory(config)

    async def start() -> RunningBrokers:
        # Each way imports what the other does without: a supervisor has no broker in it.
        if not processes:
            from strandline.broker.local_cluster import LocalCluster

            return await LocalCluster.start(configs, directory, users)
        from strandline.broker.process_cluster import ProcessCluster

        return await ProcessCluster.start(configs, directory, _CHILD, first_users, log_level)

    run_until_stopped(
        start,
        beside=_beside(
            schemas,
            faults=faults,
            with_page=with_page,
            page_port=ui_port,
            may_edit=may_edit,
            program=PROGRAM if tables is None else (*_PAGE_WITH_TABLES, tables),
        ),
        has_brokers=not processes,
    )


def _over_zookeeper(hosts: str, given: Sequence[str]) -> str:
    """What to type in place of `serve`, which would be a cluster of its own on each machine."""
    return (
        f"zookeeper.connect is {hosts}, and serve runs a cluster of its own without ZooKeeper. A "
        "broker of the cluster over ZooKeeper is started by: "
        f"{shlex.join(['strandline', 'broker', *given])}"
    )


def _listener_of_page(listeners: Iterable[Listener]) -> Listener:
    """By which the page reaches a broker, without name and certificate. Raises `UsageError`."""
    for each in listeners:
        if each.security_protocol == "PLAINTEXT":
            return each
    raise click.UsageError(
        "The page of --ui needs a PLAINTEXT listener. With others start it apart, with what lets "
        "it in: strandline ui --client-config FILE"
    )


def _beside(
    schemas: SchemaPlaces,
    *,
    faults: bool,
    with_page: bool,
    page_port: int | None,
    may_edit: bool,
    program: Sequence[str],
) -> Beside:
    """What is asked for beside the brokers."""
    if with_page and (find_spec("uvicorn") is None or find_spec("starlette") is None):
        raise click.ClickException(
            "The page needs more packages. Install them with: pip install 'strandline[ui]'"
        )

    @asynccontextmanager
    async def beside(running: RunningBrokers) -> AsyncIterator[str]:
        lines: list[str] = []
        control: str | None = None
        async with AsyncExitStack() as stack:
            if faults:
                # Most clusters are run without faults, and start more quickly without the import.
                from strandline.broker.fault_control import fault_control
                from strandline.broker.local_cluster import LocalCluster

                if not isinstance(running, LocalCluster):
                    raise InvariantViolated("Faults are asked of brokers in other processes.")
                control = await stack.enter_async_context(fault_control(running))
                lines.append(f"faults      {control}")
            if with_page:
                # All of them: the page must find the cluster when the first is down.
                listeners = [_listener_of_page(each.addresses) for each in running.reports.values()]
                where = await stack.enter_async_context(
                    page(
                        ",".join(map(client_address, listeners)),
                        page_port,
                        control,
                        schemas,
                        may_edit=may_edit,
                        program=program,
                    )
                )
                lines.append(f"page        {where}")
            yield "\n".join(lines)

    return beside
