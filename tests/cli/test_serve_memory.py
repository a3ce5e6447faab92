"""A real broker that gets no more memory: it refuses what is too large, and goes on."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer

from tests.cli.test_serve_handles import serving
from tests.process_limits import limits_of, set_limits

LARGE, SMALL = 64 << 20, b"small"
ROOM = 24 << 20
SIZES = {"message.max.bytes": 2 * LARGE, "socket.request.max.bytes": 2 * LARGE}


def virtual_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def produce(address: str, value: bytes, timeout_ms: int) -> KafkaError | None:
    """What became of one record; None: it was acknowledged."""
    outcomes: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        del message
        outcomes.append(error)

    settings = {"message.max.bytes": 3 * LARGE // 2, "message.timeout.ms": timeout_ms}
    producer = Producer({"bootstrap.servers": address, "log_level": 0, **settings})
    producer.produce("t", value, on_delivery=delivered)
    producer.flush()
    return outcomes[0]


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process: Linux")
def test_a_request_without_memory_is_refused_and_others_are_served(tmp_path: Path) -> None:
    arguments = [word for item in SIZES.items() for word in ("--set", f"{item[0]}={item[1]}")]
    with serving(tmp_path, 4096, *arguments) as broker:
        assert produce(broker.address, bytes(LARGE), 60_000) is None
        pid = broker.process.pid
        _, hard = limits_of(pid, resource.RLIMIT_AS)
        set_limits(pid, resource.RLIMIT_AS, (virtual_bytes(pid) + ROOM, hard))
        refused = produce(broker.address, bytes(LARGE), 3_000)
        assert refused is not None
        assert refused.code() == KafkaError._MSG_TIMED_OUT
        assert produce(broker.address, SMALL, 60_000) is None
        consumer = Consumer(
            {
                "bootstrap.servers": broker.address,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "receive.message.max.bytes": 2 * LARGE,
                "fetch.max.bytes": LARGE + 4096,
                "fetch.message.max.bytes": LARGE + 4096,
            }
        )
        consumer.subscribe(["t"])
        found = [value for message in consumer.consume(2, 60) if (value := message.value())]
        consumer.close()
        assert [len(value) for value in found] == [LARGE, len(SMALL)]
        set_limits(pid, resource.RLIMIT_AS, (hard, hard))
        said = broker.log()
        assert "There is no memory to serve a connection of 127.0.0.1" in said
        assert "Traceback" not in said
        assert produce(broker.address, bytes(LARGE), 60_000) is None
