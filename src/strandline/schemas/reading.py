"""The keys or values of one topic as Avro: framed by their id, plain by the topic's own schema.

Whether a value is framed cannot be seen for certain: a plain one may begin with a zero byte, too. A
file that was given for this very topic says that its values are plain, and is believed first.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final, NamedTuple

from strandline.schemas.errors import Unreadable
from strandline.schemas.framing import is_framed, unframe
from strandline.schemas.sources import NamedSchema, Part, Schemas
from strandline.schemas.walk import Limits

LOOKUPS_MAX: Final = 50
"""Of different ids by one reader: bytes that are no Avro look like as many ids as there are."""


class AvroValue(NamedTuple):
    """What a value is, and the schema that it was read with."""

    schema: str
    value: object


class AvroReader:
    """Reads; looks schemas up once, so that one object serves one answer or one command."""

    def __init__(
        self,
        schemas: Schemas,
        topic: str,
        part: Part,
        limits: Limits,
        lookups_max: int = LOOKUPS_MAX,
    ) -> None:
        self._schemas = schemas
        self._topic = topic
        self._part = part
        self._limits = limits
        self._lookups_max = lookups_max
        self._found: dict[int | None, NamedSchema | Unreadable | None] = {}

    def read(self, data: bytes) -> AvroValue:
        """The value; raises `Unreadable`, whose sentence says what is missing or wrong."""
        if find_spec("fastavro") is None:
            raise Unreadable("Avro values need the package fastavro: install strandline[avro].")
        plain = self._schema(None)
        if plain is not None:
            try:
                return self._read(plain, data)
            except Unreadable as error:
                return self._read_framed_instead(data, error)
        if not is_framed(data):
            raise Unreadable(
                "It does not begin with a schema id (a zero byte and 4 more). "
                + self._schemas.lack_of_plain(self._topic, self._part)
            )
        return self._read_framed(data)

    @property
    def has_own_schema(self) -> bool:
        """Whether a schema was given for plain values of this topic, of use or not."""
        try:
            return self._schema(None) is not None
        except Unreadable:
            return True

    def _read_framed_instead(self, data: bytes, error: Unreadable) -> AvroValue:
        if not is_framed(data):
            raise error
        try:
            return self._read_framed(data)
        except Unreadable:
            raise error from None  # what was given for this topic is what its person asks about

    def _read_framed(self, data: bytes) -> AvroValue:
        number, payload = unframe(data)
        schema = self._schema(number)
        if schema is None:
            raise Unreadable(f"Schema {number} is not known.")
        return self._read(schema, payload)

    def _read(self, schema: NamedSchema, payload: bytes) -> AvroValue:
        return AvroValue(schema.name, schema.avro.read(payload, self._limits))

    def _schema(self, number: int | None) -> NamedSchema | None:
        """By its id, or the topic's own; what was found, or was not, is kept."""
        if number not in self._found:
            if len(self._found) > self._lookups_max:
                raise Unreadable(
                    f"Schema {number} is not looked up: {self._lookups_max} others were."
                )
            try:
                self._found[number] = (
                    self._schemas.of_topic(self._topic, self._part)
                    if number is None
                    else self._schemas.by_id(number)
                )
            except Unreadable as error:
                self._found[number] = error
        found = self._found[number]
        if isinstance(found, Unreadable):
            raise found
        return found
