"""Settings out of KRaft's metadata records: what they mean, and that nothing is read halfway."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.cluster.kraft_settings import KraftSettings, UnreadableMetadata, read_kraft_settings
from strandline.cluster.znodes import ConfigResource, ResourceKind

FIRST = UUID(int=0x1111)
SECOND = UUID(int=0x2222)
TOPIC_KIND, BROKER_KIND = 2, 4


def number(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def text(value: str | None) -> bytes:
    return b"\0" if value is None else number(len(value.encode()) + 1) + value.encode()


def record(
    kind: int, body: bytes, *, version: int = 0, frame: int = 1, tags: bytes = b"\0"
) -> bytes:
    return number(frame) + number(kind) + number(version) + body + tags


def topic(name: str, topic_id: UUID = FIRST) -> bytes:
    return record(2, text(name) + topic_id.bytes)


def setting(kind: int, resource: str, name: str, value: str | None) -> bytes:
    return record(4, bytes([kind]) + text(resource) + text(name) + text(value))


def removed(topic_id: UUID) -> bytes:
    return record(9, topic_id.bytes)


BEGIN, END, ABORT = record(23, b"\0"), record(24, b""), record(25, b"\0")


def of_topics(settings: KraftSettings) -> dict[str, dict[str, str]]:
    return {
        name: dict(settings.of_topic(name, topic_id) or {})
        for name, topic_id in settings.topics.items()
    }


def test_the_bytes_of_kafkas_own_records() -> None:
    """As Kafka 4.3 writes them: a topic, retention.ms=-1 for it, and its removal."""
    made = bytes.fromhex("01020002") + b"a" + FIRST.bytes + b"\0"
    kept = bytes.fromhex("010400020261") + b"\x0dretention.ms" + b"\x03-1" + b"\0"
    assert read_kraft_settings([made, kept]).of_topic("a", FIRST) == {"retention.ms": "-1"}
    gone = bytes.fromhex("010900") + FIRST.bytes + b"\0"
    assert read_kraft_settings([made, kept, gone]) == KraftSettings()


def test_the_next_producer_id_is_that_of_the_last_block() -> None:
    """As Kafka 4.3 writes them: broker 7 has got the first block, then the second."""
    first, second = (
        record(15, (7).to_bytes(4, "big") + (12).to_bytes(8, "big") + each.to_bytes(8, "big"))
        for each in (1000, 2000)
    )
    assert read_kraft_settings([first, second]).next_producer_id == 2000
    assert read_kraft_settings([]).next_producer_id == 0
    with pytest.raises(UnreadableMetadata):
        read_kraft_settings([first[:-3]])


def test_later_records_win_and_null_removes() -> None:
    settings = read_kraft_settings(
        [
            topic("a"),
            setting(TOPIC_KIND, "a", "retention.ms", "1"),
            setting(TOPIC_KIND, "a", "retention.ms", "2"),
            setting(TOPIC_KIND, "a", "segment.ms", "3"),
            setting(TOPIC_KIND, "a", "segment.ms", None),
            setting(TOPIC_KIND, "a", "flush.ms", None),
        ]
    )
    assert of_topics(settings) == {"a": {"retention.ms": "2"}}


def test_settings_may_come_before_their_topic() -> None:
    assert of_topics(
        read_kraft_settings([setting(TOPIC_KIND, "a", "retention.ms", "1"), topic("a")])
    ) == {"a": {"retention.ms": "1"}}


def test_a_topic_made_again_does_not_inherit() -> None:
    settings = read_kraft_settings(
        [
            topic("a", FIRST),
            setting(TOPIC_KIND, "a", "retention.ms", "1"),
            removed(FIRST),
            topic("a", SECOND),
        ]
    )
    assert settings.of_topic("a", SECOND) == {}
    assert settings.of_topic("a", FIRST) is None
    assert settings.of_topic("b", SECOND) is None


def test_brokers_and_the_defaults_of_all_groups_and_nothing_else() -> None:
    settings = read_kraft_settings(
        [
            setting(BROKER_KIND, "", "message.max.bytes", "5"),
            setting(BROKER_KIND, "3", "log.cleaner.threads", "2"),
            setting(16, "metrics", "interval.ms", "7"),
            setting(32, "group", "consumer.session.timeout.ms", "7"),
            setting(8, "0", "kafka", "INFO"),
        ]
    )
    assert settings.overrides == {
        ConfigResource(ResourceKind.BROKER, ""): {"message.max.bytes": "5"},
        ConfigResource(ResourceKind.BROKER, "3"): {"log.cleaner.threads": "2"},
        ConfigResource(ResourceKind.GROUP, "group"): {"consumer.session.timeout.ms": "7"},
    }


def test_a_transaction_happens_at_its_end_or_not_at_all() -> None:
    one, two = topic("one", FIRST), topic("two", SECOND)
    assert read_kraft_settings([BEGIN, one, END, two]).topics.keys() == {"one", "two"}
    assert read_kraft_settings([BEGIN, one, ABORT, two]).topics.keys() == {"two"}
    assert read_kraft_settings([two, BEGIN, one]).topics.keys() == {"two"}


def test_unknown_kinds_and_tagged_fields_are_skipped() -> None:
    unknown = record(999, b"\xff\xff", version=77)
    tags = number(2) + number(0) + number(1) + b"x" + number(300) + number(0)
    tagged = record(2, text("a") + FIRST.bytes, tags=tags)
    assert of_topics(read_kraft_settings([unknown, tagged])) == {"a": {}}


@pytest.mark.parametrize(
    "values",
    [
        [None],
        [b""],
        [record(2, text("a") + FIRST.bytes, frame=2)],
        [record(4, b"", version=1)],
        [record(2, text(None) + FIRST.bytes)],
        [record(2, text("a") + FIRST.bytes[:-1], tags=b"")],
        [topic("a") + b"\0"],
        [record(4, b"\x02" + b"\x02\xff" + text("b") + text("c"))],
        [setting(TOPIC_KIND, "a", "b", "c")[:-1]],
        [b"\x80\x80\x80\x80\x80\x01"],
        [record(2, text("a") + FIRST.bytes, tags=b"\xff\xff\xff\xff\x0f")],
        [removed(FIRST)],
        [END],
        [ABORT],
        [BEGIN, BEGIN],
    ],
)
def test_what_does_not_fit_is_unreadable(values: Sequence[bytes | None]) -> None:
    with pytest.raises(UnreadableMetadata):
        read_kraft_settings(values)


@given(st.lists(st.none() | st.binary(max_size=60), max_size=5))
def test_any_bytes_are_settings_or_unreadable(values: list[bytes | None]) -> None:
    _settings_or_unreadable(values)


@given(st.data())
def test_damaged_records_are_settings_or_unreadable(data: st.DataObject) -> None:
    values = [
        topic("a"),
        setting(TOPIC_KIND, "a", "retention.ms", "-1"),
        BEGIN,
        END,
        removed(FIRST),
    ]
    at = data.draw(st.integers(0, len(values) - 1))
    damaged = bytearray(values[at])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    values[at] = bytes(damaged)[: data.draw(st.integers(0, len(damaged)))]
    _settings_or_unreadable(values)


def _settings_or_unreadable(values: Sequence[bytes | None]) -> None:
    """Any other exception fails the test."""
    with suppress(UnreadableMetadata):
        assert isinstance(read_kraft_settings(values), KraftSettings)


NAMES = st.sampled_from(["retention.ms", "cleanup.policy", "segment.ms"])


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 2), NAMES, st.none() | st.text(max_size=9)),
        max_size=30,
    )
)
def test_a_random_history_is_followed_as_by_a_plain_model(
    steps: list[tuple[str, int, str, str | None]],
) -> None:
    """0 makes or removes the topic, anything else changes a setting of it."""
    ids: dict[str, UUID] = {}
    overrides: dict[str, dict[str, str]] = {"a": {}, "b": {}}
    values = []
    for count, (name, what, key, value) in enumerate(steps):
        if what > 0:
            values.append(setting(TOPIC_KIND, name, key, value))
            overrides[name].pop(key, None)
            if value is not None:
                overrides[name][key] = value
        elif name in ids:
            values.append(removed(ids.pop(name)))
            overrides[name] = {}
        else:
            ids[name] = UUID(int=count + 1)
            values.append(topic(name, ids[name]))
    settings = read_kraft_settings(values)
    assert settings.topics == ids
    assert of_topics(settings) == {name: overrides[name] for name in ids}
