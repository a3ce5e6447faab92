"""`strandline table query`: SQL over tables by their names, without Spark."""

from __future__ import annotations

import json
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import click

from strandline.cli.connecting import json_option
from strandline.cli.output import json_bytes, json_text, print_table, shown_bytes
from strandline.cli.table_options import tables_option
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location


@click.command()
@click.argument("sql")
@tables_option
@json_option
def query(sql: str, tables: Location, as_json: bool) -> None:
    """Ask tables in SQL, as DuckDB understands it, without Spark.

    Tables are called by their names, those beside them NAME__late, NAME__dead_letters and
    NAME__dropped. With --json, one document per row is printed. A '-' reads SQL from standard
    input.
    """
    from strandline.lakehouse.query.duck import BadQuery
    from strandline.lakehouse.query.duck import query as answer

    text = sys.stdin.read() if sql == "-" else sql
    try:
        found = answer(text, tables)
    except BadQuery as bad:
        raise click.UsageError(str(bad)) from bad
    except InvalidSetting as missing:
        raise click.ClickException(str(missing)) from missing
    if as_json:
        for row in found.to_pylist():
            click.echo(json_text(row, default=_as_json))
        return
    print_table(
        [name.upper() for name in found.column_names],
        ([_shown(value) for value in row.values()] for row in found.to_pylist()),
    )


def _as_json(value: object) -> Any:
    if isinstance(value, bytes):
        return json_bytes(value)
    return value.isoformat() if isinstance(value, date | datetime) else str(value)


def _shown(value: object) -> object:
    if isinstance(value, bytes):
        return shown_bytes(value)
    if isinstance(value, dict | list):
        return json.dumps(value, default=_as_json, ensure_ascii=False)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return value.isoformat() if isinstance(value, datetime) else value
