"""Which catalog an Iceberg table is in, as its definition says it: checked, and opened by nothing.

A secret among the properties is a reference (`env:NAME`, `file:PATH`); given itself, it is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location

KINDS: Final = ("rest", "sql", "hive", "glue")
NAMESPACE: Final = "strandline"


class CatalogChoice(NamedTuple):
    """The fields of a definition that are about its catalog."""

    kind: str | None
    properties: Mapping[str, str]
    namespace: str


_NAMESPACE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_][A-Za-z0-9_-]*)*")
_SECRET: Final = re.compile(
    r"credential|token|secret|password|passphrase|access[-_.]?key|account[-_.]?key|sas", re.I
)
_NO_SECRETS: Final = ("token-type", "oauth2-server-uri", "token-refresh-enabled")
_WITH_PASSWORD: Final = re.compile(r"//[^/@:]*:[^/@]*@")
_REFERENCE: Final = ("env:", "file:")
_REFERENCES_ONLY: Final = "It is given as env:NAME or file:PATH, and read where it is used."


def check_catalog(choice: CatalogChoice, table_format: str, place: Location) -> None:
    """Raises InvalidSetting, naming the field, for what cannot be a table's catalog."""
    if choice.kind is None:
        if choice.properties:
            raise InvalidSetting("catalog", "Properties of a catalog need its kind (catalog).")
        if table_format == "iceberg" and not place.is_local:
            raise InvalidSetting(
                "catalog",
                f"An Iceberg table in {place} needs a catalog, which decides between its "
                f"writers: name one of {', '.join(KINDS)} and its properties (--catalog rest "
                "--catalog-property uri=http://HOST:PORT).",
            )
        return
    if choice.kind not in KINDS:
        raise InvalidSetting(
            "catalog", f"catalog cannot be {choice.kind!r}: expected {', '.join(KINDS)}."
        )
    if table_format != "iceberg":
        raise InvalidSetting(
            "catalog", "A Delta table is found by its location: catalogs are for Iceberg tables."
        )
    if _NAMESPACE.fullmatch(choice.namespace) is None:
        raise InvalidSetting("namespace", f"namespace cannot be {choice.namespace!r}.")
    for name, value in choice.properties.items():
        _check_property(name, value)


def _check_property(name: str, value: object) -> None:
    setting = "catalog_properties"
    if not isinstance(value, str) or not name:
        raise InvalidSetting(setting, f"The catalog's property {name!r} must be a text.")
    if value.startswith(_REFERENCE):
        return
    if _SECRET.search(name) and name not in _NO_SECRETS:
        raise InvalidSetting(
            setting, f"The catalog's property {name} is a secret. {_REFERENCES_ONLY}"
        )
    if _WITH_PASSWORD.search(value):
        raise InvalidSetting(
            setting, f"The catalog's property {name} has a password in it. {_REFERENCES_ONLY}"
        )
