"""What programs give by mistake: refused at once, where Python would take it for something else."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

import strandline
from strandline.client.arguments import as_texts
from strandline.errors import ProtocolError
from strandline.types import TopicPartition
from tests.client.conftest import BrokerThread
from tests.client.test_api import PATIENCE_MS, read, settings, write

NAMES = r"Topics are several names: \['ab'\], not 'ab'\."
ASKED_OF_PARTITIONS = ("assign", "beginning_offsets", "end_offsets", "committed")
PARTITION = r"A partition is a TopicPartition\('orders', 0\), not "


def test_one_name_is_no_list_of_names(broker: BrokerThread) -> None:
    with strandline.Admin(settings(broker)) as admin:
        with pytest.raises(TypeError, match=NAMES):
            admin.delete_topics("ab")
        with pytest.raises(TypeError, match=NAMES):
            admin.delete_share_group_offsets("g", "ab")
        with pytest.raises(TypeError, match="Settings are several names"):
            admin.alter_group_config("g", reset="ab")
    mine = settings(broker, group_id="g")
    with strandline.Consumer(mine) as consumer, pytest.raises(TypeError, match=NAMES):
        consumer.subscribe("ab")
    with strandline.ShareConsumer(mine) as member, pytest.raises(TypeError, match=NAMES):
        member.subscribe("ab")


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"partition": 1.0}, "The partition is a whole number, not float: 1.0"),
        ({"partition": "0"}, "The partition is a whole number, not str: '0'"),
        ({"partition": True}, "The partition is a whole number, not bool"),
        ({"topic": b"numbers"}, "A name is text, not bytes: b'numbers'"),
    ],
)
def test_a_record_that_cannot_be_sent_harms_no_other(
    broker: BrokerThread, more: dict[str, Any], sentence: str
) -> None:
    """1.0 equals 1 wherever partitions are looked up: all later records waited behind it."""
    wrong = {"topic": "numbers", "value": b"wrong", **more}
    with strandline.Producer(settings(broker)) as producer:
        with pytest.raises(TypeError, match=sentence):
            producer.send(**wrong)
        producer.send("numbers", b"right", partition=0)
        producer.flush().raise_failure()

    async def work() -> None:
        async with strandline.AsyncProducer(settings(broker)) as producer:
            with pytest.raises(TypeError, match=sentence):
                await producer.send(**wrong)
            await producer.send_and_wait("numbers", b"right", partition=0)

    asyncio.run(work())


def test_numbers_of_partitions_are_whole_numbers(broker: BrokerThread) -> None:
    with strandline.Admin(settings(broker)) as admin:
        with pytest.raises(TypeError, match="The number of partitions is a whole number, not str"):
            admin.create_topic("numbers", partitions="3")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="The number of partitions is a whole number"):
            admin.create_partitions("numbers", 1.5)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="A name is text, not int"):
            admin.create_topic(5)  # type: ignore[arg-type]
    with strandline.Consumer(settings(broker)) as consumer:
        with pytest.raises(TypeError, match="The number of a partition is a whole number"):
            consumer.assign([TopicPartition("numbers", 1.0)])  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="A name is text, not bytes"):
            consumer.subscribe([b"numbers"])  # type: ignore[list-item]


TOO_LARGE = "An offset is a whole number from 0 to 9223372036854775807, not 9223372036854775808"
WRONG_TIMES = [
    (-1, "A time is a whole number from 0 to 9223372036854775807, not -1"),
    (2**63, "A time is a whole number from 0"),
    (1.5, "A time in milliseconds is a whole number, not float: 1.5"),
    ("0", "A time in milliseconds is a whole number, not str"),
]


def test_what_cannot_be_sent_ends_no_member(broker: BrokerThread, name: str) -> None:
    """Its thread could not write the request, and ended: no call did anything any more."""
    write(broker, name, 10)
    at = TopicPartition(name, 0)
    mine = settings(broker, group_id=name, auto_offset_reset="earliest")
    with strandline.Consumer(mine) as consumer:
        consumer.subscribe([name])
        read(consumer, 10)
        with pytest.raises(ValueError, match=TOO_LARGE):
            consumer.commit({at: 2**63})
        with pytest.raises(ValueError, match=TOO_LARGE):
            consumer.seek(at, 2**63)
        with pytest.raises(ValueError, match="The number of a partition is a whole number from 0"):
            consumer.commit({TopicPartition(name, 2**31): 1})
        with pytest.raises(ValueError, match="A name is UTF-8"):
            consumer.subscribe(["\udc80"])
        consumer.commit({at: 3})
        assert consumer.committed([at]) == {at: 3}


@pytest.mark.parametrize(("time", "sentence"), WRONG_TIMES)
def test_a_time_is_a_number_from_0_on(
    broker: BrokerThread, name: str, time: Any, sentence: str
) -> None:
    """-1 is the end of the log, and -2 its beginning, to brokers."""
    write(broker, name, 10)
    at = TopicPartition(name, 0)
    error = ValueError if isinstance(time, int) else TypeError
    with strandline.Consumer(settings(broker)) as consumer:
        consumer.assign([at])
        with pytest.raises(error, match=sentence):
            consumer.seek_to_time(time)

    async def work() -> None:
        async with strandline.AsyncConsumer(settings(broker)) as consumer:
            await consumer.assign([at])
            with pytest.raises(error, match=sentence):
                await consumer.seek_to_time(time)

    asyncio.run(work())


def test_one_name_is_no_list_of_names_on_an_event_loop(broker: BrokerThread) -> None:
    async def work() -> None:
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            with pytest.raises(TypeError, match=NAMES):
                await admin.delete_topics("ab")
            with pytest.raises(TypeError, match=NAMES):
                await admin.delete_share_group_offsets("g", "ab")
            with pytest.raises(TypeError, match="Settings are several names"):
                await admin.alter_group_config("g", reset="ab")
        mine = settings(broker, group_id="g")
        async with strandline.AsyncConsumer(mine) as consumer:
            with pytest.raises(TypeError, match=NAMES):
                await consumer.subscribe("ab")
        async with strandline.AsyncShareConsumer(mine) as member:
            with pytest.raises(TypeError, match=NAMES):
                await member.subscribe("ab")

    asyncio.run(work())


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (TopicPartition("ab", 0), r"Partitions are several: \[TopicPartition\(.*\], not Topic"),
        ([("ab", 0)], PARTITION + r"\('ab', 0\)"),
        (["ab"], PARTITION + "'ab'"),
        ("ab", PARTITION + "'a'"),
    ],
)
def test_partitions_are_several_and_have_a_topic(
    broker: BrokerThread, given: Any, sentence: str
) -> None:
    mine = settings(broker, group_id="g")
    with strandline.Consumer(mine) as consumer:
        for name in ASKED_OF_PARTITIONS:
            with pytest.raises(TypeError, match=sentence):
                getattr(consumer, name)(given)

    async def work() -> None:
        async with strandline.AsyncConsumer(mine) as consumer:
            for name in ASKED_OF_PARTITIONS:
                with pytest.raises(TypeError, match=sentence):
                    await getattr(consumer, name)(given)

    asyncio.run(work())


def test_offsets_are_numbers_by_partition(broker: BrokerThread) -> None:
    at: Any = {("ab", 0): 1}
    offset: Any = {TopicPartition("ab", 0): "1"}
    with strandline.Admin(settings(broker)) as admin:
        for call in (admin.delete_records, partial(admin.alter_group_offsets, "g")):
            with pytest.raises(TypeError, match=PARTITION):
                call(at)
            with pytest.raises(TypeError, match="'str' object cannot be interpreted as an integer"):
                call(offset)
    mine = settings(broker, group_id="g")
    with strandline.Consumer(mine) as consumer, pytest.raises(TypeError, match=PARTITION):
        consumer.commit(at)


BELOW = "An offset is a whole number from 0 to 9223372036854775807, not -"


def test_offsets_below_0_are_refused(broker: BrokerThread, name: str) -> None:
    """A seek would go to the end, and a commit would take the group's offset away."""
    write(broker, name, 2)
    at = TopicPartition(name, 0)
    with strandline.Consumer(settings(broker, group_id=name)) as consumer:
        consumer.assign([at])
        with pytest.raises(ValueError, match=BELOW):
            consumer.seek(at, -5)
        with pytest.raises(ValueError, match=BELOW):
            consumer.commit({at: -7})
        assert consumer.position(at) == 1

    async def work() -> None:
        async with strandline.AsyncConsumer(settings(broker, group_id=name)) as consumer:
            await consumer.assign([at])
            with pytest.raises(ValueError, match=BELOW):
                await consumer.seek(at, -5)
            with pytest.raises(ValueError, match=BELOW):
                await consumer.commit({at: -7})
            assert consumer.position(at) == 1
        async with strandline.AsyncAdmin(settings(broker)) as admin:
            with pytest.raises(ValueError, match=BELOW):
                await admin.alter_group_offsets(name, {at: -1})
            with pytest.raises(ValueError, match=r"from -1 to \d+, not -2"):
                await admin.delete_records({at: -2})

    asyncio.run(work())
    with strandline.Admin(settings(broker)) as admin:
        with pytest.raises(ValueError, match=BELOW):
            admin.alter_group_offsets(name, {at: -1})
        with pytest.raises(ValueError, match=r"from -1 to \d+, not -2"):
            admin.delete_records({at: -2})
        assert admin.delete_records({at: -1}) == {at: 1}, "all that there are"


def test_settings_of_topics_may_be_numbers_and_truth_values(
    broker: BrokerThread, name: str
) -> None:
    with strandline.Admin(settings(broker)) as admin:
        admin.create_topic(name, configs={"retention.ms": 1000, "preallocate": True})
        admin.alter_topic_config(name, set_to={"min.cleanable.dirty.ratio": 0.25})
        found = admin.topic_config(name)
    assert found["retention.ms"] == "1000"
    assert found["preallocate"] == "true"
    assert found["min.cleanable.dirty.ratio"] == "0.25"
    with pytest.raises(TypeError, match=r"The setting retention\.ms is text, a number or a truth"):
        as_texts({"retention.ms": None})


def test_what_a_record_is_made_of_can_change_when_it_was_sent(
    broker: BrokerThread, name: str
) -> None:
    """A program may read into one buffer again and again."""
    write(broker, name, 0)
    buffer = bytearray(b"first")
    with strandline.Producer(settings(broker)) as producer:
        for value in (b"first", b"other"):
            buffer[:] = value
            producer.send(
                name, buffer, key=memoryview(buffer), headers=[("h", buffer)], partition=0
            )
        with pytest.raises(TypeError, match=r"Headers are pairs .* not 'h'\."):
            producer.send(name, b"v", headers={"h": b"v"})  # type: ignore[dict-item]
    with strandline.Consumer(settings(broker, auto_offset_reset="earliest")) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        found = read(consumer, 2)
    assert [(each.key, each.value, each.headers) for each in found] == [
        (value, value, (("h", value),)) for value in (b"first", b"other")
    ]


def test_a_closed_client_says_so(broker: BrokerThread, name: str) -> None:
    """A record that it took would never be written."""
    write(broker, name, 1)
    producer = strandline.Producer(settings(broker))
    producer.close()
    producer.close()
    for call in (
        lambda: producer.send(name, b"lost"),
        producer.flush,
        producer.poll,
        producer.begin,
        lambda: producer.partitions_for(name),
    ):
        with pytest.raises(ProtocolError, match="The producer is closed"):
            call()
    consumer = strandline.Consumer(settings(broker, group_id="g"))
    consumer.subscribe([name])
    consumer.close()
    consumer.close()
    at = TopicPartition(name, 0)
    for ask in (
        consumer.poll,
        lambda: consumer.subscribe([name]),
        lambda: consumer.assign([at]),
        lambda: next(iter(consumer)),
        lambda: consumer.partitions_for(name),
        lambda: consumer.beginning_offsets([at]),
        lambda: consumer.end_offsets([at]),
        lambda: consumer.committed([at]),
        consumer.commit,
        lambda: consumer.commit({at: 0}),
        consumer.seek_to_beginning,
        lambda: consumer.position(at),
        lambda: consumer.group_metadata,
    ):
        with pytest.raises(ProtocolError, match="The consumer is closed"):
            ask()
    assert not consumer._cluster._connections
    admin = strandline.Admin(settings(broker))
    admin.close()
    admin.close()
    with pytest.raises(ProtocolError, match="The admin client is closed"):
        admin.list_topics()
    assert not admin._cluster._connections


def test_a_closed_client_says_so_on_an_event_loop(broker: BrokerThread, name: str) -> None:
    write(broker, name, 1)

    async def work() -> None:
        producer = strandline.AsyncProducer(settings(broker))
        await producer.close()
        await producer.close()
        for call in (
            lambda: producer.send(name, b"lost"),
            producer.flush,
            producer.begin,
            lambda: producer.partitions_for(name),
        ):
            with pytest.raises(ProtocolError, match="The producer is closed"):
                await call()
        consumer = strandline.AsyncConsumer(settings(broker, group_id="g"))
        await consumer.subscribe([name])
        await consumer.close()
        await consumer.close()
        at = TopicPartition(name, 0)
        for ask in (
            consumer.poll,
            lambda: consumer.subscribe([name]),
            lambda: consumer.assign([at]),
            lambda: anext(aiter(consumer)),
            lambda: consumer.partitions_for(name),
            lambda: consumer.beginning_offsets([at]),
            lambda: consumer.end_offsets([at]),
            lambda: consumer.committed([at]),
            consumer.commit,
            lambda: consumer.commit({at: 0}),
            consumer.seek_to_beginning,
        ):
            with pytest.raises(ProtocolError, match="The consumer is closed"):
                await ask()
        for told in (lambda: consumer.position(at), lambda: consumer.group_metadata):
            with pytest.raises(ProtocolError, match="The consumer is closed"):
                told()
        assert not consumer._cluster._connections
        admin = strandline.AsyncAdmin(settings(broker))
        await admin.close()
        await admin.close()
        with pytest.raises(ProtocolError, match="The admin client is closed"):
            await admin.list_topics()
        assert not admin._cluster._connections

    asyncio.run(work())


def test_a_consumer_that_reads_nothing_says_so(broker: BrokerThread) -> None:
    """No record would ever come."""
    sentence = "reads nothing: call subscribe or assign before"
    with strandline.Consumer(settings(broker)) as consumer:
        with pytest.raises(ProtocolError, match=sentence):
            consumer.poll(PATIENCE_MS)
        with pytest.raises(ProtocolError, match=sentence):
            next(iter(consumer))
        consumer.assign([])  # a program may have nothing to read for a while
        assert consumer.poll(1) == []

    async def work() -> None:
        async with strandline.AsyncConsumer(settings(broker)) as consumer:
            with pytest.raises(ProtocolError, match=sentence):
                await consumer.poll(PATIENCE_MS)
            with pytest.raises(ProtocolError, match=sentence):
                await anext(aiter(consumer))
            await consumer.assign([])
            assert await consumer.poll(1) == []

    asyncio.run(work())
