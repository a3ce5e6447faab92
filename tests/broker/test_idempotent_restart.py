"""C-6: a clean stop and start between a producer's batches and their repetition, on real sockets.

Five batches are in flight, their answers are lost with the broker that stops, and the producer
sends them again. Each is there once, and the answers say where.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.errors import ErrorCode
from strandline.testing.cluster import Cluster
from strandline.testing.status import ClusterStatus
from tests.broker.harness import BrokerProcess, Wire
from tests.node.messages import batch, fetch, produce, produced, values

IN_FLIGHT = 5
PRODUCER = 4711


def send_all(port: int, sequences: range = range(IN_FLIGHT)) -> list[tuple[int, int]]:
    """(error code, base offset) of each of one-record batches that are sent in one piece."""
    with Wire(port) as wire:
        wire.send(
            *(
                (produce(batch(b"v%d" % at, producer_id=PRODUCER, epoch=0, sequence=at)), 9)
                for at in sequences
            )
        )
        answers: list[Any] = [produced(wire.receive()) for _ in sequences]
    return [(each.error_code, each.base_offset) for each in answers]


def read_all(port: int) -> list[bytes | None]:
    with Wire(port) as wire:
        return values(wire.ask(fetch(("orders", 0, 0)), 11))


EXPECTED = [(0, at) for at in range(IN_FLIGHT)]
VALUES = [b"v%d" % at for at in range(IN_FLIGHT + 1)]


def test_a_clean_stop_resets_no_connection(tmp_path: Path) -> None:
    """Input that the broker has not read must not cost the client answers that it has not read."""
    with BrokerProcess(tmp_path / "data") as broker:
        with Wire(broker.port) as wire:
            wire.create_topic("orders")
        with Wire(broker.port) as wire:
            wire.send(
                *(
                    (produce(batch(b"v%d" % at, producer_id=PRODUCER, epoch=0, sequence=at)), 9)
                    for at in range(IN_FLIGHT)
                )
            )
            assert produced(wire.receive()).base_offset == 0
            # More than the broker takes of one client before it has answered.
            waiting = fetch(("orders", 0, IN_FLIGHT), max_wait_ms=60_000), 11
            wire.socket.sendall(b"".join(wire.frame(*waiting) for _ in range(1000)))
            assert broker.stop()
            for at in range(1, IN_FLIGHT):
                assert produced(wire.receive()).base_offset == at
            while wire.socket.recv(1 << 16):  # ends with the stream, and with no ECONNRESET
                pass


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill])
def test_c6_five_batches_in_flight_are_known_after_a_restart(
    tmp_path: Path, end: Callable[[BrokerProcess], object]
) -> None:
    directory = tmp_path / "data"
    with BrokerProcess(directory) as first:
        with Wire(first.port) as wire:
            wire.create_topic("orders")
        assert send_all(first.port) == EXPECTED
        end(first)
    with BrokerProcess(directory) as second:
        assert second.report["was_clean"] == (end is BrokerProcess.stop)
        assert send_all(second.port) == EXPECTED
        assert send_all(second.port, range(IN_FLIGHT, IN_FLIGHT + 1)) == [(0, IN_FLIGHT)]
        # Six back: outside of what is remembered, as in Kafka.
        ((code, _),) = send_all(second.port, range(1))
        assert code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert read_all(second.port) == VALUES
        assert second.stop()


def test_c6_five_batches_are_known_to_a_follower_that_restarted_and_leads(tmp_path: Path) -> None:
    with Cluster(
        3, data_dir=tmp_path, settings={"auto.leader.rebalance.enable": "false"}
    ) as cluster:
        cluster.create_topic("orders", assignment={0: [1, 2, 3]})
        assert cluster.leader_of("orders") == 1
        assert send_all(_port(cluster, 1)) == EXPECTED
        cluster.restart(2)
        cluster.wait_until_in_sync("orders")
        cluster.kill(1)
        assert cluster.wait_for_leader("orders", other_than=1) == 2
        cluster.wait_until(_is_committed_on_2, "broker 2 knows what is committed")
        assert send_all(_port(cluster, 2)) == EXPECTED
        assert send_all(_port(cluster, 2), range(IN_FLIGHT, IN_FLIGHT + 1)) == [(0, IN_FLIGHT)]
        assert read_all(_port(cluster, 2)) == VALUES


def _port(cluster: Cluster, broker_id: int) -> int:
    return int(cluster.control.addresses[broker_id].rsplit(":", 1)[1])


def _is_committed_on_2(status: ClusterStatus) -> bool:
    replica = status.partition("orders").replica(2)
    return replica is not None and replica.high_watermark == IN_FLIGHT
