"""`strandline tables up`: all tables of a file, supervised, until they are told to stop."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING

import click

from strandline.cli.client_config import client_config
from strandline.cli.connecting import bootstrap_option
from strandline.cli.spark_logging import silence_py4j
from strandline.cli.stopping import Stop
from strandline.cli.table_options import remote_option
from strandline.cli.table_run import show_as_json, show_for_people
from strandline.cli.tables_options import brokers_of, file_argument, load_file, plan_for
from strandline.client.clock import SystemClock
from strandline.client.security.config import ClientConfig
from strandline.errors import InvalidSetting, StrandlineError
from strandline.lakehouse.pipeline.events import Event
from strandline.lakehouse.pipeline.options import ENGINES
from strandline.lakehouse.session_remote import is_remote
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.spec import replace_spec, save_spec

if TYPE_CHECKING:
    from strandline.cli.tables_file import ServiceFile, TableEntry
    from strandline.lakehouse.pipeline.events import Stopped
    from strandline.lakehouse.pipeline.runner import StopRequest
    from strandline.lakehouse.service.sharing import SharedSession
    from strandline.lakehouse.service.supervising import SupervisedTable, Supervisor

_PATIENCE_S = 300.0
"""How long the first session may take to get a master and executors."""


@click.command()
@file_argument
@click.option("--once", is_flag=True, help="Commit what is there now in each table, and end.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Of health and metrics, on loopback. [default: as the file says, or 8990; 0 takes any]",
)
@remote_option("A server of Spark Connect for all tables. [default: as the file says]")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON document per event.")
@bootstrap_option
def up(
    file: Path,
    once: bool,
    port: int | None,
    remote: str | None,
    as_json: bool,
    bootstrap: str | None,
) -> None:
    """Make or change the tables of FILE as it says, and run all of them in one Spark session.

    Over a server of Spark Connect each table has a session of its own there.

    A table that fails does not stop the others: it is begun again, after a pause. Ctrl-C or SIGTERM
    ends all runs after a last commit; a second Ctrl-C ends them at once, and loses nothing.
    """
    service = load_file(file)
    if remote is not None:
        service = replace(service, spark=replace(service.spark, master=remote))
    _check_remote(file, service)
    address = brokers_of(service, bootstrap)
    for entry in service.tables:
        try:
            prepared(entry)
        except InvalidSetting as wrong:
            setting = wrong.name.replace("_", "-")
            raise click.UsageError(f"{file}: table '{entry.name}': {setting}: {wrong}") from wrong
        except StrandlineError as trouble:
            # It may pass: the table's run is begun again until it does.
            click.echo(f"{entry.name}: {trouble}", err=True)
    silence_py4j()
    ends_when = "the last batch of each table is committed"
    with Stop(terminate=True, ends_when=ends_when) as stop:
        supervisor = _run(_Asked(service, address, client_config(), once, port), as_json, stop)
    failed = [each for each in supervisor.facts() if each.reason is not None]
    if failed:
        raise click.exceptions.Exit(1)


def _check_remote(path: Path, service: ServiceFile) -> None:
    """Raise `click.UsageError` for a table that a server of Spark Connect cannot fill."""
    from strandline.lakehouse.pipeline.running import check_remote

    for entry in service.tables:
        engine = entry.run["engine"] or ENGINES[0]
        try:
            check_remote(entry.name, entry.create["writer"], engine, service.spark.master)
        except InvalidSetting as wrong:
            raise click.UsageError(f"{path}: table '{entry.name}': {wrong}") from wrong


def prepared(entry: TableEntry) -> TableSpec:
    """The definition, made or changed as the file says. Raises InvalidSetting if it cannot be."""
    from strandline.lakehouse.transforming.given import load

    found = plan_for(entry)
    found.check()
    if found.wanted.transform is not None:
        load(found.wanted.transform)  # so that nothing is remembered that cannot be found
    if found.is_new:
        save_spec(found.wanted)
    elif found.differences:
        replace_spec(found.wanted)
    return found.wanted


@dataclass(frozen=True, slots=True)
class _Asked:
    """All that the runs of a file's tables are about."""

    file: ServiceFile
    bootstrap: str
    config: ClientConfig
    once: bool
    port: int | None

    def table(
        self, entry: TableEntry, shared: SharedSession | None, spark: SparkOptions
    ) -> SupervisedTable:
        """A table for the supervisor; without a session to share it is run in one of its own."""
        from contextlib import nullcontext

        from strandline.lakehouse.pipeline.running import run_table
        from strandline.lakehouse.service.supervising import SupervisedTable

        def run(tell: Callable[[Event], None], stop: StopRequest) -> Stopped:
            spec = prepared(entry)
            return run_table(
                spec,
                entry.options(spec, self.bootstrap, self.config, once=self.once),
                spark=spark,
                on_event=tell,
                stop=lambda: nullcontext(stop),
                shared=None if shared is None else shared.of(entry.name),
            )

        return SupervisedTable(entry.name, run)


def _run(asked: _Asked, as_json: bool, stop: Stop) -> Supervisor:
    from strandline.lakehouse.pipeline.events import Committed
    from strandline.lakehouse.service.live import LiveTable
    from strandline.lakehouse.service.measuring import Measurer
    from strandline.lakehouse.service.serving import StatusServer
    from strandline.lakehouse.service.supervising import Policy, Supervisor

    file = asked.file
    clock = SystemClock()
    live = {entry.name: LiveTable(entry.name, clock.wall_ms) for entry in file.tables}
    show = {name: show_as_json(name) if as_json else show_for_people(name, name) for name in live}
    shared = None if is_remote(file.spark.master) else _shared(asked)

    def tell(name: str, event: Event) -> None:
        if shared is not None and isinstance(event, Committed):
            shared.noted_commit()
        show[name](event)

    supervisor = Supervisor(
        [asked.table(entry, shared, file.spark) for entry in file.tables],
        live,
        tell,
        Policy(*file.restart_s, once=asked.once),
    )
    places = [(entry.name, entry.place / entry.name) for entry in file.tables]
    with ExitStack() as stack:
        if not asked.once:
            port = file.port if asked.port is None else asked.port
            try:
                server = stack.enter_context(StatusServer(supervisor, port))
            except OSError as error:
                raise click.ClickException(
                    f"Port {port} of loopback cannot be listened on ({error.strerror}): "
                    "give another one with --port."
                ) from error
            click.echo(f"Health and metrics: {server.url}/metrics", err=True)
            stack.enter_context(Measurer(live, places, asked.bootstrap, asked.config.security))
        supervisor.start()
        supervisor.wait(stop)
    if shared is not None:
        shared.close()
    return supervisor


def _shared(asked: _Asked) -> SharedSession:
    from strandline.lakehouse.pipeline.running import Needs, SessionMaker
    from strandline.lakehouse.service.sharing import SETTINGS, SharedSession

    file = asked.file
    needs = reduce(
        or_,
        (
            Needs.of_words(each.create["writer"], each.run["engine"] or "strandline")
            for each in file.tables
        ),
    )
    spark = replace(file.spark, conf={**SETTINGS, **file.spark.conf})
    make = SessionMaker(
        "tables up", needs, spark, _PATIENCE_S, lambda sentence: click.echo(sentence, err=True)
    )
    return SharedSession(make)
