"""The file of `strandline tables`: many tables, and how they are run, in one YAML document.

Theory: a setting of a table is an option of `table create` or `table run`, without the dashes, and
is checked by the option itself. So the two cannot differ, and there is one place that says what may
be written. Scalars are text: YAML's own guesses (`no`, `1:30`) are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, TypeAlias

import click
import yaml

from strandline.cli.table_create import First, create, definition
from strandline.cli.table_options import spark_of
from strandline.cli.table_run import jars_in, run, run_options
from strandline.client.security.config import UNSECURED, ClientConfig
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.pipeline.options import RunOptions
from strandline.lakehouse.service.restarting import FIRST_S, MOST_S
from strandline.lakehouse.spark_options import SparkOptions
from strandline.lakehouse.tables.definition import TableSpec, parse_duration
from strandline.numerals import whole_number

Settings: TypeAlias = Mapping[str, Any]

PORT: Final = 8990
FILE_BYTES_MAX: Final = 1 << 20
_TOP: Final = (
    "bootstrap",
    "client-config",
    "location",
    "port",
    "restart",
    "spark",
    "defaults",
    "tables",
)
_RESTART: Final = ("first", "most")
_HELP: Final = ["-h", "--help"]
_NOT_OF_A_TABLE: Final = frozenset(
    {"tables", "bootstrap", "client-config", "help", "once", "fail-on-dead", "json"}
)
_CHOSEN: Final = ("master", "memory", "conf", "archives", "py-files")
_OF_SPARK: Final = (*_CHOSEN, "remote", "jars", "delta-jars")
_OF_RUN: Final = (
    "engine",
    "on-data-loss",
    "rows-per-commit",
    "compact-every",
    "patience",
    "dead-share",
)


@dataclass(frozen=True, slots=True)
class TableEntry:
    """One table of the file, as its options understood it."""

    name: str
    place: Location
    """The directory of all tables."""
    create: Settings
    run: Settings

    def spec(self, first: First) -> TableSpec:
        """Its definition. Raises InvalidSetting, `click.UsageError`, and what `first` does."""
        return definition(self.name, self.place, first, **self.create)

    def options(
        self, spec: TableSpec, bootstrap: str, config: ClientConfig, *, once: bool
    ) -> RunOptions:
        """How it is run. Raises InvalidSetting."""
        return run_options(
            spec, bootstrap, config, once=once, interval=None, vacuum=None, **self.run
        )


@dataclass(frozen=True, slots=True)
class ServiceFile:
    """All of the file."""

    tables: tuple[TableEntry, ...]
    spark: SparkOptions
    port: int
    restart_s: tuple[float, float]
    """The first pause after a failure, and the longest one."""
    bootstrap: str | None
    client_config: str | None


def load_service(path: Path) -> ServiceFile:
    """Read and check the file. Raises `click.UsageError` with file, table and setting in it."""
    try:
        return _service(_document(path))
    except _Fault as fault:
        raise click.UsageError(f"{path}: {fault}") from fault


class _Fault(Exception):
    """A sentence about what is wrong in the file."""


def _service(document: Settings) -> ServiceFile:
    _check_names(document, _TOP, "the file")
    tables = _mapping(document, "tables")
    if not tables:
        raise _Fault("tables: there is no table in it.")
    place = _location(document)
    defaults = _mapping(document, "defaults")
    entries = tuple(_entry(name, defaults, tables, place) for name in tables)
    return ServiceFile(
        tables=entries,
        spark=_spark(_mapping(document, "spark"), entries),
        port=_port(document),
        restart_s=_restart(_mapping(document, "restart")),
        bootstrap=_text(document, "bootstrap"),
        client_config=_text(document, "client-config"),
    )


class _Loader(yaml.BaseLoader):
    """Text, lists and mappings; a key that is there twice is refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As the base does."""
        seen: set[object] = set()
        for key, _ in node.value:
            name = self.construct_object(key, deep=deep)
            if not isinstance(name, str):
                raise yaml.MarkedYAMLError(None, None, "a name must be text", key.start_mark)
            if name in seen:
                raise yaml.MarkedYAMLError(None, None, f"{name} is there twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


def _document(path: Path) -> Settings:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise _Fault(f"The file is larger than {FILE_BYTES_MAX} bytes.")
        text = path.read_text(encoding="utf-8")
        found = yaml.load(text, _Loader)  # noqa: S506 - it makes nothing but text, lists, mappings
    except UnicodeDecodeError as error:
        raise _Fault("The file is not text in UTF-8.") from error
    except OSError as error:
        raise _Fault(f"{error.strerror}.") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise _Fault(f"{where}{error.problem}.") from error
    except yaml.YAMLError as error:
        raise _Fault(f"The file is no YAML: {error}.") from error
    if not isinstance(found, dict):
        raise _Fault("The file must be a mapping with tables in it.")
    return found


def _entry(name: str, defaults: Settings, tables: Settings, place: Location) -> TableEntry:
    """Raises `_Fault`."""
    of_create, of_run = _options(create), _options(run)
    allowed = [each for each in of_create if each not in _NOT_OF_A_TABLE]
    where = f"table '{name}'"
    own = {} if tables[name] == "" else tables[name]
    if not isinstance(own, dict):
        raise _Fault(f"{where}: its settings must be a mapping, such as topic: orders.")
    _check_names(defaults, (*allowed, *_OF_RUN), "defaults")
    _check_names(own, (*allowed, *_OF_RUN), where)
    settings = {**defaults, **own}
    definition_of = {key: value for key, value in settings.items() if key not in _OF_RUN}
    run_of = {key: value for key, value in settings.items() if key in _OF_RUN}
    created = _parsed(create, name, definition_of, where)
    asked = _parsed(run, name, run_of, where)
    entry = TableEntry(
        name,
        place,
        {key: value for key, value in created.items() if key not in ("name", "tables")},
        {of_run[key].name or key: asked[of_run[key].name or key] for key in _OF_RUN},
    )
    _check(entry, where)
    return entry


def _check(entry: TableEntry, where: str) -> None:
    """What can be told of a table without its registry, its store and its topics."""
    try:
        spec = entry.spec(_without_registry)
        entry.options(spec, "localhost:9092", UNSECURED, once=False)
    except InvalidSetting as wrong:
        # The registry may know the column's type.
        if wrong.name != "partition_by" or entry.create["registry"] is None:
            raise _Fault(f"{where}: {wrong.name.replace('_', '-')}: {wrong}") from wrong
    except click.UsageError as wrong:
        raise _Fault(f"{where}: {wrong.message}") from wrong


def _without_registry(
    _registry: str, _subject: str, _value_format: str, message: str | None
) -> tuple[None, str | None]:
    return None, message


def _spark(settings: Settings, entries: Sequence[TableEntry]) -> SparkOptions:
    _check_names(settings, _OF_SPARK, "spark")
    found = _parsed(run, "any", settings, "spark")
    try:
        chosen = spark_of(
            **{key.replace("-", "_"): found[key.replace("-", "_")] for key in _CHOSEN}
        )
    except click.UsageError as wrong:
        raise _Fault(f"spark: {wrong.message}") from wrong
    by_kafka = any(each.run["engine"] == "kafka" for each in entries)
    by_spark = any(each.create["writer"] == "spark" for each in entries)
    jars = (
        *jars_in(found["jars"] if by_kafka else None),
        *jars_in(found["delta_jars"] if by_spark else None),
    )
    return SparkOptions(
        master=found["remote"] or chosen.master,
        memory=chosen.memory,
        conf=chosen.conf,
        archives=chosen.archives,
        py_files=chosen.py_files,
        jars=jars,
    )


def _options(command: click.Command) -> dict[str, click.Option]:
    """A command's options by their names without dashes."""
    return {
        max(each.opts, key=len).removeprefix("--"): each
        for each in command.params
        if isinstance(each, click.Option)
    }


def _parsed(command: click.Command, name: str, settings: Settings, where: str) -> dict[str, Any]:
    """The parameters that a command gets of settings. Raises `_Fault`, naming the setting."""
    options = _options(command)
    arguments = [name]
    for key, value in settings.items():
        arguments += _arguments(key, options[key], value, where)
    try:
        # Click makes a command's option for help once, as the first context asks for it.
        return command.make_context(command.name, arguments, help_option_names=_HELP).params
    except click.BadParameter as wrong:
        setting = "" if wrong.param is None else f"{max(wrong.param.opts, key=len).lstrip('-')}: "
        raise _Fault(f"{where}: {setting}{wrong.message}") from wrong
    except click.UsageError as wrong:
        raise _Fault(f"{where}: {wrong.message}") from wrong


def _arguments(key: str, option: click.Option, value: object, where: str) -> Iterator[str]:
    if option.is_flag:
        if value not in ("true", "false"):
            raise _Fault(f"{where}: {key} is true or false, not {_shown(value)}.")
        opposite = option.secondary_opts
        if value == "true":
            yield f"--{key}"
        elif opposite:
            yield opposite[0]
        return
    if isinstance(value, dict) and option.multiple:
        between = ":" if ":" in (option.metavar or "") else "="
        value = [f"{name}{between}{each}" for name, each in value.items()]
    several = value if isinstance(value, list) and (option.multiple or key == "partition") else None
    if several is not None and key == "partition":
        several = [",".join(map(str, several))]
    for each in [value] if several is None else several:
        if not isinstance(each, str) or each == "":
            raise _Fault(f"{where}: {key} cannot be {_shown(each)}.")
        yield f"--{key}={each}"


def _check_names(given: Settings, known: Sequence[str], where: str) -> None:
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]}?" if near else f"; there are {', '.join(known)}."
            raise _Fault(f"{where} has no setting {name}{hint}")


def _mapping(document: Settings, name: str) -> dict[str, Any]:
    found = document.get(name, "")
    if found == "":
        return {}
    if not isinstance(found, dict):
        raise _Fault(f"{name} must be a mapping.")
    return found


def _text(document: Settings, name: str) -> str | None:
    found = document.get(name)
    if found is not None and (not isinstance(found, str) or not found):
        raise _Fault(f"{name} cannot be {_shown(found)}: it is a text.")
    return found


def _location(document: Settings) -> Location:
    try:
        return Location.parse(_text(document, "location") or "strandline-tables")
    except InvalidSetting as wrong:
        raise _Fault(f"location: {wrong}") from wrong


def _port(document: Settings) -> int:
    given = _text(document, "port") or str(PORT)
    number = whole_number(given, 65_535)
    if number is None:
        raise _Fault(f"port cannot be {given!r}: it is a number up to 65535, or 0 for any.")
    return number


def _restart(settings: Settings) -> tuple[float, float]:
    _check_names(settings, _RESTART, "restart")
    found = {"first": FIRST_S, "most": MOST_S}
    for name in settings:
        try:
            found[name] = parse_duration(name, _text(settings, name) or "") / 1000
        except InvalidSetting as wrong:
            raise _Fault(f"restart: {wrong}") from wrong
    if not 0 < found["first"] <= found["most"]:
        raise _Fault("restart: first must be more than 0, and not more than most.")
    return found["first"], found["most"]


def _shown(value: object) -> str:
    match value:
        case "":
            return "empty"
        case str():
            return repr(value)
        case list():
            return "a list"
        case _:
            return "a mapping"
