"""Where a person says schemas are; light, for those who only pass it on."""

from __future__ import annotations

from typing import Final, NamedTuple

REGISTRY_VARIABLE: Final = "STRANDLINE_SCHEMA_REGISTRY"
"""An environment variable with the registry's URL: every user of a machine sees command lines."""


class SchemaPlaces(NamedTuple):
    """A directory of `.avsc` files and the URL of a schema registry, either or both or none."""

    directory: str | None = None
    registry: str | None = None


NOWHERE: Final = SchemaPlaces()
