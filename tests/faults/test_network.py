"""The cut network itself: what goes through a gate, what a cut holds, and who is recognised."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.faults.network import CLIENTS, HOST, Address, Gate, Network

ME = 1
OTHER = 2
PROMPT_S = 120.0


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network()
    yield made
    made.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as made:
        made.settimeout(PROMPT_S)
        yield made


@contextmanager
def connected(gate: Gate, listener: socket.socket) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection through the gate."""
    with socket.create_connection((HOST, gate.port), PROMPT_S) as near:
        far, _ = listener.accept()
        with far:
            far.settimeout(PROMPT_S)
            yield near, far


def received(sock: socket.socket, size: int) -> bytes:
    """As many bytes, or those that came before the end."""
    with sock.makefile("rb") as stream:
        return stream.read(size)


def is_silent(sock: socket.socket) -> bool:
    """Nothing comes, though there was time enough for it."""
    sock.settimeout(0.05)
    try:
        return not sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(PROMPT_S)


def address_of(listener: socket.socket) -> Address:
    host, port = listener.getsockname()
    return host, port


def test_bytes_go_both_ways_in_any_amount(network: Network, listener: socket.socket) -> None:
    data = bytes(range(256)) * 40_000
    with connected(network.gate(ME, address_of(listener)), listener) as (near, far):
        far.sendall(b"hello")
        assert received(near, 5) == b"hello"
        sender = threading.Thread(target=near.sendall, args=(data,))
        sender.start()
        assert received(far, len(data)) == data
        sender.join()


def test_a_closed_end_closes_the_other(network: Network, listener: socket.socket) -> None:
    with connected(network.gate(ME, address_of(listener)), listener) as (near, far):
        near.sendall(b"last words")
        near.close()
        assert received(far, 100) == b"last words"
        assert far.recv(1) == b""


def test_a_gate_without_a_target_refuses(network: Network) -> None:
    gate = network.gate(ME)
    with (
        socket.create_connection((HOST, gate.port), PROMPT_S) as near,
        pytest.raises(ConnectionResetError),
    ):
        near.recv(1)


def test_a_cut_holds_bytes_until_it_heals(network: Network, listener: socket.socket) -> None:
    with connected(network.gate(ME, address_of(listener)), listener) as (near, far):
        network.cut({CLIENTS}, {ME})
        near.sendall(b"there")
        far.sendall(b"back")
        assert is_silent(far)
        assert is_silent(near)
        network.heal()
        assert received(far, 5) == b"there"
        assert received(near, 4) == b"back"


def test_a_cut_of_one_direction_lets_the_other_through(
    network: Network, listener: socket.socket
) -> None:
    with connected(network.gate(ME, address_of(listener)), listener) as (near, far):
        network.cut_one_way(sources={ME}, targets={CLIENTS})
        near.sendall(b"there")
        far.sendall(b"back")
        assert received(far, 5) == b"there"
        assert is_silent(near)
        network.heal()
        assert received(near, 4) == b"back"


def test_a_connection_across_a_cut_leads_nowhere_until_it_heals(
    network: Network, listener: socket.socket
) -> None:
    gate = network.gate(ME, address_of(listener))
    network.cut({CLIENTS}, {ME})
    with socket.create_connection((HOST, gate.port), PROMPT_S) as near:
        near.sendall(b"early")
        listener.settimeout(0.05)
        with pytest.raises(TimeoutError):
            listener.accept()
        listener.settimeout(PROMPT_S)
        network.heal()
        far, _ = listener.accept()
        with far:
            assert received(far, 5) == b"early"


def test_a_process_is_recognised_by_its_connection(
    network: Network, listener: socket.socket
) -> None:
    gate = network.gate(ME, address_of(listener))
    program = (
        "import socket, sys\n"
        "sys.stdin.readline()\n"
        f"s = socket.create_connection(({HOST!r}, {gate.port}))\n"
        "s.sendall(b'x'); sys.stdin.readline()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    assert child.stdin is not None
    with child.stdin:
        network.is_run_by(OTHER, child.pid)
        network.cut({OTHER}, {ME})
        child.stdin.write(b"go\n")
        child.stdin.flush()
        with connected(gate, listener) as (near, far):
            near.sendall(b"mine")
            assert received(far, 4) == b"mine"
            network.heal()
            theirs, _ = listener.accept()
            with theirs:
                assert theirs.recv(1) == b"x"
    assert child.wait(PROMPT_S) == 0


def test_reset_breaks_what_is_connected_to_a_node(
    network: Network, listener: socket.socket
) -> None:
    with connected(network.gate(ME, address_of(listener)), listener) as (near, far):
        assert network.reset(OTHER) == 0
        assert network.reset(ME) == 1
        for end in (near, far):
            with pytest.raises(ConnectionResetError):
                end.recv(1)
