"""What transactions of the shipped producer have to be on any broker, Strandline's or Kafka's."""

from __future__ import annotations

from typing import Any

import pytest

import strandline
from strandline.client.cluster import ClusterClient
from strandline.client.group_requests import Committed
from strandline.client.producer import Producer, ProducerSettings
from strandline.errors import ErrorCode, ProducerFailed, ProtocolError, TransactionFailed
from strandline.types import Offset, TopicPartition
from tests.client.conftest import FAST, PATIENCE_S

PATIENCE_MS = PATIENCE_S * 1000
LAST = b"the end"


def settings(address: str, **more: Any) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": address, "retry.backoff.ms": 10, **named}


def seen(address: str, topic: str, isolation: str = "read_committed") -> list[bytes | None]:
    """All values, the partitions one after the other, up to an end that is written now."""
    with strandline.Producer(settings(address)) as plain:
        count = len(plain.partitions_for(topic))
        for number in range(count):
            plain.send(topic, LAST, partition=number)
    found: dict[int, list[bytes | None]] = {number: [] for number in range(count)}
    reading = settings(address, auto_offset_reset="earliest", isolation_level=isolation)
    with strandline.Consumer(reading) as consumer:
        consumer.assign(consumer.partitions_for(topic))
        while not all(LAST in each for each in found.values()):
            polled = consumer.poll(PATIENCE_MS)
            assert polled, found
            for record in polled:
                found[record.partition].append(record.value)
    return [value for _, each in sorted(found.items()) for value in each if value != LAST]


def made(address: str, topic: str, partitions: int = 2) -> str:
    with strandline.Admin(settings(address)) as admin:
        admin.create_topic(topic, partitions=partitions)
    return topic


def check_commit_and_abort(address: str, name: str, version: int, *, forces: bool = False) -> None:
    """Three transactions over two partitions, of which the second is aborted. `forces` the version
    of the protocol; else the broker says which one it is."""
    made(address, name)
    with ClusterClient(address, FAST) as cluster:
        producer = Producer(cluster, ProducerSettings(transactional_id=name))
        with pytest.raises(ProtocolError, match="has not begun: 'send'"):
            producer.send(name, b"outside")
        producer.init_transactions()
        if forces:
            cluster.router.learn_features(2**62, {"transaction.version": version})
        assert cluster.router.feature("transaction.version") == version
        for number in range(3):
            producer.begin()
            for partition in range(2):
                producer.send(name, b"%d-%d" % (number, partition), partition=partition)
            if number == 1:
                producer.flush().raise_failure()
                producer.send(name, b"never sent", partition=0)
                producer.abort()
            else:
                producer.commit()
        assert not producer.is_in_transaction
    assert seen(address, name) == [b"0-0", b"2-0", b"0-1", b"2-1"]
    everything = seen(address, name, "read_uncommitted")
    assert {b"1-0", b"1-1"} <= set(everything)
    assert b"never sent" not in everything


def check_a_zombie_is_fenced(address: str, name: str) -> None:
    """Its open transaction is aborted when its successor begins."""
    made(address, name, 1)
    mine = settings(address, transactional_id=name)
    with strandline.Producer(mine) as zombie, strandline.Producer(mine) as successor:
        zombie.begin()
        zombie.send(name, b"of the zombie")
        zombie.flush().raise_failure()
        with successor.transaction():
            successor.send(name, b"of the successor")
        with pytest.raises(ProducerFailed, match="may not write any more") as failed:
            zombie.commit()
        assert failed.value.code is ErrorCode.PRODUCER_FENCED
        with pytest.raises(ProducerFailed):
            zombie.begin()
    assert seen(address, name) == [b"of the successor"]


def check_offsets_are_part_of_it(
    address: str, name: str, version: int, *, forces: bool = False
) -> None:
    """Copying: what is read and what is written commits together, or not at all."""
    source, copy = made(address, f"{name}-from", 1), made(address, f"{name}-to", 1)
    at = TopicPartition(source, 0)
    with strandline.Producer(settings(address)) as producer:
        for number in range(6):
            producer.send(source, b"%d" % number)
    reading = settings(
        address, group_id=name, auto_offset_reset="earliest", enable_auto_commit="false"
    )
    with (
        ClusterClient(address, FAST) as cluster,
        strandline.Consumer(reading) as consumer,
    ):
        producing = Producer(cluster, ProducerSettings(transactional_id=name))
        producing.init_transactions()
        if forces:
            cluster.router.learn_features(2**62, {"transaction.version": version})
        consumer.subscribe([source])
        records = consumer.poll(PATIENCE_MS)
        stored = {at: Committed(Offset(records[-1].offset + 1))}
        for commits in (False, True):
            producing.begin()
            for record in records:
                producing.send(copy, record.value)
            producing.send_offsets(stored, consumer.group_metadata)
            producing.commit() if commits else producing.abort()
            with strandline.Consumer(reading) as looks:
                committed = looks.committed([at])
            assert committed == ({at: records[-1].offset + 1} if commits else {})
        # A member that is not (any more) what it says is refused, and the producer goes on.
        producing.begin()
        old = strandline.Membership(name, None, consumer.group_metadata.member_id, 99)
        with pytest.raises(TransactionFailed, match="given the partitions") as late:
            producing.send_offsets(stored, old)
        assert late.value.code is ErrorCode.ILLEGAL_GENERATION
        producing.abort()
        producing.begin()
        producing.commit()
    assert seen(address, copy) == [record.value for record in records]


def check_a_timeout_ends_the_producer(address: str, name: str) -> None:
    """The coordinator looks once in a while; then the record is gone for committed readers."""
    made(address, name, 1)
    mine = settings(address, transactional_id=name, transaction_timeout_ms=2000)
    with strandline.Producer(mine) as producer:
        producer.begin()
        producer.send(name, b"late")
        producer.flush().raise_failure()
        assert seen(address, name) == []  # not before the transaction has ended
        with pytest.raises(ProducerFailed, match=r"longer than transaction\.timeout\.ms"):
            producer.commit()
