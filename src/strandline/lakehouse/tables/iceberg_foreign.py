"""What other engines can make of an Iceberg table, and what of it is refused.

Theory: this package reads files as they are, and columns by their names, and it divides rows as the
definition says. Iceberg's engines can delete rows without writing their file again, rename a column
whose files keep its old name, and divide the table anew. Rows would then be shown, and written
again, that are not the table's, or with other values; so each of these is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, index_by_id
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import MappedField

from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import divided_by, earlier
from strandline.lakehouse.tables.errors import BadTable
from strandline.lakehouse.tables.iceberg_schema import words_of
from strandline.lakehouse.tables.names import FIRST, NAMES
from strandline.lakehouse.tables.transforms import Transform, TransformKind

_UPGRADED: Final = FIRST.renamed(NAMES, letters=True)
"""Columns that an upgrade renamed, and whose files it has written again."""


def check_spec(directory: Location, table: Table, transforms: Sequence[Transform]) -> None:
    """Raises BadTable when the table is not divided by `transforms` any more.

    They may have the names of the first version, as those of a table that is not upgraded yet.
    """
    schema = table.schema()
    present = [
        (schema.find_column_name(field.source_id), str(field.transform))
        for field in table.spec().fields
    ]
    known = (transforms, earlier(transforms))
    if present not in [[(each.column, words_of(each)) for each in some] for some in known]:
        shown = ", ".join(
            str(column) if words == TransformKind.IDENTITY else f"{words}({column})"
            for column, words in present
        )
        raise BadTable(
            f"The Iceberg table in {directory} has the partition fields ({shown}), and its "
            f"definition says ({divided_by(transforms)}): another engine changed them. Give it "
            "the former ones again (in Spark: ALTER TABLE ... REPLACE PARTITION FIELD), or make a "
            "new table."
        )


class ColumnNames:
    """Whether the columns of the table in `directory` are called as in its files."""

    def __init__(self, directory: Location) -> None:
        self._directory = directory
        self._checked: object = None

    def check(self, metadata: TableMetadata) -> None:
        """Raises BadTable when files have a column under another name than the table.

        A renaming that was taken back before rows were written is none.
        """
        depends_on = (
            metadata.current_schema_id,
            len(metadata.schemas),
            metadata.properties.get(TableProperties.DEFAULT_NAME_MAPPING),
            {moment.schema_id for moment in metadata.snapshots},
        )
        if depends_on == self._checked:
            return  # at each load of a table with many columns it would take too long
        for name, others, first in _renamed(metadata):
            raise BadTable(
                f"The column {name} of the Iceberg table in {self._directory} was renamed by "
                f"another engine, and was called {' and '.join(others)} as well: this package "
                f"finds columns in files by their names. Rename it to {first} again, if no rows "
                "were written since it was renamed; else make a new table."
            )
        self._checked = depends_on


def _renamed(metadata: TableMetadata) -> Iterator[tuple[str, list[str], str]]:
    """Columns that files may have under other names: their name, these, and the first of all."""
    schemas = {each.schema_id: _names(each) for each in metadata.schemas}
    written = {moment.schema_id for moment in metadata.snapshots}
    mapping = metadata.name_mapping()
    mapped = dict(_mapped(mapping.root if mapping is not None else ()))
    for number, name in _names(metadata.schema()).items():
        seen = [schemas[each][number] for each in sorted(schemas) if number in schemas[each]]
        known = {*seen, *mapped.get(number, ())}
        others = sorted(each for each in known if name not in (each, _UPGRADED.get(each)))
        is_back = (
            seen[0] == name
            and known <= {*seen}
            and all(each in schemas for each in written)
            and all(schemas[each].get(number, name) == name for each in written if each in schemas)
        )
        if others and not is_back:
            yield name, others, seen[0]


def planned(
    table: Table, directory: Location, snapshot_id: int | None = None
) -> dict[Location, DataFile]:
    """The files of a snapshot, or of now, as Iceberg describes them.

    Raises BadTable where some of their rows are deleted, and where those of now have other
    partition fields than the table.
    """
    try:
        tasks = [*table.scan(snapshot_id=snapshot_id).plan_files()]
    except (ValueError, NotImplementedError) as error:
        if "equality deletes" not in str(error):
            raise
        raise _deleted(directory) from error
    if any(task.delete_files for task in tasks):
        raise _deleted(directory)
    if snapshot_id is None:
        specs = {number: _fields(spec) for number, spec in table.specs().items()}
        if any(specs[each] != _fields(table.spec()) for each in {it.file.spec_id for it in tasks}):
            raise BadTable(
                f"Files of the Iceberg table in {directory} have other partition fields than the "
                "table: another engine wrote them while it had changed these. Write them again "
                "(in Spark: CALL system.rewrite_data_files with the option rewrite-all)."
            )
    return {Location.parse(task.file.file_path): task.file for task in tasks}


def _deleted(directory: Location) -> BadTable:
    return BadTable(
        f"Files of the Iceberg table in {directory} have rows that another engine deleted without "
        "writing the files again, and this package would show them. Write these files again (in "
        "Spark: CALL system.rewrite_data_files with the option delete-file-threshold 1), and let "
        "that engine delete by copy-on-write."
    )


def _fields(spec: PartitionSpec) -> list[tuple[int, str]]:
    return [(field.source_id, str(field.transform)) for field in spec.fields]


def _names(schema: Schema) -> dict[int, str]:
    """Of each field its own name, without those of the structs that it is in."""
    return {number: field.name for number, field in index_by_id(schema).items()}


def _mapped(fields: Sequence[MappedField]) -> Iterator[tuple[int, list[str]]]:
    """All names that files may have a field under, as far as the table says."""
    for field in fields:
        if field.field_id is not None:
            yield field.field_id, field.names
        yield from _mapped(field.fields)
