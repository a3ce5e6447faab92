"""`strandline table create`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import click

from strandline.cli.table_options import (
    check_installed,
    tables_option,
    transform_options,
    typed,
    upkeep_options,
)
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.catalog_choice import KINDS, NAMESPACE
from strandline.lakehouse.tables.definition import TableSpec, parse_duration, parse_partitioning
from strandline.lakehouse.tables.spec import save_spec
from strandline.schemas.errors import RegistryDown


@click.command()
@click.argument("name")
@click.option("--topic", "topics", multiple=True, help="A topic; may be repeated. [default: NAME]")
@click.option(
    "--value",
    "value_format",
    type=click.Choice(["json", "json-schema", "avro", "protobuf", "raw"]),
    default="json",
    show_default=True,
    help="What the records' values are; json-schema is JSON behind ids of a registry.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="The schema registry whose ids stand in front of values, and of Avro keys.",
)
@click.option(
    "--subject",
    metavar="NAME",
    help="Whose newest version says which columns there are at first. [default: TOPIC-value]",
)
@click.option(
    "--key",
    "key_format",
    type=click.Choice(["bytes", "string", "json", "avro"]),
    help="Keep the key as it is in 'kafka_key', or decoded in 'kafka_key_value'.",
)
@click.option("--headers", is_flag=True, help="Keep the records' headers in 'kafka_headers'.")
@click.option(
    "--schema",
    "schema_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="JSON Schema, Avro schema or Protobuf descriptor set of the values.",
)
@click.option("--message", metavar="NAME", help="The Protobuf message of the values.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME:TYPE",
    help="The type of a column that would be inferred otherwise; may be repeated.",
)
@click.option(
    "--field-names",
    type=click.Choice(["underscores", "exact"]),
    default="underscores",
    show_default=True,
    help="JSON fields that no column can be called as: 'http.status' fills http_status, or not.",
)
@click.option(
    "--numbers",
    type=click.Choice(["exact", "double", "decimal"]),
    default="exact",
    show_default=True,
    help="New columns of JSON numbers: longs and doubles apart, doubles, or decimals of 38 digits.",
)
@click.option(
    "--time-format",
    "time_formats",
    multiple=True,
    metavar="COLUMN=FORMAT",
    help="How JSON says a column's times: '%d.%m.%Y %H:%M', seconds, millis, micros, nanos.",
)
@click.option("--fixed", is_flag=True, help="Values with unknown fields are dead letters.")
@click.option("--event-time", metavar="COLUMN", help="When a record's event happened.")
@click.option("--watermark", metavar="DURATION", help="How late events may be: '2 hours'.")
@click.option(
    "--late",
    type=click.Choice(["route", "count"]),
    default="route",
    show_default=True,
    help="Late rows go to a table beside this one, or stay and are counted.",
)
@click.option(
    "--partition",
    "partition_by",
    metavar="TRANSFORM,...",
    help="How files are divided: 'day(x)', 'hour(x)', 'bucket(16, x)', 'truncate(4, x)', 'x'.",
)
@click.option(
    "--mode",
    type=click.Choice(["append", "upsert"]),
    default="append",
    show_default=True,
    help="A row per record, or per key with the newest value; null deletes a key.",
)
@click.option(
    "--format",
    "table_format",
    type=click.Choice(["delta", "iceberg"]),
    default=None,
    help="The format of the table. [default: delta; iceberg with --catalog]",
)
@click.option(
    "--catalog",
    type=click.Choice(KINDS),
    help="Where an Iceberg table has its name, for other engines too. [default: a file beside it]",
)
@click.option(
    "--catalog-property",
    "catalog_properties",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property of pyiceberg's, such as uri=http://HOST:8181; secrets as KEY=env:NAME or "
    "KEY=file:PATH. May be repeated.",
)
@click.option(
    "--namespace",
    default=NAMESPACE,
    show_default=True,
    metavar="A.B",
    help="The table's namespace in its catalog.",
)
@click.option(
    "--writer",
    type=click.Choice(["strandline", "spark"]),
    default="strandline",
    show_default=True,
    help="What writes the rows: this package, or Delta's own writer for Spark from --delta-jars.",
)
@click.option(
    "--interval", default="10 s", show_default=True, metavar="DURATION", help="Between commits."
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether records of open and aborted transactions are left out.",
)
@click.option("--keep-key", is_flag=True, help="Keep the records' keys in a column 'kafka_key'.")
@transform_options
@upkeep_options
@tables_option
def create(name: str, tables: Location, **given: Any) -> None:
    """Define the table NAME of a topic; `table run NAME` fills it.

    Every row has the columns kafka_topic, kafka_partition, kafka_offset and kafka_timestamp besides
    those of its value.
    """
    try:
        spec = definition(name, tables, first_of_registry, **given)
        if spec.select is not None:
            _check_select(spec)
        save_spec(spec)
    except InvalidSetting as wrong:
        raise click.UsageError(str(wrong)) from wrong
    except RegistryDown as down:
        raise click.ClickException(str(down)) from down
    click.echo(f"Table {name} of {', '.join(spec.topics)} is defined in {spec.location}.")
    jars = " --delta-jars DIR" if spec.writer == "spark" else ""
    click.echo(f"Fill it with: {typed(f'strandline table run {name}{jars}')}")


def _check_select(spec: TableSpec) -> None:
    """Raises InvalidSetting for a select that cannot be one; without Java it is not checked."""
    check_installed()
    from strandline.cli.spark_logging import silence_py4j
    from strandline.lakehouse.session_java import NoJava
    from strandline.lakehouse.spark_options import STARTS_QUICKLY, SparkOptions, one_session
    from strandline.lakehouse.transforming.checking import check_select

    silence_py4j()
    options = SparkOptions(master="local[1]")
    name = f"table create {spec.name}"
    try:
        with one_session(name, options, java_options=STARTS_QUICKLY) as session:
            check_select(session, spec)
    except NoJava as none:
        click.echo(f"The select is checked when the table is run: {none}", err=True)


First: TypeAlias = Callable[[str, str, str, str | None], tuple[str | None, str | None]]
"""Gives the schema and the message of a new table, by its registry, a subject there, the format of
its values, and the message that was asked for."""


def definition(
    name: str,
    tables: Location,
    first: First,
    *,
    topics: tuple[str, ...],
    value_format: str,
    registry: str | None,
    subject: str | None,
    key_format: str | None,
    headers: bool,
    schema_file: Path | None,
    message: str | None,
    columns: tuple[str, ...],
    field_names: str,
    numbers: str,
    time_formats: tuple[str, ...],
    fixed: bool,
    event_time: str | None,
    watermark: str | None,
    late: str,
    partition_by: str | None,
    mode: str,
    table_format: str | None,
    catalog: str | None,
    catalog_properties: tuple[str, ...],
    namespace: str,
    writer: str,
    interval: str,
    isolation: str,
    keep_key: bool,
    select: str | None,
    transform: str | None,
    explode: bool | None,
    expire_rows: str | None,
    keep_history: str | None,
    vacuum: str | None,
) -> TableSpec:
    """A table as the options above say it. Raises `click.UsageError`, InvalidSetting, and what
    `first` does, which is asked where a registry has the schema."""
    values = _values(value_format, registry, _schema_text(schema_file, value_format), message)
    if registry is not None and values["framing"] == "confluent" and values["schema"] is None:
        found = first(registry, subject or f"{(topics or (name,))[0]}-value", value_format, message)
        values["schema"], values["message"] = found
    return TableSpec(
        name=name,
        topics=topics or (name,),
        location=str(tables / name),
        registry=registry,
        key_format=key_format if key_format not in (None, "bytes") else "none",
        keep_headers=headers,
        **values,
        columns=_columns(columns),
        field_names=field_names,
        numbers=numbers,
        time_formats=_formats(time_formats),
        evolve=not fixed,
        event_time=event_time,
        watermark_ms=_duration("watermark", watermark),
        late=late,
        partition_by=parse_partitioning(partition_by or ""),
        mode=mode,
        format=table_format or ("iceberg" if catalog else "delta"),
        catalog=catalog,
        catalog_properties=_properties(catalog_properties),
        namespace=namespace,
        writer=writer,
        commit_interval_ms=parse_duration("interval", interval),
        isolation=isolation,
        keep_key=keep_key or key_format == "bytes",
        select=select,
        transform=transform,
        explode=bool(explode),
        expire_rows_ms=_duration("expire-rows", expire_rows),
        keep_history_ms=_duration("keep-history", keep_history),
        vacuum_ms=_duration("vacuum", vacuum),
    )


def _duration(name: str, text: str | None) -> int | None:
    return None if text is None else parse_duration(name, text)


def first_of_registry(
    registry: str, subject: str, value_format: str, message: str | None
) -> tuple[str | None, str | None]:
    """What a registry knows before the first record. Raises InvalidSetting and RegistryDown."""
    from strandline.lakehouse.values.first_schema import first_schema
    from strandline.schemas.registered import check_url

    check_url(registry)
    framed = "json" if value_format == "json-schema" else value_format
    found = first_schema(registry, subject, framed, message)
    click.echo(found.told, err=True)
    return found.schema, found.message


def _properties(items: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise click.UsageError("--catalog-property takes KEY=VALUE.")
        found[name.strip()] = value
    return found


def _values(
    value_format: str, registry: str | None, schema: str | None, message: str | None
) -> dict[str, Any]:
    """The fields of a definition that say what values are."""
    if value_format == "json-schema" and registry is None:
        raise click.UsageError("--value json-schema is read by ids: name the --registry.")
    is_framed = registry is not None and value_format in ("avro", "protobuf", "json-schema")
    return {
        "value_format": "json" if value_format == "json-schema" else value_format,
        "framing": "confluent" if is_framed else "plain",
        "schema": schema,
        "message": message,
    }


def _columns(items: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, colon, word = item.rpartition(":")
        if not colon or not name:
            raise click.UsageError(f"--column takes NAME:TYPE, not '{item}'.")
        found[name.strip()] = word.strip()
    return found


def _formats(items: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, equals, text = item.partition("=")
        if not equals or not name or not text:
            raise click.UsageError(f"--time-format takes COLUMN=FORMAT, not '{item}'.")
        found[name.strip()] = text.strip()
    return found


def _schema_text(path: Path | None, value_format: str) -> str | None:
    """The file's content as the definition keeps it; what is binary in base64."""
    if path is None:
        return None
    if value_format == "protobuf":
        from base64 import b64encode

        return b64encode(path.read_bytes()).decode()
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"--schema {path} is not a text in UTF-8.") from error
