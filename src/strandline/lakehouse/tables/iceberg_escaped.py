"""Iceberg tables that earlier versions made in a directory whose name a URI escapes.

Theory: what stands behind `file://` is the path as it is, to every reader. Earlier versions wrote
it escaped: the metadata lies in another directory, of the escaped name, and the files that it names
are found by this package only. The next commit of such a table gives it the address that it has,
and its files theirs. Older snapshots stay where they are, until they are forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import SetLocationUpdate

from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.locations.stores import Entry
from strandline.lakehouse.tables.backend import DataFile

_SCHEME: Final = "file://"


def at_its_place(table: Table, directory: Location) -> Table:
    """The table in `directory`, for a transaction: what that writes lies there as well.

    It is `table` itself, unless that has an escaped address; then the transaction must `lead` it
    to its place, and `readdress` its files.
    """
    if table.location() == directory.uri or table.location() != _SCHEME + quote(directory.path):
        return table
    return Table(
        table.name(),
        table.metadata.model_copy(update={"location": directory.uri}),
        table.metadata_location,
        table.io,
        table.catalog,
        table.config,
    )


def lead(transaction: Transaction, directory: Location) -> None:
    """Have the transaction give the table in `directory` the address that it has."""
    transaction._apply((SetLocationUpdate(location=directory.uri),))


def readdress(
    snapshot: Any, files: Mapping[Location, IcebergFile], removes: Iterable[DataFile]
) -> None:
    """Have the snapshot that is made describe the table's files by their places.

    `removes` are those that it removes anyway.
    """
    gone = {removed.path for removed in removes}
    for path, file in files.items():
        if path not in gone and file.file_path != path.uri:
            described = IcebergFile(*file._data)
            described[1] = path.uri
            snapshot.delete_data_file(file)
            snapshot.append_data_file(described)


def escaped_metadata(directory: Location) -> dict[str, Entry]:
    """Metadata at the escaped address of the table in `directory`, by the texts that name it."""
    if not directory.is_local or quote(directory.path) == directory.path:
        return {}
    place = replace(directory, path=quote(directory.path)) / "metadata"
    return {f"{_SCHEME}{each.location.path}": each for each in stores.listed(place)}
