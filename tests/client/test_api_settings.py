"""Settings of clients by Kafka's names: which there are, and which values they take."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.client.api.settings import connecting_of, producing_of, reading_of
from strandline.client.fetching import FetchSettings, Isolation
from strandline.client.producer import ProducerSettings
from strandline.client.settings import Address, ClientSettings
from strandline.errors import InvalidSetting
from strandline.records.codec import Codec

AT = {"bootstrap.servers": "a:1,b:2"}


def test_without_more_they_are_the_defaults() -> None:
    connecting, producing = producing_of(AT)
    assert connecting.bootstrap == (Address("a", 1), Address("b", 2))
    assert connecting.client == ClientSettings()
    assert producing == ProducerSettings(linger_ms=5)
    reading = reading_of(AT)
    assert (reading.fetch, reading.group, reading.reset) == (FetchSettings(), None, "latest")


def test_text_and_values_of_python_mean_the_same() -> None:
    texts = {"acks": "1", "enable.idempotence": "false", "linger.ms": "7", "batch.size": "1"}
    values = {"acks": 1, "enable.idempotence": False, "linger.ms": 7, "batch.size": 1}
    assert producing_of({**AT, **texts}) == producing_of({**AT, **values})


def test_what_is_a_long_in_kafka_may_be_large() -> None:
    assert producing_of({**AT, "buffer.memory": 2**32})[1].buffer_bytes_max == 2**32


@pytest.mark.parametrize("value", ["False", "FALSE", False])
def test_truth_values_may_be_written_in_any_case(value: object) -> None:
    assert not producing_of({**AT, "enable.idempotence": value})[1].is_idempotent
    member = reading_of({**AT, "group.id": "g", "enable.auto.commit": value}).member
    assert member is not None
    assert not member.enable_auto_commit


def test_each_goes_to_its_place() -> None:
    connecting, producing = producing_of(
        {**AT, "client.id": "me", "request.timeout.ms": 9, "compression.type": "zstd"}
    )
    assert (connecting.client.client_id, connecting.client.request_timeout_ms) == ("me", 9)
    assert producing.codec is Codec.ZSTD
    reading = reading_of({**AT, "isolation.level": "read_committed", "group.id": "g"})
    assert (reading.fetch.isolation, reading.group) == (Isolation.READ_COMMITTED, "g")


def test_times_of_requests_are_those_of_a_member_too() -> None:
    times = {"request.timeout.ms": 1234, "retry.backoff.ms": 7, "retry.backoff.max.ms": 77}
    member = reading_of({**AT, **times, "group.id": "g"}).member
    assert member is not None
    assert (member.request_timeout_ms, member.retry_backoff_ms) == (1234, 7)
    assert member.retry_backoff_max_ms == 77


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "bootstrap.servers is missing"),
        ("h:9092", 'Settings are a mapping: {"bootstrap.servers": "h:9092"}'),
        ({**AT, "ack": "all"}, "There is no setting 'ack' of a producer; there are .*acks, "),
        ({**AT, "group.id": "g"}, "There is no setting 'group.id' of a producer"),
        ({**AT, "acks": "2"}, "acks takes all, -1, 1, 0, not '2'"),
        (
            {**AT, "linger.ms": "soon"},
            "linger.ms takes a whole number from 0 to 2147483647, not 'so",
        ),
        ({**AT, "linger.ms": True}, "linger.ms takes a whole number"),
        (
            {**AT, "batch.size": 2**31},
            "batch.size takes a whole number from 0 to 2147483647, not 2",
        ),
        (
            {**AT, "buffer.memory": 2**63},
            "buffer.memory takes a whole number from 0 to 92233720368",
        ),
        ({**AT, "batch.size": -1}, "batch.size takes a whole number"),
        ({**AT, "enable.idempotence": "maybe"}, "takes true or false, not 'maybe'"),
        ({**AT, "client.id": 7}, "client.id takes text, not 7"),
        ({**AT, "compression.type": "zip"}, "compression.type takes none, gzip, "),
        ({**AT, "acks": 1, "enable.idempotence": True}, "enable.idempotence needs acks=all"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(settings: Any, sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        producing_of(settings)


def test_of_other_clients_too() -> None:
    with pytest.raises(InvalidSetting, match="'acks' of an administrator"):
        connecting_of({**AT, "acks": "all"})
    with pytest.raises(InvalidSetting, match="'acks' of a consumer"):
        reading_of({**AT, "acks": "all"})
    with pytest.raises(InvalidSetting, match=r"auto\.offset\.reset takes earliest, latest, none"):
        reading_of({**AT, "auto.offset.reset": "first"})
    with pytest.raises(InvalidSetting, match=r"group\.id must not be empty"):
        reading_of({**AT, "group.id": ""})


def test_the_protocol_of_a_group_says_which_settings_there_are() -> None:
    settings = {**AT, "group.id": "g", "group.protocol": "CONSUMER"}
    member = reading_of({**settings, "group.remote.assignor": "range"}).member
    assert member is not None
    assert (member.protocol, member.remote_assignor) == ("consumer", "range")
    for name in ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"):
        with pytest.raises(InvalidSetting, match=r"cannot be set with group\.protocol=consumer"):
            reading_of({**settings, name: "3000"})
    with pytest.raises(InvalidSetting, match=r"cannot be set with group\.protocol=classic"):
        reading_of({**AT, "group.id": "g", "group.remote.assignor": "range"})
    with pytest.raises(InvalidSetting, match=r"group\.protocol takes classic or consumer, not 's'"):
        reading_of({**AT, "group.id": "g", "group.protocol": "s"})


@pytest.mark.parametrize("wrong", ["0", "soon", "9" * 5000, str(2**31)])
def test_a_time_that_no_request_can_have_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidSetting, match=r"session\.timeout\.ms takes milliseconds from 1 on"):
        reading_of({**AT, "group.id": "g", "session.timeout.ms": wrong})
