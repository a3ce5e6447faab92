"""Whether a select can be one of a table, found out before there is a batch for it.

Theory: Spark parses and resolves a query without a row. So the columns that are known, and those
that each row must keep, stand for a batch. Which other columns values have is only known when they
are read, so those that a query names are taken to be there, of no type; and which tables and
functions a query finds, when its run's session is there: of these nothing is said.
"""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from strandline.errors import InvalidSetting
from strandline.lakehouse.pipeline.errors import TransformFailed
from strandline.lakehouse.tables.definition import TableSpec
from strandline.lakehouse.tables.upsert import DELETED
from strandline.lakehouse.transforming.given import BATCH, Select
from strandline.lakehouse.transforming.result import Result
from strandline.lakehouse.transforming.staging import own_columns
from strandline.lakehouse.values.making import given_columns, table_columns

_GUESSES_MAX: Final = 100
_OF_SESSIONS: Final = ("TABLE_OR_VIEW_NOT_FOUND", "UNRESOLVED_ROUTINE", "SCHEMA_NOT_FOUND")
"""What another session may know: the conditions of Spark's that say so."""


def check_select(spark: SparkSession, spec: TableSpec) -> None:
    """Raises InvalidSetting for a select that no batch of the table can go through."""
    if spec.select is None:
        return
    if re.search(rf"\b{BATCH}\b", spec.select, re.IGNORECASE) is None:
        raise InvalidSetting(
            "select",
            f"The select '{spec.select}' does not read '{BATCH}', which the rows of its topic are "
            "called.",
        )
    given = given_columns(spec)
    # An event time may be a column of the values, or one that the select makes.
    made = pa.schema([each for each in given if each.name != spec.event_time])
    refused = [_refused(spark, spec, columns) for columns in (given, made)]
    if (first := refused[0]) is not None and None not in refused:
        raise InvalidSetting("select", str(first)) from first


def _refused(spark: SparkSession, spec: TableSpec, values: pa.Schema) -> TransformFailed | None:
    """Why rows with these columns of values, and what else it names, cannot go through."""
    fields = [*values, *own_columns(spec)]
    if spec.mode == "upsert":
        fields.append(pa.field(DELETED, pa.bool_()))
    columns = pa.schema([*table_columns(spec), *spec.own_columns()])
    for _ in range(_GUESSES_MAX):
        rows = spark.createDataFrame([], from_arrow_schema(pa.schema(fields)))
        try:
            Result(spec, columns, Select(str(spec.select))).of(rows)
        except TransformFailed as failed:
            if _is_certain(failed.__cause__, spec):
                return failed
            if (name := _unresolved(failed.__cause__)) is None:
                return None
            fields.insert(0, pa.field(name, pa.null()))
        else:
            return None
    return None


def _unresolved(cause: BaseException | None) -> str | None:
    """The column, and no field of one, that a query was refused for."""
    if not isinstance(cause, AnalysisException):
        return None
    if not (cause.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        return None
    name = (cause.getMessageParameters() or {}).get("objectName", "")
    found = re.fullmatch(r"`([^`]+)`", name)
    return None if found is None else found[1]


def _is_certain(cause: BaseException | None, spec: TableSpec) -> bool:
    """Whether what Spark says is so for each batch, in each session."""
    if not isinstance(cause, AnalysisException) or isinstance(cause, ParseException):
        return True
    condition = cause.getCondition() or ""
    return not condition.startswith(_OF_SESSIONS) and _are_all_known(spec)


def _are_all_known(spec: TableSpec) -> bool:
    """Whether values have no columns but those that the definition says."""
    if spec.value_format == "raw":
        return True
    is_said = spec.schema is not None and spec.framing == "plain"
    return is_said and (spec.value_format != "json" or not spec.evolve)
