"""Where an Iceberg table has its name: in a file beside it, or in a catalog of the user's.

Theory: a commit swaps the table's metadata in its catalog, which is what keeps writers apart; where
the files lie does not matter for that. A table on a disk needs no other catalog than an SQLite file
beside it. One in a store, or one that other engines shall find by name, is in the catalog that its
definition names, with pyiceberg's properties. Secrets among these are references (`env:NAME`,
`file:PATH`) and are resolved where the catalog is opened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.client.security.secret import Secret
from strandline.errors import InvalidSetting
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.credentials import for_iceberg
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.catalog_choice import NAMESPACE
from strandline.lakehouse.tables.definition import TableSpec

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

CATALOG_FILE: Final = "catalog.db"
_NEEDED: Final[Mapping[str, tuple[str, str]]] = {
    "glue": ("boto3", "boto3"),
    "hive": ("thrift", "'pyiceberg[hive]'"),
}


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table's name in a catalog, and how that is opened. `shown` names the catalog for people.

    `may_be_there` spares opening a catalog that does not exist yet.
    """

    name: tuple[str, ...]
    shown: str
    open: Callable[[], Catalog]
    may_be_there: Callable[[], bool]
    is_own: bool


def entry_of(spec: TableSpec, side: str | None) -> CatalogEntry:
    """Where a table has its name, or one of its side tables."""
    if spec.catalog is None:
        return beside(spec.place, (side or "data"))
    names = (*spec.namespace.split("."), spec.name + (f"__{side}" if side else ""))
    return CatalogEntry(
        name=names,
        shown=f"the {spec.catalog} catalog {_shown_uri(spec)}".rstrip(),
        open=lambda: _open(spec),
        may_be_there=lambda: True,
        is_own=False,
    )


def beside(directory: Location, name: str) -> CatalogEntry:
    """The table `name` in an SQLite file in a directory of this machine."""
    file = directory / CATALOG_FILE
    return CatalogEntry(
        name=(NAMESPACE, name),
        shown=f"its catalog {file}",
        open=lambda: _open_file(directory),
        may_be_there=lambda: stores.exists(file),
        is_own=True,
    )


def _open(spec: TableSpec) -> Catalog:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.exceptions import NotInstalledError

    given = {name: Secret(name, value).reveal() for name, value in spec.catalog_properties.items()}
    properties = {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        **for_iceberg(spec.place),
        **given,
        "type": str(spec.catalog),
    }
    try:
        return load_catalog("strandline", **properties)
    except (NotInstalledError, ModuleNotFoundError) as error:
        module, package = _NEEDED.get(str(spec.catalog), ("", "pyiceberg"))
        raise InvalidSetting(
            "catalog",
            f"A {spec.catalog} catalog needs the package {module or error}: pip install {package}.",
        ) from error


def _open_file(directory: Location) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog

    stores.make_directory(directory)
    return SqlCatalog(
        "strandline",
        uri=f"sqlite:///{directory / CATALOG_FILE}",
        warehouse=directory.uri,
    )


def _shown_uri(spec: TableSpec) -> str:
    """The address of a catalog, if it is no secret."""
    return spec.catalog_properties.get("uri", "")
