"""What can go wrong with a table, by name.

    TableError
    ├── TableMissing, TableExists  the place holds no table, or holds one already
    ├── BadTable                   what is there was not made by this package, or is damaged
    ├── FencedWriter               another writer committed since: this one must stop
    ├── RangeGap                   records between the table's frontier and the batch would be lost
    ├── RangeOverlap               a file holds rows that the table has; write the batch again
    ├── FilesMissing               what tasks wrote is not where the driver, and readers, look
    ├── TopicRecreated             the offsets belong to another log than those in the table
    └── SchemaMoved                the table's schema grew; decode and write the batch again

`retriable` says whether writing the same batch again, from the table's state as it is now, is the
right answer. No error of this kind leaves a part of a batch in the table.
"""

from __future__ import annotations

from typing import ClassVar

from strandline.errors import StrandlineError


class TableError(StrandlineError):
    """Something is wrong with a table; nothing was committed."""

    retriable: ClassVar[bool] = False


class TableMissing(TableError):
    """There is no table at this place."""


class TableExists(TableError):
    """There is a table at this place already."""


class BadTable(TableError):
    """What is at this place is not a table of ours, or a file that it names is damaged or gone."""


class FencedWriter(TableError):
    """Another writer committed to the table after this one had read it."""


class RangeGap(TableError):
    """A batch begins beyond the table's frontier: the records between would be lost silently."""


class RangeOverlap(TableError):
    """A batch holds rows below the table's frontier: they would be there twice."""

    retriable = True


class FilesMissing(TableError):
    """Files of a batch are not there for the driver: they went to a disk that it does not see."""


class TopicRecreated(TableError):
    """A batch comes from another incarnation of the topic, or of its log, than the table's rows."""


class SchemaMoved(TableError):
    """The files of a batch do not follow the schema that the table has now.

    `wider` are columns of integers for which the files have fractions.
    """

    retriable = True

    def __init__(self, sentence: str, wider: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.wider = wider
