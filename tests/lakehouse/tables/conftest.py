"""Tables of both formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lakehouse.tables.table_world import TableWorld

MakeTable = Callable[..., TableWorld]


@pytest.fixture(params=["delta", "iceberg"])
def table_format(request: pytest.FixtureRequest) -> str:
    """Each format in turn."""
    return str(request.param)


@pytest.fixture
def make_table(tmp_path: Path, table_format: str) -> MakeTable:
    """Makes the table of a test."""

    def make(**fields: Any) -> TableWorld:
        return TableWorld(tmp_path / "table", format=table_format, **fields)

    return make
