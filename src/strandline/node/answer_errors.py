"""What an answer refuses, read off the message itself: every code with what it is about.

Knows the names that Kafka's schemas use for errors, topics, partitions and groups, and nothing of
any API: a new API is understood when it is declared. Classes without an error are skipped whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final, NamedTuple
from uuid import UUID

from strandline.errors import ErrorCode
from strandline.protocol.declare import Scalar, shape_of
from strandline.types import NO_TOPIC_ID

_TOPIC_NAMES: Final = ("topic", "topic_name", "name")
_PARTITION_NAMES: Final = ("partition_index", "index", "partition", "partition_id")
_GROUP_NAMES: Final = ("group_id", "group", "key")


class AnswerError(NamedTuple):
    """One refusal in an answer; what is not known is None, or the zero id."""

    code: ErrorCode
    message: str | None
    topic: str | None
    topic_id: UUID
    partition: int | None
    group: str | None


class _Names(NamedTuple):
    """Where a class has what is of interest here."""

    has_error: bool
    message: str | None
    topic: str | None
    topic_id: str | None
    partition: str | None
    group: str | None
    inner: tuple[tuple[str, _Names], ...]


def errors_in(response: object) -> Iterator[AnswerError]:
    """Every code in a response that is not NONE, in the order of the message."""
    declared: Any = response.__class__
    names = _names_of(declared)
    if names is not None:
        yield from _walk(response, names, None, NO_TOPIC_ID, None, None)


def _walk(
    message: Any,
    names: _Names,
    topic: str | None,
    topic_id: UUID,
    partition: int | None,
    group: str | None,
) -> Iterator[AnswerError]:
    if names.topic is not None:
        topic = getattr(message, names.topic) or topic
    if names.topic_id is not None:
        topic_id = getattr(message, names.topic_id)
    if names.partition is not None:
        partition = getattr(message, names.partition)
    if names.group is not None:
        group = getattr(message, names.group) or group
    if names.has_error and message.error_code:
        sentence = None if names.message is None else getattr(message, names.message)
        yield AnswerError(
            ErrorCode(message.error_code), sentence or None, topic, topic_id, partition, group
        )
    for name, inner in names.inner:
        for each in getattr(message, name) or ():
            yield from _walk(each, inner, topic, topic_id, partition, group)


@cache
def _names_of(declared: Any) -> _Names | None:
    """None if there can be no error anywhere in it."""
    scalars: set[str] = set()
    inner: list[tuple[str, _Names]] = []
    for field in shape_of(declared).fields:
        if isinstance(field.element, Scalar):
            scalars.add(field.name)
        elif field.is_array:
            found = _names_of(field.element)
            if found is not None:
                inner.append((field.name, found))
    has_error = "error_code" in scalars
    if not has_error and not inner:
        return None
    return _Names(
        has_error,
        "error_message" if "error_message" in scalars else None,
        _first(_TOPIC_NAMES, scalars),
        "topic_id" if "topic_id" in scalars else None,
        _first(_PARTITION_NAMES, scalars),
        _first(_GROUP_NAMES, scalars),
        tuple(inner),
    )


def _first(names: tuple[str, ...], among: set[str]) -> str | None:
    return next((name for name in names if name in among), None)
