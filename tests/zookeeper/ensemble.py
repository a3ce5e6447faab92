"""One ZooKeeper server or a whole ensemble, for tests that need a real one.

    with ZooKeeperEnsemble(3) as ensemble:
        broker --zookeeper {ensemble.connect_string}/some/chroot
        ensemble.kill(ensemble.leader)

Data lies in a temporary directory and is gone with the ensemble. Nothing here waits for a fixed
time. To take a network away put a `TcpProxy` (see `proxy`) before the servers.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import time
from pathlib import Path
from types import TracebackType

from kazoo.protocol.serialization import Close, Connect, int_struct

from tests.zookeeper.server import PATIENCE_S, Ports, ZooKeeperServer

# ZooKeeperServer.superSecret: what a session's password is derived from.
_SESSION_SECRET = 0xB3415C00
# The beginning of the answer to a connect request: length, protocol, timeout and session.
_CONNECTED = struct.Struct("!iiiq")


class ZooKeeperEnsemble:
    """Servers numbered from 0. Started when made; use it as a context manager or `close` it."""

    def __init__(self, size: int = 1) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="strandline-zookeeper-")
        peers = tuple(Ports.chosen() for _ in range(size))
        self.servers = [
            ZooKeeperServer(Path(self._directory.name) / str(number), peers, number)
            for number in range(size)
        ]
        try:
            for server in self.servers:
                server.start()
            for server in self.servers:
                server.wait_until_serving()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ZooKeeperEnsemble:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def connect_string(self) -> str:
        """All servers, as `zookeeper.connect` wants them."""
        return ",".join(server.address for server in self.servers)

    @property
    def leader(self) -> int:
        """The number of the server that leads; waits for an election that is under way."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            for number, server in enumerate(self.servers):
                if server.is_running and server.mode() in ("leader", "standalone"):
                    return number
            time.sleep(0.01)
        raise RuntimeError("No ZooKeeper server leads.")

    def kill(self, number: int) -> None:
        """kill -9 of one server."""
        self.servers[number].kill()

    def start(self, number: int, *, wait: bool = True) -> None:
        """Start a killed server again with its data. It serves only when a majority is up."""
        self.servers[number].start()
        if wait:
            self.servers[number].wait_until_serving()

    def pause(self, number: int) -> None:
        """SIGSTOP of one server: connections stay, nothing is answered."""
        self.servers[number].pause()

    def resume(self, number: int) -> None:
        """SIGCONT of a paused server."""
        self.servers[number].resume()

    def expire_session(self, session_id: int) -> None:
        """End a session behind the back of its owner, who learns of it as of an expiry.

        A client that proves to be the owner may move a session to another connection and close it
        there. The owner reconnects at once and takes it back: so one follows the other at once, and
        again until the session is not known any more.
        """
        if not self._close_session(session_id):
            raise RuntimeError(f"The session {session_id:#x} was gone before.")
        deadline = time.monotonic() + PATIENCE_S
        while self._close_session(session_id):
            if time.monotonic() > deadline:
                raise RuntimeError(f"The session {session_id:#x} does not end.")

    def _close_session(self, session_id: int) -> bool:
        """Move the session here and close it; whether it still was there."""
        connect = Connect(0, 0, 10_000, session_id, _password(session_id), False).serialize()
        close = int_struct.pack(1) + int_struct.pack(Close.type)
        server = next(server for server in self.servers if server.is_running)
        address = (server.ports.host, server.ports.client)
        with socket.create_connection(address, timeout=PATIENCE_S) as connection:
            connection.sendall(
                b"".join(int_struct.pack(len(one)) + one for one in (connect, close))
            )
            answer = bytearray()
            try:
                while chunk := connection.recv(4096):
                    answer += chunk
            except ConnectionResetError:
                pass  # The server hangs up when a client closes a session or asks for a dead one.
        if len(answer) < _CONNECTED.size:
            return True  # It hung up before it said anything: ask again.
        _, _, timeout_ms, session = _CONNECTED.unpack_from(answer)
        return bool(timeout_ms > 0 and session == session_id)

    def close(self) -> None:
        """Kill every server and remove the data."""
        for server in self.servers:
            server.kill()
        self._directory.cleanup()


def _password(session_id: int) -> bytes:
    """`new java.util.Random(id ^ secret).nextBytes(16)`, which is how a server makes it."""
    mask = (1 << 48) - 1
    state = ((session_id ^ _SESSION_SECRET) ^ 0x5DEECE66D) & mask
    password = bytearray()
    for _ in range(4):
        state = (state * 0x5DEECE66D + 0xB) & mask
        password += (state >> 16 & 0xFFFFFFFF).to_bytes(4, "little")
    return bytes(password)
