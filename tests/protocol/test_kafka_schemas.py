"""Our declarations against Kafka's own schemas, which its jars carry as JSON.

`STRANDLINE_KAFKA_JARS` names a directory with `kafka-clients-*.jar` and
`kafka-group-coordinator-*.jar`; without it these tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from strandline.protocol import apis
from strandline.protocol.declare import Field, Scalar, Shape, shape_of
from strandline.protocol.messages import (
    consumer_groups_topic,
    consumer_protocol,
    offsets_topic,
)
from strandline.protocol.versions import NO_VERSIONS, VersionRange, parse_versions

JARS = os.environ.get("STRANDLINE_KAFKA_JARS", "")

pytestmark = pytest.mark.skipif(
    not JARS, reason="STRANDLINE_KAFKA_JARS does not name a directory of Kafka's jars"
)

KEY_KINDS = {
    "GroupMetadataKey": 2,
    "ConsumerGroupMetadataKey": 3,
    "ConsumerGroupPartitionMetadataKey": 4,
    "ConsumerGroupMemberMetadataKey": 5,
    "ConsumerGroupTargetAssignmentMetadataKey": 6,
    "ConsumerGroupTargetAssignmentMemberKey": 7,
    "ConsumerGroupCurrentMemberAssignmentKey": 8,
    "ConsumerGroupRegularExpressionKey": 16,
    "ShareGroupMemberMetadataKey": 10,
    "ShareGroupMetadataKey": 11,
    "ShareGroupTargetAssignmentMetadataKey": 12,
    "ShareGroupTargetAssignmentMemberKey": 13,
    "ShareGroupCurrentMemberAssignmentKey": 14,
    "ShareGroupStatePartitionMetadataKey": 15,
    "ShareUpdateKey": 1,
}
KEY_VERSIONS = {"OffsetCommitKey": VersionRange(0, 1)} | {
    name: VersionRange(kind, kind) for name, kind in KEY_KINDS.items()
}
"""Kafka writes a key's kind where other messages have their version, and calls all of them 0."""

OUR_OWN = {
    f"{apis.KNOWN[key].name}{kind}" for key in apis.PRIVATE for kind in ("Request", "Response")
}

RENAMED = {
    "AlteredTopicData": "TopicData",
    "AlteredPartitionData": "PartitionData",
    "EntryResult": "EntryData",
}
"""Structures that Kafka calls the same in a request and in its response."""


def test_every_message_is_declared_as_in_kafka(declared: Any) -> None:
    ours = shape_of(declared)
    if ours.name in OUR_OWN:
        assert ours.name not in schemas()
        return
    theirs = schemas()[ours.name]
    versions = KEY_VERSIONS.get(ours.name) or stable_versions(theirs)
    assert ours.versions == versions
    flexible = parse_versions(theirs["flexibleVersions"])
    for version in range(versions.lowest, versions.highest + 1):
        assert ours.flexible.covers(version) == flexible.covers(version)
    if ours.name in KEY_VERSIONS:
        versions = VersionRange(0, 0)
    common = {each["name"]: each["fields"] for each in theirs.get("commonStructs", [])}
    compare(ours, theirs["fields"], versions, common, path=ours.name)


def test_the_table_of_apis_is_kafkas() -> None:
    for api in apis.KNOWN.values():
        if api.key in apis.PRIVATE:
            assert api.key not in {schema.get("apiKey") for schema in schemas().values()}
            continue
        theirs = schemas()[f"{api.name}Request"]
        assert theirs["apiKey"] == api.key
        assert stable_versions(theirs) == api.versions
        assert stable_versions(schemas()[f"{api.name}Response"]).covers(api.versions.highest)
        flexible = parse_versions(theirs["flexibleVersions"])
        assert api.flexible_from == (None if flexible.empty else flexible.lowest)


@cache
def schemas() -> dict[str, Any]:
    """All schemas by name."""
    found: dict[str, Any] = {}
    for pattern in (
        "kafka-clients-*.jar",
        "kafka-group-coordinator-4*.jar",
        "kafka-share-coordinator-4*.jar",
    ):
        (jar,) = Path(JARS).glob(pattern)
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if re.fullmatch(r"common/message/\w+\.json", entry):
                    schema = json.loads(without_comments(archive.read(entry).decode()))
                    found[schema["name"]] = schema
    return found


def without_comments(text: str) -> str:
    """Drop `//` comments, which stand on lines of their own or behind a comma or brace."""
    return re.sub(r'(?m)^\s*//.*$|(?<=[,{\[}\]"])\s*//[^"\n]*$', "", text)


def stable_versions(schema: dict[str, Any]) -> VersionRange:
    """The versions that brokers show to all clients."""
    name = schema["name"].removesuffix("Response") + "Request"
    versions = parse_versions(schema["validVersions"])
    request = schemas().get(name, schema) if schema["name"].endswith("Response") else schema
    if request.get("latestVersionUnstable", False):
        return VersionRange(versions.lowest, versions.highest - 1)
    return versions


@dataclass(frozen=True)
class Facts:
    """What both sides must agree on, for one field within the versions of its owner."""

    type: str
    versions: VersionRange
    nullable: VersionRange
    tag: int | None
    default: object
    ignorable: bool


def compare(
    ours: Shape, fields: list[dict[str, Any]], scope: VersionRange, common: Any, path: str
) -> None:
    present = [each for each in fields if not within(each["versions"], scope).empty]
    assert [name_of(each["name"]) for each in present] == [each.name for each in ours.fields], path
    for their_field, our_field in zip(present, ours.fields, strict=True):
        here = f"{path}.{our_field.name}"
        theirs = their_facts(their_field, scope)
        assert our_facts(our_field, theirs.versions, theirs.ignorable) == theirs, here
        inner = their_field.get("fields") or common.get(their_field["type"].removeprefix("[]"))
        if inner is not None:
            compare(our_field.shape, inner, theirs.versions, common, here)


def within(versions: str, scope: VersionRange) -> VersionRange:
    shared = parse_versions(versions).overlap(scope)
    return NO_VERSIONS if shared.empty else shared


def their_facts(field: dict[str, Any], scope: VersionRange) -> Facts:
    versions = within(field["versions"], scope)
    if "tag" in field:
        assert within(field["taggedVersions"], scope) == versions
    return Facts(
        type=field["type"],
        versions=versions,
        nullable=within(field.get("nullableVersions", "none"), versions),
        tag=field.get("tag"),
        default=their_default(field),
        ignorable=field.get("ignorable", False),
    )


def their_default(field: dict[str, Any]) -> object:
    kind, written = field["type"], field.get("default")
    if written == "null" or kind == "records":
        return None
    if kind.startswith("[]"):
        return []
    if kind[0].isupper():
        return "structure of defaults"
    if kind == "bool":
        return str(written).lower() == "true"
    if kind in ("string", "bytes"):
        return written or ("" if kind == "string" else b"")
    if kind == "uuid":
        return UUID(int=0)
    return int(str(written or 0), 0)


def our_facts(field: Field, scope: VersionRange, their_ignorable: bool) -> Facts:
    """Ours, within the versions in which Kafka has the field at all.

    Whether it may be dropped matters only where a version of the owner lacks it.
    """
    element = field.element
    name = element.name if isinstance(element, Scalar) else element.__name__
    name = RENAMED.get(name, name)
    absent_structure = field.tag is not None and not isinstance(element, Scalar)
    default = field.default
    if isinstance(default, type) or (absent_structure and default is None):
        default = "structure of defaults"
    nullable = field.nullable.overlap(scope)
    everywhere = field.versions.lowest == 0 and field.versions.highest >= scope.highest
    return Facts(
        type=f"[]{name}" if field.is_array else name,
        versions=field.versions.overlap(scope),
        nullable=NO_VERSIONS if nullable.empty else nullable,
        tag=field.tag,
        default=default,
        ignorable=their_ignorable if everywhere else field.ignorable,
    )


def name_of(theirs: str) -> str:
    """Kafka's camel case as our snake case."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", theirs[0].upper() + theirs[1:])
    return spaced.lower()


def test_the_modules_outside_the_table_are_covered() -> None:
    for module in (consumer_protocol, offsets_topic, consumer_groups_topic):
        for name in vars(module):
            if name.startswith(("ConsumerProtocol", "OffsetCommit", "GroupMetadata")):
                assert name in schemas()
