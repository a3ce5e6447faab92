"""DuckDB as another reader of tables: its extensions come from packages, and it installs none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import duckdb


def with_extensions(packages: Iterable[ModuleType]) -> duckdb.DuckDBPyConnection:
    """A connection with the extensions that these packages bring, in this order."""
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package in packages:
        [file] = Path(package.__path__[0]).rglob("*.duckdb_extension")
        connection.load_extension(str(file))
    return connection


def use_s3(connection: duckdb.DuckDBPyConnection, url: str) -> None:
    """Have it read from the S3 server at that address."""
    host = url.removeprefix("http://")
    connection.execute(
        f"create secret (type s3, key_id 'k', secret 's', endpoint '{host}', use_ssl false, "
        "url_style 'path', region 'us-east-1')"
    )
