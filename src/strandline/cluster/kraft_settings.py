"""Settings of topics and brokers as a KRaft metadata log tells them.

A log directory that Kafka wrote has its topics' settings nowhere but in the records of
`__cluster_metadata-0`. This file knows the three kinds of record that say something about settings,
the one that says which producer ids are given out, and the three that bracket transactions
(KIP-868); it skips every other kind. It does not know files or batches: it is given the values of
the records, a snapshot's before the log's.

    record  ┌──────────────────┬────────────────┬────────────────┬──────────────────────────────┐
            │ frame version  uv│ kind         uv│ version      uv│ body                         │
            └──────────────────┴────────────────┴────────────────┴──────────────────────────────┘
    body     2 topic            name · id (16 B)
             4 setting          resource type (i8) · resource name · setting name · value or null
             9 topic removed    id (16 B)
            15 producer ids     broker (4 B) · broker epoch (8 B) · the next id (8 B)
            23, 24, 25          transaction begins (name or null), ends, is aborted (reason or null)
             followed by tagged fields: count uv, and each tag uv · size uv · bytes
    string   length + 1 as uv (0: null) and UTF-8;  uv: unsigned varint of at most 32 bits

The rule is all or nothing: settings that were read halfway may lack the one that protects a topic's
records, so whatever does not fit raises `UnreadableMetadata`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from strandline.cluster.znodes import ConfigResource, ResourceKind
from strandline.errors import StrandlineError
from strandline.types import TopicId

_FRAME_VERSION: Final = 1
_TOPIC: Final = 2
_SETTING: Final = 4
_TOPIC_REMOVED: Final = 9
_PRODUCER_IDS: Final = 15
_BEGIN: Final = 23
_END: Final = 24
_ABORT: Final = 25
_KNOWN: Final = frozenset({_TOPIC, _SETTING, _TOPIC_REMOVED, _PRODUCER_IDS, _BEGIN, _END, _ABORT})
_LATEST_VERSION: Final = 0
"""Of each kind in `_KNOWN`, in Kafka 4.3."""
_ID_BYTES: Final = 16
_BROKER_BYTES: Final = 12
"""A broker's id and its epoch."""
_KINDS: Final = {int(kind): kind for kind in ResourceKind if kind > 0}


class UnreadableMetadata(StrandlineError):
    """A KRaft metadata log does not say what it must, so that nothing of it can be relied on."""


@dataclass(frozen=True, slots=True)
class KraftSettings:
    """What the metadata log says at its end."""

    topics: Mapping[str, TopicId] = field(default_factory=dict)
    """The topics that exist. One that has no overrides is known to have none."""
    overrides: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    """Settings of topics, of single brokers, and of all brokers (the empty name)."""
    next_producer_id: int = 0
    """From here on no producer id is given out."""

    def of_topic(self, name: str, topic_id: TopicId) -> Mapping[str, str] | None:
        """The overrides of the topic, or None if this log does not know that very topic."""
        if self.topics.get(name) != topic_id:
            return None
        return self.overrides.get(ConfigResource(ResourceKind.TOPIC, name), {})


def read_kraft_settings(values: Iterable[bytes | None]) -> KraftSettings:
    """Follow the metadata records from the first to the last. Raises `UnreadableMetadata`."""
    state = _State()
    for value in values:
        if value is None:
            raise UnreadableMetadata("A metadata record has no value.")
        state.follow(value)
    return state.settings()


class _State:
    """The settings so far. Records of an open transaction wait for its end."""

    def __init__(self) -> None:
        self._names: dict[TopicId, str] = {}
        self._overrides: dict[ConfigResource, dict[str, str]] = {}
        self._next_producer_id = 0
        self._in_transaction: list[bytes] | None = None

    def follow(self, value: bytes) -> None:
        """Take one record in."""
        kind = _head(_Reader(value))
        waiting = self._in_transaction
        if kind == _BEGIN:
            if waiting is not None:
                raise UnreadableMetadata("A metadata transaction begins inside another.")
            self._in_transaction = []
        elif kind in (_END, _ABORT):
            if waiting is None:
                raise UnreadableMetadata("A metadata transaction ends that never began.")
            self._in_transaction = None
            for record in waiting if kind == _END else ():
                self._apply(record)
        elif kind in _KNOWN:
            if waiting is None:
                self._apply(value)
            else:
                waiting.append(value)

    def settings(self) -> KraftSettings:
        """What holds now. A transaction without an end did not happen."""
        topics = {name: topic_id for topic_id, name in self._names.items()}
        overrides = {key: each for key, each in self._overrides.items() if each}
        return KraftSettings(topics, overrides, self._next_producer_id)

    def _apply(self, value: bytes) -> None:
        reader = _Reader(value)
        kind = _head(reader)
        if kind == _TOPIC:
            name, topic_id = reader.text(), reader.topic_id()
            self._names[topic_id] = name
        elif kind == _SETTING:
            self._set(reader)
        elif kind == _PRODUCER_IDS:
            reader.skip(_BROKER_BYTES)
            self._next_producer_id = max(self._next_producer_id, reader.producer_id())
        else:
            self._remove(reader.topic_id())
        reader.expect_end()

    def _set(self, reader: _Reader) -> None:
        kind = _KINDS.get(reader.byte())
        resource, setting, text = reader.text(), reader.text(), reader.optional_text()
        if kind is None:
            return
        overrides = self._overrides.setdefault(ConfigResource(kind, resource), {})
        if text is None:
            overrides.pop(setting, None)
        else:
            overrides[setting] = text

    def _remove(self, topic_id: TopicId) -> None:
        name = self._names.pop(topic_id, None)
        if name is None:
            raise UnreadableMetadata(f"The topic {topic_id} is removed, but there is none.")
        self._overrides.pop(ConfigResource(ResourceKind.TOPIC, name), None)


def _head(reader: _Reader) -> int:
    """The record's kind. Raises for a version whose fields are not known."""
    frame_version, kind, version = reader.number(), reader.number(), reader.number()
    if frame_version != _FRAME_VERSION:
        raise UnreadableMetadata(f"A metadata record has the frame version {frame_version}.")
    if kind in _KNOWN and version > _LATEST_VERSION:
        raise UnreadableMetadata(f"A metadata record of kind {kind} has the version {version}.")
    return kind


class _Reader:
    """A position in one record's value."""

    def __init__(self, value: bytes) -> None:
        self._value = value
        self._position = 0

    def byte(self) -> int:
        return self._take(1)[0]

    def number(self) -> int:
        """An unsigned varint."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            raise UnreadableMetadata("A number in a metadata record is too long.")
        return number

    def optional_text(self) -> str | None:
        length = self.number() - 1
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise UnreadableMetadata("A string in a metadata record is not UTF-8.") from error

    def text(self) -> str:
        text = self.optional_text()
        if text is None:
            raise UnreadableMetadata("A metadata record lacks a string that it must have.")
        return text

    def topic_id(self) -> TopicId:
        return UUID(bytes=self._take(_ID_BYTES))

    def producer_id(self) -> int:
        return int.from_bytes(self._take(8), "big", signed=True)

    def skip(self, count: int) -> None:
        self._take(count)

    def expect_end(self) -> None:
        """Skip the tagged fields, behind which nothing may follow."""
        for _ in range(self.number()):
            self.number()
            self._take(self.number())
        if self._position != len(self._value):
            raise UnreadableMetadata("A metadata record is longer than its fields.")

    def _take(self, count: int) -> bytes:
        end = self._position + count
        if end > len(self._value):
            raise UnreadableMetadata("A metadata record ends in the middle of a field.")
        taken = self._value[self._position : end]
        self._position = end
        return taken
