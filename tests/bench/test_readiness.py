"""The probe that tells when a broker is up, against a listener that answers as told."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.readiness import (
    CORRELATION_ID,
    answers,
    api_versions_request,
    brokers_known_at,
    brokers_request,
    free_ports_in_a_row,
    wait_until_ready,
)


@contextmanager
def answering(*bodies: bytes) -> Iterator[tuple[int, list[bytes]]]:
    """A listener that gives each of these answers to one connection, and what it was asked."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for body in bodies:
                connection, _ = listener.accept()
                with connection:
                    asked.append(connection.recv(1000))
                    connection.sendall(body)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], asked
        thread.join()


def answer(form: str, *values: int, correlation_id: int = CORRELATION_ID) -> bytes:
    body = struct.pack(f">{form}", *values)
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


def test_a_broker_answers_when_it_names_no_error() -> None:
    with answering(answer("h", 0), answer("h", 35), answer("h", 0, correlation_id=8), b"") as (
        port,
        asked,
    ):
        assert [answers(port) for _ in range(4)] == [True, False, False, False]
    assert asked == [api_versions_request()] * 4


def test_the_brokers_that_a_broker_knows_are_counted() -> None:
    with answering(answer("i", 3), answer("h", 0)[:6]) as (port, asked):
        assert [brokers_known_at(port) for _ in range(2)] == [3, 0]
    assert asked == [brokers_request()] * 2
    size, api_key, version = struct.unpack_from(">ihh", brokers_request())
    assert (size, api_key, version) == (len(brokers_request()) - 4, 3, 1)


def test_it_is_asked_until_it_knows_enough() -> None:
    replies = [answer("h", 0), answer("i", 2), answer("h", 0), answer("i", 3)]
    with answering(*replies) as (port, asked):
        assert wait_until_ready(port, deadline=time.monotonic() + 120, brokers=3)
    assert len(asked) == 4


def test_waiting_ends_at_the_deadline() -> None:
    assert not wait_until_ready(free_ports_in_a_row(1), deadline=time.monotonic())


def test_ports_in_a_row_can_be_bound_together() -> None:
    first = free_ports_in_a_row(3)
    held = [socket.create_server(("127.0.0.1", port)) for port in range(first, first + 3)]
    for listener in held:
        listener.close()
