"""`meta.properties`: whose log directory this is, so that no broker opens another one's data.

This file knows the properties and how they must agree. It must not make up ids: the cluster id is
given from outside. Two versions exist. Version 0 (brokers with ZooKeeper) names `broker.id` and
`cluster.id`, either of which may be missing; version 1 (KRaft) names `node.id` and `cluster.id`.
Both may carry `directory.id` (KIP-858). We write version 0 and leave a version 1 that agrees as it
is; Kafka reads both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from strandline.config.properties import parse_properties
from strandline.errors import InvalidSetting, StorageError
from strandline.storage.files import Files, MissingFile, join
from strandline.storage.kafka_uuid import format_uuid, parse_uuid
from strandline.types import BrokerId

FILE_NAME: Final = "meta.properties"
VERSION_ZOOKEEPER: Final = 0
VERSION_KRAFT: Final = 1
RESERVED_DIRECTORY_IDS: Final = 100
"""Directory ids below this number have a meaning of their own in Kafka's metadata."""

_ID_PROPERTY: Final = {VERSION_ZOOKEEPER: "broker.id", VERSION_KRAFT: "node.id"}


class ForeignDirectory(StorageError):
    """A log directory belongs to another broker or cluster, or does not say to whom."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """What the file says. Version 0 may leave out everything."""

    broker_id: BrokerId | None
    cluster_id: str | None
    directory_id: UUID | None = None
    version: int = VERSION_ZOOKEEPER


def read_meta_properties(files: Files, directory: str) -> MetaProperties | None:
    """The file in a log directory; None without one. Raises `ForeignDirectory` if unreadable."""
    path = join(directory, FILE_NAME)
    try:
        data = files.read_bytes(path)
    except MissingFile:
        return None
    try:
        return _from_properties(parse_properties(data.decode("latin-1")))
    except (ValueError, InvalidSetting) as error:
        raise ForeignDirectory(f"The file {path} cannot be used: {error}") from error


def claim_directory(
    files: Files, directory: str, broker_id: BrokerId, cluster_id: str
) -> MetaProperties:
    """Make sure that the log directory is ours, and say so durably if it does not yet.

    Raises `ForeignDirectory` with a sentence that says what differs.
    """
    present = read_meta_properties(files, directory) or MetaProperties(None, None)
    path = join(directory, FILE_NAME)
    if present.broker_id is not None and present.broker_id != broker_id:
        raise ForeignDirectory(
            f"The log directory {directory} belongs to broker {present.broker_id}, but this is "
            f"broker {broker_id}. If you moved the data, correct the id in {path}."
        )
    if present.cluster_id is not None and present.cluster_id != cluster_id:
        raise ForeignDirectory(
            f"The log directory {directory} belongs to the cluster {present.cluster_id!r}, but "
            f"this broker is in the cluster {cluster_id!r}. It may be configured for the wrong "
            f"cluster; the directory's own claim is in {path}."
        )
    claimed = MetaProperties(broker_id, cluster_id, present.directory_id, present.version)
    if claimed != present:
        files.write_atomically(path, _encode(claimed))
    return claimed


def check_directory_ids(found: Mapping[str, MetaProperties]) -> None:
    """Raise `ForeignDirectory` if log directories of one broker share or misuse a directory id."""
    seen: dict[UUID, str] = {}
    for directory, properties in found.items():
        directory_id = properties.directory_id
        if directory_id is None:
            continue
        if directory_id.int < RESERVED_DIRECTORY_IDS:
            raise ForeignDirectory(
                f"The log directory {directory} has the reserved directory id "
                f"{format_uuid(directory_id)}."
            )
        other = seen.setdefault(directory_id, directory)
        if other != directory:
            raise ForeignDirectory(
                f"The log directories {other} and {directory} have the same directory id "
                f"{format_uuid(directory_id)}: one seems to be a copy of the other."
            )


def _from_properties(properties: Mapping[str, str]) -> MetaProperties:
    version = _integer(properties, "version") if "version" in properties else VERSION_ZOOKEEPER
    if version not in _ID_PROPERTY:
        raise ValueError(f"its version is {version}, and only 0 and 1 are known.")
    id_property = _ID_PROPERTY[version]
    if version == VERSION_KRAFT:
        for name in (id_property, "cluster.id"):
            if name not in properties:
                raise ValueError(f"version 1 needs {name}, which is missing.")
    broker_id = _integer(properties, id_property) if id_property in properties else None
    directory_id = properties.get("directory.id")
    return MetaProperties(
        broker_id=None if broker_id is None else BrokerId(broker_id),
        cluster_id=properties.get("cluster.id"),
        directory_id=None if directory_id is None else parse_uuid(directory_id),
        version=version,
    )


def _encode(meta: MetaProperties) -> bytes:
    properties = {"version": str(meta.version)}
    if meta.broker_id is not None:
        properties[_ID_PROPERTY[meta.version]] = str(meta.broker_id)
    if meta.cluster_id is not None:
        properties["cluster.id"] = meta.cluster_id
    if meta.directory_id is not None:
        properties["directory.id"] = format_uuid(meta.directory_id)
    return "".join(f"{name}={_escape(value)}\n" for name, value in properties.items()).encode()


def _escape(value: str) -> str:
    """As Java writes a value; what is not printable ASCII becomes UTF-16 units."""
    units = memoryview(value.encode("utf-16-le")).cast("H")
    return "".join(
        f"\\u{unit:04X}"
        if not 0x20 < unit < 0x7F
        else f"\\{chr(unit)}"
        if chr(unit) in "\\=:#!"
        else chr(unit)
        for unit in units
    )


def _integer(properties: Mapping[str, str], name: str) -> int:
    text = properties[name].strip() if name == "version" else properties[name]
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"{name} is {text!r}, which is not a number.") from error
