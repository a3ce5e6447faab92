"""What the commands about tables share: where tables are, and the libraries they need.

This file must import nothing of the lakehouse that needs these: it says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from strandline.cli.connecting import bootstrap_of as addresses_of
from strandline.config.loopback import IPV4, IPV6, loopback
from strandline.errors import InvalidSetting
from strandline.lakehouse.session_master import check_master
from strandline.lakehouse.spark_options import MASTER
from strandline.lakehouse.tables.locations import local_directory

if TYPE_CHECKING:
    from strandline.lakehouse.tables.definition import TableSpec

F = TypeVar("F", bound=Callable[..., Any])

_LIBRARIES: Final = ("pyspark", "pyarrow", "deltalake")


def check_installed() -> None:
    """Raises `click.ClickException` with the remedy when tables cannot be worked with."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        last = missing.pop()
        named = f"{', '.join(missing)} and {last}, which are" if missing else f"{last}, which is"
        raise click.ClickException(
            f"Tables need {named} not installed. pip install 'strandline[spark]' brings everything."
        )
    if loopback() == IPV6:
        raise click.ClickException(
            f"Spark's Python and Java parts speak with each other at {IPV4}, which no interface of "
            f"this machine has. Add it: sudo ip address add {IPV4}/8 dev lo"
        )


class _Directory(click.Path):
    """A directory, absolute; the URI of anything else is refused with a sentence."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """As `click.Path.convert`."""
        try:
            absolute = local_directory(str(value), setting="--tables")
        except InvalidSetting as wrong:
            self.fail(str(wrong), param, ctx)
        return super().convert(absolute, param, ctx)


def tables_option(command: F) -> F:
    """Add `--tables`."""
    return click.option(
        "--tables",
        metavar="DIR",
        type=_Directory(),
        envvar="STRANDLINE_TABLES",
        default=Path("strandline-tables"),
        show_default=True,
        show_envvar=True,
        help="The directory of all tables.",
    )(command)


def spark_options(command: F) -> F:
    """Add `--master` and `--memory`."""
    command = click.option(
        "--memory", default="2g", show_default=True, help="Of Spark's driver, in Spark's notation."
    )(command)
    return click.option(
        "--master",
        default=MASTER,
        show_default=True,
        callback=_master,
        help="Where Spark runs, in its notation.",
    )(command)


def _master(context: click.Context, parameter: click.Parameter, given: str) -> str:
    try:
        check_master(given)
    except InvalidSetting as wrong:
        raise click.BadParameter(str(wrong), context, parameter) from wrong
    return given


def print_notice(sentence: str) -> None:
    """Something that a person should know and need not mend."""
    click.echo(sentence, err=True)


def load_table(tables: Path, name: str) -> TableSpec:
    """The definition of a table. Raises `click.UsageError` if there is none of that name."""
    from strandline.lakehouse.tables.errors import TableMissing
    from strandline.lakehouse.tables.spec import list_specs, load_spec

    try:
        return load_spec(tables / name)
    except TableMissing as missing:
        known = [spec.name for spec in list_specs(tables)] if tables.is_dir() else []
        there = f"The tables there are {', '.join(known)}." if known else "There are none."
        raise click.UsageError(f"There is no table '{name}' in {tables}. {there}") from missing


def bootstrap_of(given: str | None) -> str:
    """The addresses of the brokers as text. Raises `click.UsageError` for what are none."""
    return ",".join(map(str, addresses_of(given)))
