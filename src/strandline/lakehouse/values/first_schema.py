"""What a registry's newest version of a subject gives a table before its first record: columns.

A table needs them only to be divided or dated by one of them; without a subject they come with the
first record. They are copied into the definition, so that they do not change with the registry.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.errors import InvalidSetting
from strandline.lakehouse.values.json_schema import read_json_schema
from strandline.lakehouse.values.registered import client_of
from strandline.schemas.errors import UnknownSchema
from strandline.schemas.registered import Registered, RegistryClient

_KINDS: Final = {"avro": "AVRO", "json": "JSON", "protobuf": "PROTOBUF"}


class FirstSchema(NamedTuple):
    """`schema` and `message` as a definition keeps them, None without one; and what to tell."""

    schema: str | None
    message: str | None
    told: str


def first_schema(
    registry: str, subject: str, value_format: str, message: str | None = None
) -> FirstSchema:
    """Ask for it. Raises `RegistryDown`, and `InvalidSetting` for a schema of another kind."""
    client = client_of(registry)
    later = "The table gets its columns with its first records."
    try:
        newest = client.latest(subject)
    except UnknownSchema as unknown:
        return FirstSchema(None, message, f"{unknown} {later}")
    told = f"Its columns are those of schema {newest.number}, the newest of subject {subject}."
    if newest.kind != _KINDS[value_format]:
        raise InvalidSetting(
            "registry", f"Schema {newest.number} of subject {subject} is one of {newest.kind}."
        )
    try:
        schema, named = _as_kept(client, newest, message)
    except InvalidSetting as wrong:
        if value_format != "json":
            raise
        return FirstSchema(None, message, f"{wrong} {later}")
    if schema is None:
        return FirstSchema(None, message, f"Schema {newest.number} refers to others. {later}")
    return FirstSchema(schema, named, told)


def _as_kept(
    client: RegistryClient, newest: Registered, message: str | None
) -> tuple[str | None, str | None]:
    if newest.kind == "PROTOBUF":
        from strandline.lakehouse.values.protobuf_registered import descriptor_set, protobuf_reader

        serialized = client.by_id(newest.number, serialized=True)
        file = protobuf_reader(client, serialized).file
        names = [each.full_name for each in file.message_types_by_name.values()]
        if not names:
            raise InvalidSetting("schema", f"Schema {newest.number} has no message.")
        return descriptor_set(client, serialized), message or names[0]
    if newest.kind == "JSON":
        read_json_schema(newest.text)
        return newest.text, None
    return (None if newest.references else newest.text), None
