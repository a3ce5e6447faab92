"""What a page may change if its server was started with `--edit`: produce a record, reset a group.

Both are Kafka's own requests, made by the page's server with its rights. What comes from a page is
checked here before a broker hears of it. This file knows bodies and the clients, and no HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from strandline.client.admin_groups import GroupAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.group_positions import GroupPositions
from strandline.client.group_reset import Target, TargetKind, check_is_idle, new_offsets
from strandline.client.producer import Producer, ProducerSettings
from strandline.numerals import INT64_MAX
from strandline.types import TopicPartition
from strandline.ui.decoding import Json
from strandline.ui.questions import BadQuestion

_HEADERS_MAX: Final = 50
_TARGETS: Final = {each.value: each for each in TargetKind if each is not TargetKind.SHIFT}
_VALUED: Final = (TargetKind.OFFSET, TargetKind.TIME)
_SETTINGS: Final = ProducerSettings(delivery_timeout_ms=10_000, may_create_topics=False)

Edit = Callable[[ClusterClient, str, Json], Json]
"""Changes something of the topic or group with that name, as a body says; returns what was done."""


def body_of(data: bytes) -> Json:
    """What a page sends. Raises `BadQuestion`."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise BadQuestion("The body is no JSON.") from None
    if not isinstance(found, dict):
        raise BadQuestion("The body is a JSON object.")
    return found


def produce(cluster: ClusterClient, topic: str, body: Json) -> Json:
    """One record: `partition` (or by the key), `key`, `value` (null is a tombstone), `headers` as
    pairs of text; all as UTF-8. Returns its partition and offset. Raises `BadQuestion`,
    `ProtocolError`."""
    headers = _value(body, "headers", list, [])
    if len(headers) > _HEADERS_MAX:
        raise BadQuestion(f"A record gets at most {_HEADERS_MAX} headers here.")
    with Producer(cluster, _SETTINGS) as producer:
        delivery = producer.send(
            topic,
            _bytes(body, "value"),
            key=_bytes(body, "key"),
            partition=_value(body, "partition", int, None),
            headers=[_header(each) for each in headers],
        )
        producer.flush().raise_failure()
    return {"partition": delivery.topic_partition.partition, "offset": delivery.result()}


def reset(cluster: ClusterClient, group: str, body: Json) -> Json:
    """Offsets of a group without members: `topic`, `to` (earliest, latest, offset or time) and
    `value` for the last two. Returns each partition with its offset before and after. Raises
    `BadQuestion`, `ProtocolError` (NON_EMPTY_GROUP, UNKNOWN_TOPIC_OR_PARTITION)."""
    topic = _value(body, "topic", str, "")
    kind = _TARGETS.get(_value(body, "to", str, ""))
    if not topic or kind is None:
        raise BadQuestion(f"A reset names a 'topic', and 'to' is one of {', '.join(_TARGETS)}.")
    value = _value(body, "value", int, None)
    if kind in _VALUED and (value is None or not 0 <= value <= INT64_MAX):
        raise BadQuestion("'value' is a whole number from 0 on.")
    found = check_is_idle(GroupAdmin(cluster), group, may_be_new=True)
    positions = GroupPositions(cluster, group, found)
    before = positions.stored()
    numbers = cluster.topic(topic).partitions
    partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
    plan = new_offsets(cluster, partitions, before, Target(kind, value or 0))
    positions.store(plan)
    return {"partitions": [[*at, before.get(at), plan[at]] for at in partitions]}


def _header(pair: Any) -> tuple[str, bytes | None]:
    if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
        raise BadQuestion("A header is a pair of a name and a text.")
    return pair[0], _encoded(pair[1], "a header")


def _bytes(body: Json, name: str) -> bytes | None:
    return _encoded(body.get(name), f"'{name}'")


def _encoded(text: object, what: str) -> bytes | None:
    if text is None:
        return None
    try:
        if isinstance(text, str):
            return text.encode()
    except UnicodeEncodeError:
        pass
    raise BadQuestion(f"The text of {what} is no text.")


def _value(body: Json, name: str, kind: type, default: Any) -> Any:
    """What stands in the body; null is as good as nothing."""
    found = body.get(name)
    if found is None:
        return default
    if not isinstance(found, kind) or isinstance(found, bool):
        raise BadQuestion(f"'{name}' is not as it should be.")
    return found
