"""A registry of schemas, for values and keys that have ids in front."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.lakehouse.values.registered import client_of
from tests.schemas.values import LittleRegistry, little_registry


@pytest.fixture
def registry() -> Iterator[LittleRegistry]:
    """On loopback; no process remembers it afterwards."""
    with little_registry() as running:
        yield running
    client_of.cache_clear()
