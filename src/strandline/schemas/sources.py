"""All schemas that were named: files first, which the user chose, then the registry.

This file knows no fastavro, so that it can say what is missing where that is not installed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from strandline.errors import InvalidSetting
from strandline.schemas.errors import BadSchema, UnknownSchema, Unreadable
from strandline.schemas.folder import SchemaFolder
from strandline.schemas.places import SchemaPlaces
from strandline.schemas.registry import Registry

if TYPE_CHECKING:
    from strandline.schemas.avro import AvroSchema

Part: TypeAlias = Literal["key", "value"]

_PARSED_MAX: Final = 64


class NamedSchema(NamedTuple):
    """A schema, and what it is called: `schema 7`, or the name of its file."""

    name: str
    avro: AvroSchema


class Schemas:
    """Where schemas are. Safe to be asked by several threads."""

    def __init__(self, folder: SchemaFolder | None = None, registry: Registry | None = None):
        self._folder = folder
        self._registry = registry
        self._lock = threading.Lock()
        self._parsed: OrderedDict[str, AvroSchema | BadSchema] = OrderedDict()

    @classmethod
    def at(cls, places: SchemaPlaces) -> Schemas:
        """What a person names; raises `InvalidSetting`."""
        return cls(
            None if places.directory is None else SchemaFolder(Path(places.directory)),
            None if places.registry is None else Registry(places.registry),
        )

    def by_id(self, number: int) -> NamedSchema:
        """The schema of framed values; raises `UnknownSchema`, or `Unreadable` if it is no use."""
        name = f"schema {number}"
        text = self._in_folder(f"{number}.avsc")
        if text is None and self._registry is not None:
            text = self._registry.text(number)
        if text is None:
            raise UnknownSchema(f"Schema {number} is not known: {self._what_is_missing(number)}.")
        return self._named(name, text)

    def of_topic(self, topic: str, part: Part) -> NamedSchema | None:
        """The schema of a topic's plain values, if one was given; raises as `by_id`."""
        name = f"{topic}-{part}.avsc"
        text = self._in_folder(name)
        return None if text is None else self._named(name, text)

    def lack_of_plain(self, topic: str, part: Part) -> str:
        """What a person can do when `of_topic` has found nothing, as a sentence."""
        file = f"{topic}-{part}.avsc"
        if self._folder is None:
            return f"For Avro without a schema id, name a directory with {file}: --schemas DIR."
        return f"For Avro without a schema id, put {file} into the directory of schemas."

    def _what_is_missing(self, number: int) -> str:
        if self._folder is None:
            return (
                "no schema registry was named (--schema-registry URL), "
                "and no directory of schemas (--schemas DIR)"
            )
        return (
            f"there is no {number}.avsc in the directory of schemas, "
            "and no schema registry was named (--schema-registry URL)"
        )

    def _in_folder(self, name: str) -> str | None:
        if self._folder is None:
            return None
        try:
            return self._folder.text(name)
        except BadSchema as error:
            raise Unreadable(str(error)) from error

    def _named(self, name: str, text: str) -> NamedSchema:
        """The text parsed, once for all who ask."""
        with self._lock:
            found = self._parsed.pop(text, None)
            if found is None:
                found = _parse(text)
                if len(self._parsed) >= _PARSED_MAX:
                    self._parsed.popitem(last=False)
            self._parsed[text] = found
        if isinstance(found, BadSchema):
            raise Unreadable(f"{name[:1].upper()}{name[1:]} is no use: {found}")
        return NamedSchema(name, found)


def _parse(text: str) -> AvroSchema | BadSchema:
    try:
        from strandline.schemas.avro import AvroSchema
    except InvalidSetting as missing:
        return BadSchema(str(missing))
    try:
        return AvroSchema(text)
    except BadSchema as error:
        return error
