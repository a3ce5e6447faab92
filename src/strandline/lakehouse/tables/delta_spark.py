"""Delta tables whose batches Delta's own writer for Spark writes and commits, in Spark's JVM.

Theory: tasks write files as for every table; here they are not the table's yet. Spark reads them,
and Delta writes the rows as it writes any data frame (its files, its statistics, its constraints),
and commits its files with our marks as application transactions in one commit of its own.

Delta would put a commit on top of others that do not conflict with it. Ours must not come after
another of ours: the transaction *reads* the marks that it sets, so that Delta itself refuses it
when another commit set one of them meanwhile (`ConcurrentTransactionException`), or changed the
columns (`MetadataChangedException`). An OPTIMIZE elsewhere conflicts with neither. Why that
takes a lock besides is told in `commit_lock`.

What changes no rows (compaction, widening) is written again by this package, and new columns, side
tables, and all commits without a Spark session are its own as well (`delta`). This file knows
Delta's transaction, which is Scala: it is made for the release that `COORDINATES` names.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations import stores
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.backend import Change, Conflict, Snapshot
from strandline.lakehouse.tables.commit_lock import locked_log_in_java
from strandline.lakehouse.tables.delta import DeltaBackend
from strandline.lakehouse.tables.delta_snapshot import METADATA, DeltaSnapshot, own_table
from strandline.lakehouse.tables.errors import BadTable, FilesMissing
from strandline.lakehouse.tables.names import OwnNames
from strandline.lakehouse.tables.presence import refusal
from strandline.lakehouse.tables.transforms import Transform
from strandline.lakehouse.tables.written import WrittenFile

COORDINATES: Final = "io.delta:delta-spark_4.2_2.13:4.4.0"
SESSION_SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Delta's default of 50 is for logs on clusters: each is a task, at every commit.
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""What a session with Delta's jars must be started with."""

_WRITING: Final[Mapping[str, str]] = {
    # Spark's default, INT96, is nanoseconds: years before 1678 and after 2261 do not fit them.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.databricks.delta.stats.collect": "true",
}
_CONFLICT: Final = "io.delta.exceptions.DeltaConcurrentModificationException"
_PLAIN_PATH: Final = re.compile(r"[A-Za-z0-9._/-]+")
_FILE: Final = "_strandline_file"


class SparkDeltaBackend(DeltaBackend):
    """The Delta table in `directory`, its batches written by `spark`.

    Raises InvalidSetting when Delta's writer is not in the session.
    """

    def __init__(
        self,
        spark: SparkSession,
        directory: Location,
        transforms: Sequence[Transform],
        *,
        names: OwnNames | None = None,
    ) -> None:
        super().__init__(directory, transforms, for_spark=True, names=names)
        self._jvm: Any = spark._jvm
        check_jars(self._jvm)
        self._spark = spark.newSession()
        for name, value in _WRITING.items():
            self._spark.conf.set(name, value)

    def commit(self, snapshot: Snapshot, change: Change) -> int:
        """As `Backend.commit`; the files of a batch go, their rows are in Delta's."""
        if change.removes or change.same_rows:
            return super().commit(snapshot, change)
        own_table(snapshot)
        if not (isinstance(snapshot, DeltaSnapshot) and snapshot.is_for_spark):
            raise BadTable(
                f"The table in {self._directory} was not made for Spark's writer, and its "
                "definition says so now (writer): that cannot change. Make a new table, or restore "
                "the definition."
            )
        try:
            version = self._commit_in_java(snapshot, change)
        except Py4JJavaError as error:
            # Files that Delta wrote stay, for the vacuum: if an error came after the commit, it
            # names them.
            if _is_conflict(error.java_exception):
                raise Conflict(str(error.java_exception.getMessage())) from error
            raise
        for item in change.adds:
            stores.remove(self._directory / item.path)
        return version

    def tidy(self, snapshot: Snapshot) -> None:
        """As `Backend.tidy`: nothing, since Delta's writer does that by itself."""

    def _commit_in_java(self, snapshot: Snapshot, change: Change) -> int:
        delta, none = self._jvm.org.apache.spark.sql.delta, self._jvm.scala.Option.empty()
        log = delta.DeltaLog.forTable(self._spark._jsparkSession, self._directory.spark)
        log.update(False, none, none)
        transaction = log.startTransaction()
        if transaction.snapshot().version() != snapshot.version:
            raise Conflict("The table has moved on.")
        for name in change.marks:
            transaction.txnVersion(name)
        actions = self._jvm.java.util.ArrayList()
        written = 0
        if change.adds:
            files = transaction.writeFiles(self._rows(snapshot, change.adds)._jdf).toIndexedSeq()
            written = files.size()
            for number in range(written):
                actions.add(files.apply(number))
            self._check([action.path() for action in actions], change.adds)
        for name, number in change.marks.items():
            actions.add(delta.actions.SetTransaction(name, number, none))
        document = {METADATA: {**change.metadata, "files_added": written}}
        operation = getattr(delta, "DeltaOperations$Write")(
            self._jvm.org.apache.spark.sql.SaveMode.Append,
            *(none, none, self._jvm.scala.Some(json.dumps(document))),
            *(none, none, none, none, none),
        )
        sequence = self._jvm.org.apache.spark.api.python.PythonUtils.toSeq(actions)
        with locked_log_in_java(self._jvm, self._directory):
            return int(transaction.commit(sequence, operation))

    def _rows(self, snapshot: Snapshot, files: Sequence[WrittenFile]) -> DataFrame:
        """The rows of files, with the columns that Delta divides the table by."""
        names = [item.name for item in self._transforms]
        stored = pa.schema([field for field in snapshot.schema if field.name not in names])
        rows = self._spark.read.schema(from_arrow_schema(stored)).parquet(
            *((self._directory / item.path).spark for item in files)
        )
        if not names:
            return rows
        file = _FILE
        while file in stored.names:
            file += "_"
        values = [
            {file: item.path, **self._partition_values(item.partition, snapshot.schema)}
            for item in files
        ]
        texts = ", ".join(f"{_quoted(name)}: string" for name in (file, *names))
        # Not `createDataFrame`: it would leave its session to the stream whose thread this is.
        known = f.from_json(f.lit(json.dumps(values)), f"array<struct<{texts}>>")
        divided = self._spark.range(1).select(f.inline(known))
        types = from_arrow_schema(pa.schema([snapshot.schema.field(name) for name in names]))
        place = rows.metadataColumn("_metadata").getField("file_name")
        return (
            rows.withColumn(file, place)
            .join(f.broadcast(divided), file)
            .select(
                *(f.col(_quoted(name)) for name in stored.names),
                *(f.col(_quoted(each.name)).cast(each.dataType).alias(each.name) for each in types),
            )
        )

    def _check(self, paths: Sequence[str], given: Sequence[WrittenFile]) -> None:
        """That Delta's files hold what the tasks' do, and are on disk. Raises BadTable."""
        rows = 0
        for path in paths:
            if _PLAIN_PATH.fullmatch(path) is None:
                raise BadTable(
                    f"Spark's writer calls a file {path!r}, which this package could not remove."
                )
            rows += self._synced(self._directory / unquote(path))
        for directory in {(self._directory / path).parent for path in paths}:
            _sync(directory)
        wanted = sum(item.rows for item in given)
        if rows != wanted:
            raise BadTable(f"Spark's writer wrote {rows:,} of {wanted:,} rows.")

    def _synced(self, path: Location) -> int:
        """As `_synced`; raises FilesMissing for what an executor wrote elsewhere."""
        try:
            return _synced(path)
        except (OSError, pa.ArrowInvalid) as error:
            raise FilesMissing(refusal(path, f"it cannot be read ({error})")) from error


def check_jars(jvm: Any) -> None:
    """Raises InvalidSetting when a session has no Delta writer."""
    if not isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaClass):
        raise InvalidSetting(
            "writer",
            f"Spark's writer for Delta is not in the session: it needs the jars of {COORDINATES}, "
            "whose directory --delta-jars names, and the settings that docs/spark.md shows.",
        )


def _quoted(name: str) -> str:
    """A column's name in SQL, whatever a field of a value is called."""
    return f"`{name.replace('`', '``')}`"


def _is_conflict(error: Any) -> bool:
    """Whether Delta refused a commit for another one; then nothing was committed."""
    kind = error.getClass()
    while kind is not None:
        if kind.getName() == _CONFLICT:
            return True
        kind = kind.getSuperclass()
    return False


def _synced(path: Location) -> int:
    """Sync a Parquet file of Delta's; gives its number of rows. Raises BadTable."""
    _sync(path)
    with pq.ParquetFile(path) as file:
        types = {file.schema.column(at).physical_type for at in range(len(file.schema))}
        if "INT96" in types:
            raise BadTable(f"Spark wrote times of another kind (INT96) into {path}.")
        return int(file.metadata.num_rows)


def _sync(path: Location) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
