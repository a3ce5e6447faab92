"""Keys and values that `consume` prints as JSON although they are Avro."""

from __future__ import annotations

from typing import Final

import click

from strandline.cli.record_format import Formatter
from strandline.records.record import Record
from strandline.schemas.errors import Unreadable
from strandline.schemas.reading import AvroReader
from strandline.schemas.shown import json_text
from strandline.schemas.sources import Part, Schemas
from strandline.schemas.walk import Limits
from strandline.types import TopicPartition

_LIMITS: Final = Limits(items=1_000_000)
_SCHEMAS_MAX: Final = 10_000
_SHOWN_MAX: Final = 20
"""Different sentences about what cannot be decoded; more of them would bury the records."""


class AvroFormatter:
    """Decodes, and has the rest done by another formatter.

    What cannot be decoded is printed as it is, and why is said once on standard error.
    """

    def __init__(self, formatter: Formatter, schemas: Schemas, topic: str, parts: set[Part]):
        self._formatter = formatter
        self._schemas = schemas
        self._topic = topic
        self._readers = {part: self._reader(part) for part in parts}
        self._shown: set[str] = set()

    def __call__(self, partition: TopicPartition, record: Record) -> bytes:
        """The record as the other formatter has it, with JSON for Avro."""
        return self._formatter(
            partition,
            record._replace(
                key=self._decoded("key", record.key, record.offset),
                value=self._decoded("value", record.value, record.offset),
            ),
        )

    def _decoded(self, part: Part, data: bytes | None, offset: int) -> bytes | None:
        reader = self._readers.get(part)
        if data is None or reader is None:
            return data
        try:
            return json_text(reader.read(data).value).encode()
        except Unreadable as error:
            # A new one asks again: the schema may be there when the next record comes.
            self._readers[part] = self._reader(part)
            self._tell(f"{part.capitalize()} at offset {offset}", str(error))
            return data

    def _tell(self, where: str, sentence: str) -> None:
        if sentence not in self._shown and len(self._shown) < _SHOWN_MAX:
            self._shown.add(sentence)
            click.echo(f"{where}: {sentence} It is printed as it is.", err=True)

    def _reader(self, part: Part) -> AvroReader:
        return AvroReader(self._schemas, self._topic, part, _LIMITS, _SCHEMAS_MAX)
