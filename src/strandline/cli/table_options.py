"""What the commands about tables share: where tables are, and the libraries they need.

This file must import nothing of the lakehouse that needs these: it says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from importlib.util import find_spec
from shlex import quote
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from strandline.cli.connecting import bootstrap_of as addresses_of
from strandline.config.loopback import IPV4, IPV6, loopback
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.session_master import check_master, shown
from strandline.lakehouse.session_remote import is_remote
from strandline.lakehouse.spark_options import MASTER, SparkOptions

if TYPE_CHECKING:
    from strandline.lakehouse.tables.definition import TableSpec
    from strandline.lakehouse.tables.store import TableStore

F = TypeVar("F", bound=Callable[..., Any])

_LIBRARIES: Final = ("pyspark", "pyarrow", "deltalake")


def check_installed(*, needs_spark: bool = True) -> None:
    """Raises `click.ClickException` with the remedy when tables cannot be worked with."""
    needed = [name for name in _LIBRARIES if needs_spark or name != "pyspark"]
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        last = missing.pop()
        named = f"{', '.join(missing)} and {last}, which are" if missing else f"{last}, which is"
        extra = "spark" if needs_spark else "query"
        raise click.ClickException(
            f"Tables need {named} not installed. pip install 'strandline[{extra}]' brings "
            "everything."
        )
    if not needs_spark:
        return
    if loopback() == IPV6:
        raise click.ClickException(
            f"Spark's Python and Java parts speak with each other at {IPV4}, which no interface of "
            f"this machine has. Add it: sudo ip address add {IPV4}/8 dev lo"
        )


class _Directory(click.ParamType[Location]):
    """A directory of this machine or of a store, absolute; others are refused with a sentence."""

    name = "directory"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As `click.ParamType.convert`: a `Location`."""
        if isinstance(value, Location):
            return value
        if not str(value):
            self.fail("It is empty: name a directory.", param, ctx)
        try:
            location = Location.parse(str(value), setting="--tables")
        except InvalidSetting as wrong:
            self.fail(str(wrong), param, ctx)
        if location.is_local and location.local.exists() and not location.local.is_dir():
            self.fail(f"Directory '{location}' is a file.", param, ctx)
        return location


def tables_option(command: F) -> F:
    """Add `--tables`."""
    return click.option(
        "--tables",
        metavar="DIR",
        type=_Directory(),
        envvar="STRANDLINE_TABLES",
        default="strandline-tables",
        show_default=True,
        show_envvar=True,
        help="The directory of all tables, here or in a store (s3://BUCKET/DIR).",
    )(command)


def typed(command: str) -> str:
    """A command about the same tables, as it is to be typed next.

    What comes from the environment or is the default holds for it as well.
    """
    context = click.get_current_context()
    if context.get_parameter_source("tables") is not ParameterSource.COMMANDLINE:
        return command
    return f"{command} --tables {quote(str(context.params['tables']))}"


def transform_options(command: F) -> F:
    """Add `--select`, `--transform` and `--explode`."""
    command = click.option(
        "--explode/--no-explode",
        default=None,
        help="Whether the transform may give several rows for a record; kafka_row numbers them.",
    )(command)
    command = click.option(
        "--transform",
        metavar="MODULE:FUNCTION",
        help="A function from the DataFrame of a batch to that of the table's rows.",
    )(command)
    return click.option(
        "--select",
        metavar="SQL",
        help="A query over 'batch' whose rows are the table's; {place} are the columns to keep.",
    )(command)


def upkeep_options(command: F) -> F:
    """Add `--expire-rows`, `--keep-history` and `--vacuum`, of a table's definition."""
    command = click.option(
        "--vacuum",
        metavar="DURATION",
        help="Runs delete files that no version needs and that are older than this: '7 days'. "
        "[default: never]",
    )(command)
    command = click.option(
        "--keep-history",
        metavar="DURATION",
        help="How long versions stay readable. [default: 30 days; with Iceberg 100 versions]",
    )(command)
    return click.option(
        "--expire-rows",
        metavar="DURATION",
        help="Remove rows, late rows and dead letters that are older than this: '90 days'. "
        "[default: never]",
    )(command)


def spark_options(command: F) -> F:
    """Add what Spark is started with; the command gets it as `spark`, a `SparkOptions`."""

    @wraps(command)
    def with_spark(
        *arguments: Any,
        master: str,
        memory: str,
        conf: tuple[str, ...],
        archives: tuple[str, ...],
        py_files: tuple[str, ...],
        **others: Any,
    ) -> Any:
        spark = spark_of(
            master=master, memory=memory, conf=conf, archives=archives, py_files=py_files
        )
        return command(*arguments, spark=spark, **others)

    for add in reversed(_SPARK):
        with_spark = add(with_spark)
    return cast("F", with_spark)


def _remote(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    if given is not None and not is_remote(given):
        raise click.BadParameter(f"It is sc://HOST:PORT, not '{shown(given)}'.", context, parameter)
    return given


def connecting_spark_options(command: F) -> F:
    """Add `spark_options`, and `--remote` in place of a master."""

    @wraps(command)
    def with_remote(*arguments: Any, remote: str | None, spark: SparkOptions, **others: Any) -> Any:
        if remote is not None:
            spark = replace(spark, master=remote)
        return command(*arguments, spark=spark, **others)

    add_remote = remote_option("A server of Spark Connect, in place of a master.")
    return cast("F", add_remote(spark_options(with_remote)))


def remote_option(text: str) -> Callable[[F], F]:
    """Add `--remote`, with `text` as its help."""
    return click.option("--remote", metavar="sc://HOST:PORT", callback=_remote, help=text)


def spark_of(
    *,
    master: str,
    memory: str,
    conf: tuple[str, ...],
    archives: tuple[str, ...],
    py_files: tuple[str, ...],
) -> SparkOptions:
    """What `spark_options` say. Raises `click.UsageError`."""
    return SparkOptions(
        master=master,
        memory=memory,
        conf=_settings(conf),
        archives=archives,
        py_files=py_files,
    )


def _settings(items: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.UsageError(f"--conf takes spark.NAME=VALUE, not '{name}'.")
        if name in _OWN_SETTINGS:
            raise click.UsageError(f"--conf cannot set {name}: it is {_OWN_SETTINGS[name]}.")
        found[name] = value
    return found


def _master(context: click.Context, parameter: click.Parameter, given: str) -> str:
    try:
        check_master(given)
    except InvalidSetting as wrong:
        raise click.BadParameter(str(wrong), context, parameter) from wrong
    return given


@contextmanager
def carrying(store: TableStore, spark: SparkOptions) -> Iterator[None]:
    """Within this block large works on a table are carried out by Spark, which they start."""
    from strandline.cli.spark_logging import silence_py4j
    from strandline.lakehouse.pipeline.parts_by_command import carrying_by_command

    silence_py4j()
    with carrying_by_command(f"table {store.spec.name}", spark, print_notice) as carrier:
        store.carry_out_by(carrier)
        yield


def print_notice(sentence: str) -> None:
    """Something that a person should know and need not mend."""
    click.echo(sentence, err=True)


def load_table(tables: Location, name: str, *, of_topics: bool = False) -> TableSpec:
    """The definition of a table. Raises `click.UsageError` if there is none of that name.

    With `of_topics` also for one that queries fill, and not the records of topics.
    """
    from strandline.lakehouse.tables.definition_checks import check_of_topics
    from strandline.lakehouse.tables.errors import TableMissing
    from strandline.lakehouse.tables.spec import list_specs, load_spec

    try:
        spec = load_spec(tables / name)
    except TableMissing as missing:
        known = [spec.name for spec in list_specs(tables, print_notice)]
        there = f"The tables there are {', '.join(known)}." if known else "There are none."
        raise click.UsageError(f"There is no table '{name}' in {tables}. {there}") from missing
    if of_topics:
        try:
            check_of_topics(spec)
        except InvalidSetting as wrong:
            raise click.UsageError(str(wrong)) from wrong
    return spec


def bootstrap_of(given: str | None) -> str:
    """The addresses of the brokers as text. Raises `click.UsageError` for what are none."""
    return ",".join(map(str, addresses_of(given)))


_OWN_SETTINGS: Final = {
    "spark.master": "--master",
    "spark.driver.memory": "--memory",
    "spark.archives": "--archives",
    "spark.submit.pyFiles": "--py-files",
}
_SPARK: Final[tuple[Callable[[Any], Any], ...]] = (
    click.option(
        "--master",
        default=MASTER,
        show_default=True,
        callback=_master,
        help="Where Spark runs, in its notation.",
    ),
    click.option(
        "--memory", default="2g", show_default=True, help="Of Spark's driver, in Spark's notation."
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="KEY=VALUE",
        help="A setting of Spark's, such as spark.executor.memory=4g; may be repeated.",
    ),
    click.option(
        "--archives",
        multiple=True,
        metavar="FILE#NAME",
        help="Unpacked as NAME in each executor's work directory, such as a packed environment of "
        "Python; may be repeated.",
    ),
    click.option(
        "--py-files",
        multiple=True,
        metavar="FILE",
        help="A module or an archive of them for the executors' Python; may be repeated.",
    ),
)
