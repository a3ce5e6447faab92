"""Tables of both formats."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["delta", "iceberg"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Of a table `counts` in each format."""
    return {"path": "counts", "tables": str(tmp_path), "format": str(request.param)}
