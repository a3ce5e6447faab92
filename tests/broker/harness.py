"""Brokers under test, in this process or in one of their own, and clients on bare sockets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from strandline.broker.running import Broker
from strandline.broker.start_report import StartReport
from strandline.broker.startup import start_broker
from strandline.config.broker import BrokerConfig
from strandline.config.load import load_broker_config
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.schema import decode_response
from strandline.testing.loop_thread import LoopThread
from tests.node.world import joined

T = TypeVar("T")
PATIENCE_S = 120.0
SERVE = Path(__file__).with_name("serve.py")
SOURCES = Path(__file__).parents[2] / "src"


def overrides(directory: Path, *more: str, port: int = 0) -> list[str]:
    """Settings of a small broker; later ones win."""
    return [
        "node.id=1",
        f"log.dirs={directory}",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "offsets.topic.num.partitions=2",
        *more,
    ]


class LocalBroker:
    """A broker on an event loop of its own, in a thread of this process."""

    def __init__(self, directory: Path, *more: str, port: int = 0) -> None:
        self._loop = LoopThread("broker under test")
        self.loop_errors: list[dict[str, Any]] = []
        config = load_broker_config(None, overrides(directory, *more, port=port)).config
        try:
            self.broker: Broker = self._await(self._start(config))
        except BaseException:
            self._loop.close()
            raise
        self.port = self.report.addresses[0].port

    async def _start(self, config: BrokerConfig) -> Broker:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: self.loop_errors.append(context)
        )
        return await start_broker(config)

    @property
    def report(self) -> StartReport:
        return self.broker.report

    def call(self, function: Callable[[], T]) -> T:
        """Run something in the broker's thread."""

        async def run() -> T:
            return function()

        return self._await(run())

    def stop(self) -> bool:
        """Shut down; returns whether it was clean."""
        try:
            clean = self._await(self.broker.stop())
        finally:
            self._loop.close()
        assert not self.loop_errors, self.loop_errors
        return clean

    def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.submit(coroutine).result(PATIENCE_S)

    def __enter__(self) -> LocalBroker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class BrokerProcess:
    """A broker in a process of its own, that can be killed."""

    def __init__(self, directory: Path, *more: str, port: int = 0) -> None:
        paths = [str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self.errors = Path(f"{directory}.stderr")
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(SERVE), *overrides(directory, *more, port=port)],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        self.report: dict[str, Any] = json.loads(self._line() or "{}")
        self.port: int = self.report.get("port", 0)

    @property
    def pid(self) -> int:
        return self.process.pid

    def resident_bytes(self) -> int:
        """Memory that the process really uses now."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def kill(self) -> None:
        """The end without warning."""
        self.process.kill()
        self._wait()

    def stop(self) -> bool:
        """SIGTERM; returns whether the broker says that it ended cleanly."""
        self.process.send_signal(signal.SIGTERM)
        line = self._line()
        assert self._wait() == 0
        return bool(json.loads(line)["clean"])

    def refusal(self) -> dict[str, Any]:
        """Why it did not start."""
        assert self._wait() == 1
        return self.report

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode()

    def _wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.kill()


class Wire:
    """A client on a bare, blocking socket."""

    def __init__(
        self, port: int, *, receive_buffer: int | None = None, timeout_s: float = PATIENCE_S
    ) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout_s)
        self.socket.connect(("127.0.0.1", port))
        self.asked: deque[tuple[ApiKey, int, int]] = deque()
        self._correlation_id = 0

    def frame(self, message: object, version: int) -> bytes:
        """A request's bytes; its answer is expected."""
        name = type(message).__name__
        api = next(api for api in KNOWN.values() if name == api.name + "Request")
        self._correlation_id += 1
        self.asked.append((api.key, version, self._correlation_id))
        chunks = request_frame(api, version, self._correlation_id, "wire", message)
        return joined(chunks)

    def send(self, *requests: tuple[object, int]) -> None:
        """Send requests in one piece."""
        self.socket.sendall(b"".join(self.frame(*request) for request in requests))

    def receive(self) -> Any:
        """The next answer."""
        key, version, correlation_id = self.asked.popleft()
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        found, position = parse_response_header(memoryview(frame), KNOWN[key], version)
        assert found == correlation_id
        return decode_response(key, version, frame, position)

    def ask(self, message: object, version: int) -> Any:
        self.send((message, version))
        return self.receive()

    def is_closed(self) -> bool:
        """Whether the broker closes, or has closed, without sending any more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def create_topic(self, name: str, partitions: int = 1) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
        assert answer.topics[0].error_code == 0

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, size: int) -> bytes:
        pieces = bytearray(size)
        view, filled = memoryview(pieces), 0
        while filled < size:
            count = self.socket.recv_into(view[filled:])
            if not count:
                raise ConnectionError("The broker closed the connection.")
            filled += count
        return bytes(pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def works(port: int) -> bool:
    """Whether a new client is served."""
    with Wire(port) as wire:
        return bool(wire.ask(MetadataRequest(topics=None), 9).brokers)
