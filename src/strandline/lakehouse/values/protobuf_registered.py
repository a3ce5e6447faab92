"""Protobuf schemas of a registry as readers: files as descriptors, with those that they import.

In Confluent's framing, the path to the message in its file follows the id: the position of a
message at the top, of one within it, and so on.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from strandline.errors import InvalidSetting
from strandline.lakehouse.values.avro_registered import REFERENCES_MAX
from strandline.lakehouse.values.building import Record
from strandline.lakehouse.values.decoding import BAD_VALUE, Unfit
from strandline.lakehouse.values.framing import message_path
from strandline.lakehouse.values.protobuf import message_columns, read_message
from strandline.schemas.registered import Reference, Registered, RegistryClient

_OWN: Final = "google/protobuf/"


@dataclass(frozen=True)
class ProtobufReader:
    """The messages of one file."""

    file: Any
    _classes: dict[tuple[int, ...], tuple[Any, pa.Schema]] = field(default_factory=dict)

    def columns(self, payload: bytes) -> tuple[str, pa.Schema]:
        """As `Reader.columns`."""
        path, _ = message_path(payload)
        message, columns = self._class(path)
        return message.DESCRIPTOR.full_name, columns

    def read(self, payload: bytes) -> Record:
        """As `Reader.read`."""
        path, rest = message_path(payload)
        return read_message(self._class(path)[0], rest)

    def _class(self, path: tuple[int, ...]) -> tuple[Any, pa.Schema]:
        found = self._classes.get(path)
        if found is None:
            try:
                found = self._find(path)
            except (IndexError, InvalidSetting) as error:
                raise Unfit(
                    BAD_VALUE,
                    f"The file has no message at {list(path)} that columns hold: {error}.",
                ) from None
            self._classes[path] = found
        return found

    def _find(self, path: tuple[int, ...]) -> tuple[Any, pa.Schema]:
        messages = list(self.file.message_types_by_name.values())
        descriptor = messages[path[0]]
        for at in path[1:]:
            descriptor = descriptor.nested_types[at]
        return message_factory.GetMessageClass(descriptor), message_columns(descriptor)


def protobuf_reader(client: RegistryClient, schema: Registered) -> ProtobufReader:
    """Raises InvalidSetting for a file that cannot be used, and RegistryDown."""
    files: dict[str, Any] = {}
    name = f"strandline-schema-{schema.number}.proto"
    _collect(client, name, schema, files)
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in files.values():
            pool.Add(file)
        return ProtobufReader(pool.FindFileByName(name))
    except (TypeError, KeyError) as error:
        raise InvalidSetting("schema", f"The Protobuf schema cannot be used: {error}.") from None


def descriptor_set(client: RegistryClient, schema: Registered) -> str:
    """The same as a table's definition keeps it: a descriptor set in base64."""
    files: dict[str, Any] = {}
    _collect(client, f"strandline-schema-{schema.number}.proto", schema, files)
    whole = descriptor_pb2.FileDescriptorSet(file=files.values())
    return base64.b64encode(whole.SerializeToString()).decode()


def _collect(client: RegistryClient, name: str, schema: Registered, files: dict[str, Any]) -> None:
    """The file and those that it imports, in an order in which a pool takes them."""
    if len(files) >= REFERENCES_MAX:
        raise InvalidSetting("schema", f"A schema imports over {REFERENCES_MAX} files.")
    file = _parsed(schema)
    file.name = name
    references = {each.name: each for each in schema.references}
    for dependency in file.dependency:
        if dependency not in files:
            _import(client, dependency, references.get(dependency), files)
    files[name] = file


def _import(
    client: RegistryClient, name: str, reference: Reference | None, files: dict[str, Any]
) -> None:
    if reference is not None:
        number = client.version(reference.subject, reference.version).number
        _collect(client, name, client.by_id(number, serialized=True), files)
        return
    if not name.startswith(_OWN):
        raise InvalidSetting("schema", f"The Protobuf schema imports {name}, which is not there.")
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    try:
        own = import_module(module).DESCRIPTOR
    except ImportError:
        raise InvalidSetting("schema", f"The Protobuf schema imports {name}.") from None
    file = descriptor_pb2.FileDescriptorProto()
    own.CopyToProto(file)
    for dependency in file.dependency:
        if dependency not in files:
            _import(client, dependency, None, files)
    files[name] = file


def _parsed(schema: Registered) -> Any:
    file = descriptor_pb2.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(schema.text, validate=True))
    except (binascii.Error, DecodeError):
        raise InvalidSetting(
            "schema",
            f"The registry gave Protobuf schema {schema.number} as a text, and not serialized: it "
            "does not serve format=serialized.",
        ) from None
    return file
