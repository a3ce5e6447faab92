"""kill -9 under load, again and again: nothing acknowledged is lost, doubled or moved.

A killed process loses nothing that it wrote (the page cache stays), so with acks=all on one broker
every acknowledged record must be there, once, at the offset that its producer was told.
"""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from strandline.broker.reserved_ports import ReservedPort
from strandline.records.batch import iterate_headers
from strandline.records.record import read_records
from tests.broker.harness import BrokerProcess, Wire
from tests.node.messages import fetch, fetched

ROUNDS = 8
PARTITIONS = 3
PER_ROUND_MIN = 400
_PATIENCE_S = 120.0


class Load:
    """An idempotent producer that never stops, and what it was told."""

    def __init__(self, port: int) -> None:
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.failed: list[KafkaError] = []
        self._next = 0
        self._producer = Producer(
            {
                "bootstrap.servers": f"127.0.0.1:{port}",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "socket.timeout.ms": 2000,
                "message.timeout.ms": 60_000,
                "log_level": 0,
                "error_cb": self._error,
            }
        )

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failed.append(error)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed.append(error)
            return
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes)
        assert partition is not None
        assert offset is not None
        assert value not in self.acknowledged
        self.acknowledged[value] = (partition, offset)

    def push(self, count: int) -> None:
        """Hand records over and hear of those that arrived."""
        for _ in range(count):
            value = b"%d" % self._next
            self._producer.produce(
                "orders", value, partition=self._next % PARTITIONS, on_delivery=self._delivered
            )
            self._next += 1
        self._producer.poll(0.005)

    def finish(self) -> int:
        """Wait for everything; returns how many records there were."""
        assert self._producer.flush(_PATIENCE_S) == 0
        return self._next


def read_log(port: int) -> dict[int, list[tuple[int, bytes | None]]]:
    """Every record of every partition with its offset."""
    found: dict[int, list[tuple[int, bytes | None]]] = {}
    with Wire(port) as wire:
        for number in range(PARTITIONS):
            records: list[tuple[int, bytes | None]] = []
            position = 0
            while True:
                partition: Any = fetched(wire.ask(fetch(("orders", number, position)), 11))
                data = bytes(partition["orders", number].records or b"")
                if not data:
                    break
                for at, header in iterate_headers(data):
                    position = header.next_offset
                    records += [(r.offset, r.value) for r in read_records(data, at)]
            found[number] = records
    return found


def test_nothing_acknowledged_is_lost_doubled_or_moved(tmp_path: Path) -> None:
    rng = Random(9)
    directory = tmp_path / "data"
    reserved = ReservedPort()  # no other process gets it while the broker is down
    port = reserved.number
    process = BrokerProcess(directory, port=port)
    with Wire(port) as wire:
        wire.create_topic("orders", PARTITIONS)
    load = Load(port)
    before: dict[int, list[tuple[int, bytes | None]]] = {n: [] for n in range(PARTITIONS)}
    try:
        for round_ in range(ROUNDS):
            enough = len(load.acknowledged) + PER_ROUND_MIN
            deadline = time.monotonic() + _PATIENCE_S
            while len(load.acknowledged) < enough:
                assert not load.failed, load.failed
                assert time.monotonic() < deadline, f"round {round_}: no progress"
                load.push(rng.randrange(60))
            process.kill()
            load.push(30)
            process = BrokerProcess(directory, port=port)
            now = read_log(port)
            for number, records in before.items():
                assert now[number][: len(records)] == records, "what was there has changed"
            before = now
        total = load.finish()
        assert not load.failed
        final = read_log(port)
        values = [value for records in final.values() for _, value in records]
        assert len(values) == len(set(values)) == total
        places = {
            value: (number, offset)
            for number, records in final.items()
            for offset, value in records
        }
        assert places == load.acknowledged
        for number, records in final.items():
            assert [offset for offset, _ in records] == list(range(len(records)))
            order = [int(value or b"-1") for _, value in records]
            assert order == sorted(order), f"partition {number} is out of order"
        assert process.stop()
    finally:
        if process.process.poll() is None:
            process.kill()
        reserved.release()
