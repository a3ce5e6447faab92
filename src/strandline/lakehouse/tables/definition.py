"""A table's definition: what a user says once. Its file is the business of `spec`.

Theory: everything that decides how a record becomes a row is here, and in text that a person can
read and a later version can still understand; a schema file's content is taken in, so that the
table does not change when the file does. Faults name the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final, cast

import pyarrow as pa

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.catalog_choice import NAMESPACE, CatalogChoice, check_catalog
from strandline.lakehouse.tables.definition_checks import (
    check_filled_by_queries,
    check_registry,
    check_renamed,
    check_transformed,
    check_writer,
)
from strandline.lakehouse.tables.names import (
    FIRST,
    HEADERS_TYPE,
    KEY_VALUE,
    NAMES,
    RECORD_HEADERS,
    TIMESTAMP,
    OwnNames,
)
from strandline.lakehouse.tables.transforms import Transform, TransformKind, parse_transform
from strandline.lakehouse.tables.types import name_fault, parse_type
from strandline.lakehouse.tables.upkeep import check_upkeep
from strandline.lakehouse.values.json_forms import check_time_format

SPEC_FILE: Final = "table.json"
UPGRADE_FILE: Final = "upgrade.json"
"""Is there while a definition may be behind its table (`upgraded`)."""
SPEC_VERSION: Final = 2
_NAMES: Final[Mapping[int, OwnNames]] = {1: FIRST, SPEC_VERSION: NAMES}
"""What a table's own columns are called, by the version of its definition."""

DEAD_LETTERS: Final = "dead_letters"
LATE: Final = "late"
DROPPED: Final = "dropped"
"""The side table of the records for which a transform gives no row."""
EXPIRED: Final = "expired"
"""The side table of the records whose rows or letters were removed for their age."""
QUERIES: Final = "queries"
"""What fills a table that has the results of Spark's queries (`lakehouse.results`)."""
STAGING: Final = "staging"
"""Where the rows of a batch are on their way to a transform; of no table."""

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,200}")
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "value_format": ("json", "avro", "protobuf", "raw"),
    "framing": ("plain", "confluent"),
    "field_names": ("underscores", "exact"),
    "numbers": ("exact", "double", "decimal"),
    "key_format": ("none", "string", "json", "avro"),
    "late": ("route", "count"),
    "mode": ("append", "upsert"),
    "format": ("delta", "iceberg"),
    "isolation": ("read_committed", "read_uncommitted"),
    "engine": ("strandline", "kafka"),
    "writer": ("strandline", "spark"),
    "filled_by": ("topics", QUERIES),
}
_ALWAYS_WRITTEN: Final = ("name", "topics", "location", "version")
_IF_ABSENT: Final[Mapping[str, object]] = {"version": 1, "field_names": "exact"}
"""What definitions of earlier releases, which have no such field, mean by it."""
_DURATION: Final = re.compile(r"\s*(\d{1,15})\s*([a-z]+)\s*")
_UNITS_MS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
}
_BUCKETS_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table. Raises InvalidSetting, naming the field, when its parts do not go together.

    `location` is the directory that holds everything: a path, or a URI with `file:`, `s3:`, `gs:`,
    `abfs:` or `hdfs:`; it is absolute from here on, relative paths being taken from the working
    directory of this process. `schema` is the content of a JSON Schema, an Avro schema, or (base64)
    a Protobuf descriptor set, and `schemas` Avro schemas by their id in Confluent's framing;
    `registry` is the URL of a schema registry for values, and Avro keys, in that framing; `columns`
    gives types to single columns of an inferred schema; `catalog` is where an Iceberg table has its
    name, in `namespace`, with pyiceberg's properties (secrets as env:NAME or file:PATH); `buckets`
    is how an upserted table is divided by key. `select` (a query) or `transform`
    (`module:function`) is what rows go through on their way from values to the table. Durations are
    milliseconds.

    A table that is `filled_by` queries has no topics: its columns are those of the queries' rows,
    and with `keys` (names of columns) it has one row for each of them.
    """

    name: str
    topics: tuple[str, ...]
    location: str
    value_format: str = "json"
    schema: str | None = None
    schemas: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None
    framing: str = "plain"
    columns: Mapping[str, str] = field(default_factory=dict)
    evolve: bool = True
    event_time: str | None = None
    watermark_ms: int | None = None
    late: str = "route"
    partition_by: tuple[Transform, ...] = ()
    mode: str = "append"
    buckets: int = 16
    format: str = "delta"
    catalog: str | None = None
    catalog_properties: Mapping[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE
    commit_interval_ms: int = 10_000
    isolation: str = "read_committed"
    engine: str = "strandline"
    writer: str = "strandline"
    keep_key: bool = False
    field_names: str = "underscores"
    numbers: str = "exact"
    time_formats: Mapping[str, str] = field(default_factory=dict)
    key_format: str = "none"
    keep_headers: bool = False
    registry: str | None = None
    select: str | None = None
    transform: str | None = None
    explode: bool = False
    expire_rows_ms: int | None = None
    keep_history_ms: int | None = None
    vacuum_ms: int | None = None
    filled_by: str = "topics"
    keys: tuple[str, ...] = ()
    version: int = SPEC_VERSION

    def __post_init__(self) -> None:
        # What is relative here would be another directory for each of Spark's executors.
        object.__setattr__(self, "location", str(Location.parse(self.location)))
        _check_words(self)
        _check_together(self)
        self.known_columns()

    @property
    def names(self) -> OwnNames:
        """What the table's own columns are called."""
        return _NAMES[self.version]

    @property
    def reserved(self) -> frozenset[str]:
        """What no column of a value may be called, in lower case."""
        keys = {KEY_VALUE} if self.key_format != "none" else set()
        # What a transform takes in may be called so; what it gives is looked at by itself.
        divisions = frozenset() if self.is_transformed else division_names(self)
        own = {item.name for item in self.own_columns()}
        return self.names.reserved | divisions | keys | own

    @property
    def is_of_queries(self) -> bool:
        """Whether queries fill it, and not the records of topics."""
        return self.filled_by == QUERIES

    @property
    def with_key(self) -> bool:
        """Whether rows carry the record's key."""
        return self.keep_key or self.mode == "upsert"

    @property
    def dated(self) -> bool:
        """Whether rows can be late."""
        return self.event_time is not None and self.watermark_ms is not None

    @property
    def is_transformed(self) -> bool:
        """Whether the table's columns are those of a transform, and not those of values."""
        return self.select is not None or self.transform is not None

    @property
    def place(self) -> Location:
        """The directory that holds everything."""
        return Location.parse(self.location)

    def directory(self, side: str | None = None) -> Location:
        """Where the rows are, or those of a side table (`settling.SIDES`)."""
        return self.place / (side or "data")

    def own_columns(self) -> tuple[pa.Field, ...]:
        """The columns that every row has besides those of its value."""
        if self.is_of_queries:
            return ()
        columns = self.names.place
        if self.with_key:
            columns = (*columns, pa.field(self.names.key, pa.binary()))
        if self.keep_headers:
            columns = (*columns, pa.field(RECORD_HEADERS, HEADERS_TYPE))
        if self.explode:
            columns = (*columns, pa.field(self.names.row, pa.int64()))
        return columns

    def known_columns(self) -> dict[str, pa.DataType]:
        """The value's columns whose type is known before the first record."""
        known = {name: parse_type(name, word) for name, word in self.columns.items()}
        if self.event_time is not None and self.event_time not in self.names.own:
            known.setdefault(self.event_time, TIMESTAMP)
        for name, text in self.time_formats.items():
            check_time_format(name, text)
            if not known.setdefault(name, TIMESTAMP).equals(TIMESTAMP):
                raise InvalidSetting("time_formats", f"Column {name} is no timestamp.")
        for name in known:
            if (fault := name_fault(name, known, self.reserved)) is not None:
                raise InvalidSetting("columns", fault)
        return known

    def to_json(self) -> str:
        """The text that `from_json` reads; fields that say what their absence says are left out."""
        document = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name in _ALWAYS_WRITTEN or getattr(self, item.name) != _if_absent(item.name)
        }
        document["topics"] = list(self.topics)
        if self.partition_by:
            document["partition_by"] = [str(item) for item in self.partition_by]
        if self.keys:
            document["keys"] = list(self.keys)
        return json.dumps(document, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> TableSpec:
        """Raises InvalidSetting for text that is no definition, or one of a later version."""
        try:
            document = json.loads(text)
        except ValueError as error:
            raise InvalidSetting("table", f"The table's definition is not JSON: {error}.") from None
        if not isinstance(document, dict):
            raise InvalidSetting("table", "The table's definition is not a JSON object.")
        document = {**_IF_ABSENT, **document}
        if document["version"] not in _NAMES:
            raise InvalidSetting(
                "version",
                f"The table's definition has version {document['version']!r}; "
                f"this program knows {' and '.join(map(str, _NAMES))}.",
            )
        known = {item.name for item in fields(cls)}
        for name in document:
            if name not in known:
                raise InvalidSetting(name, f"A table's definition has no field {name!r}.")
        for name in ("name", "topics", "location"):
            if name not in document:
                raise InvalidSetting(name, f"The table's definition lacks {name!r}.")
        document["topics"] = tuple(document["topics"])
        document["keys"] = tuple(document.get("keys", ()))
        document["partition_by"] = tuple(
            parse_transform(item) for item in document.get("partition_by", ())
        )
        return cls(**document)


def parse_duration(name: str, text: str) -> int:
    """Milliseconds from "2 hours", "10 s" or "500ms"; raises InvalidSetting naming the field."""
    match = _DURATION.fullmatch(text.lower())
    if match is None or match.group(2) not in _UNITS_MS:
        raise InvalidSetting(
            name, f"{name} cannot be {text!r}: expected a number and ms, s, minutes, hours or days."
        )
    return int(match.group(1)) * _UNITS_MS[match.group(2)]


def parse_partitioning(text: str) -> tuple[Transform, ...]:
    """Transforms from "day(x), bucket(16, k)"; the commas inside the brackets do not divide."""
    parts = re.split(r",(?![^(]*\))", text)
    return tuple(parse_transform(part) for part in parts if part.strip())


def _check_words(spec: TableSpec) -> None:
    if _NAME.fullmatch(spec.name) is None:
        raise InvalidSetting("name", f"A table cannot be called {spec.name!r}.")
    is_several = not isinstance(cast(object, spec.topics), str) and all(spec.topics)
    if not is_several or not (spec.topics or spec.is_of_queries):
        raise InvalidSetting("topics", f"topics are one or more names: not {spec.topics!r}.")
    if not spec.location:
        raise InvalidSetting("location", "A table needs a location.")
    for name, choices in _CHOICES.items():
        value = getattr(spec, name)
        if value not in choices:
            raise InvalidSetting(
                name, f"{name} cannot be {value!r}: expected {' or '.join(choices)}."
            )
    check_upkeep(spec.expire_rows_ms, spec.keep_history_ms, spec.vacuum_ms)
    for name in ("watermark_ms", "commit_interval_ms"):
        value = getattr(spec, name)
        if value is not None and (not isinstance(value, int) or value < 0):
            raise InvalidSetting(name, f"{name} cannot be {value!r}: expected milliseconds.")
    if not 1 <= spec.buckets <= _BUCKETS_MAX:
        raise InvalidSetting("buckets", f"buckets must be between 1 and {_BUCKETS_MAX}.")


def _check_together(spec: TableSpec) -> None:
    choice = CatalogChoice(spec.catalog, spec.catalog_properties, spec.namespace)
    check_catalog(choice, spec.format, spec.place)
    if isinstance(cast(object, spec.partition_by), str):
        raise InvalidSetting("partition_by", "partition_by takes what parse_partitioning returns.")
    names = [transform.name for transform in spec.partition_by]
    if len(set(names)) < len(names):
        raise InvalidSetting("partition_by", "A transform of one column is there twice.")
    if spec.is_of_queries:
        check_filled_by_queries(spec)
        return
    if spec.keys:
        raise InvalidSetting("keys", "The keys of a table of topics are those of its records.")
    if spec.watermark_ms is not None and spec.event_time is None:
        raise InvalidSetting("watermark_ms", "A watermark needs an event time column.")
    check_renamed(spec)
    if spec.event_time in spec.names.own and spec.event_time != spec.names.time:
        raise InvalidSetting("event_time", f"{spec.event_time} is no time.")
    has_schema = spec.schema or spec.schemas or spec.registry
    if spec.value_format in ("avro", "protobuf") and not has_schema:
        raise InvalidSetting("schema", f"{spec.value_format} values need a schema.")
    if spec.value_format == "protobuf" and not spec.message and not spec.registry:
        raise InvalidSetting("message", "Protobuf values need the name of their message.")
    check_registry(spec)
    is_by_id = spec.framing == "confluent" and spec.registry is None
    if is_by_id and spec.value_format == "avro" and not spec.schemas:
        raise InvalidSetting("schemas", "Framed Avro values need the schemas by their ids.")
    if spec.value_format == "raw" and (
        spec.columns or spec.event_time not in (None, spec.names.time)
    ):
        raise InvalidSetting("columns", "Raw values have no columns but key and value.")
    if spec.mode == "upsert" and spec.dated and spec.late == "route":
        raise InvalidSetting(
            "late", "A table that is upserted cannot route late rows: the newest row wins."
        )
    check_transformed(spec)
    for transform in spec.partition_by:
        if spec.mode == "upsert":
            raise InvalidSetting(
                "partition_by", "A table that is upserted is divided by its key (see buckets)."
            )
        kind = partition_source(spec, transform)
        if kind is not None:
            transform.result_type(kind)
    if spec.writer == "spark":
        check_writer(spec)


def partition_source(spec: TableSpec, transform: Transform) -> pa.DataType | None:
    """The type of the column that a transform takes; None if only a given schema knows it."""
    column = transform.column
    if column in spec.names.own:
        own = {item.name: item.type for item in spec.own_columns()}
        if column in own:
            return own[column]
        raise InvalidSetting("partition_by", f"Partitioning by {column} needs keep_key.")
    if column == KEY_VALUE and spec.key_format != "none":
        raise InvalidSetting(
            "partition_by",
            f"The type of {column} is not known before the first key: divide the table by "
            f"bucket(16, {spec.names.key}) with keep_key.",
        )
    kind = spec.known_columns().get(column)
    if kind is None and spec.schema is None and not spec.schemas:
        raise InvalidSetting(
            "partition_by",
            f"Partitioning by {column} needs its type before the first record: "
            f"give it in columns, such as {column}:{transform.example_type}.",
        )
    return kind


def partitioning(spec: TableSpec) -> tuple[Transform, ...]:
    """How the files of a table are divided: as the user said, or by key where rows are upserted."""
    if spec.mode == "upsert" and not spec.is_of_queries:
        return (Transform(TransformKind.BUCKET, spec.names.key, spec.buckets),)
    return spec.partition_by


def division_names(spec: TableSpec) -> frozenset[str]:
    """What divides the table and is no column of its rows, in lower case."""
    return frozenset(item.name.lower() for item in partitioning(spec) if item.name != item.column)


def _if_absent(name: str) -> object:
    """What a definition means that does not have the field."""
    if name in _IF_ABSENT:
        return _IF_ABSENT[name]
    if name in ("columns", "schemas", "time_formats", "catalog_properties"):
        return {}
    return next((item.default for item in fields(TableSpec) if item.name == name), None)
