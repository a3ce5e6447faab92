"""A real broker on real files and an ephemeral port, and clients of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from strandline.broker.reserved_ports import ReservedPort
from strandline.broker.startup import start_broker
from strandline.client.cluster import ClusterClient
from strandline.client.settings import ClientSettings
from strandline.config.load import load_broker_config

PATIENCE_S = 120
FAST = ClientSettings(
    request_timeout_ms=60_000,
    operation_timeout_ms=60_000,
    retry_backoff_ms=10,
    topic_wait_ms=30_000,
)
SETTINGS = (
    "offsets.topic.num.partitions=2",
    "group.initial.rebalance.delay.ms=0",
    "log.initial.task.delay.ms=86400000",  # retention never runs: some records are years old
)


class BrokerThread:
    """A broker with an event loop of its own."""

    def __init__(self, data: Path, *settings: str) -> None:
        self.data = data
        # No other process gets it while the broker is stopped.
        self._reserved = ReservedPort()
        self.port = self._reserved.number
        self._settings = (
            *(f"listeners=PLAINTEXT://127.0.0.1:{self.port}", f"log.dirs={data}"),
            *(*SETTINGS, *settings),
        )
        self.start()

    def start(self) -> None:
        """Start, after a `stop` at the same address as before."""
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._started.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._reserved.release()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            broker = await start_broker(load_broker_config(None, self._settings).config)
        except BaseException as failure:
            self._failure = failure
            raise
        finally:
            if self._failure is not None:
                self._started.set()
        self._started.set()
        await self._stop.wait()
        await broker.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    running = BrokerThread(tmp_path_factory.mktemp("broker"))
    yield running
    running.close()


@pytest.fixture
def cluster(broker: BrokerThread) -> Iterator[ClusterClient]:
    with ClusterClient(broker.address, FAST) as client:
        yield client


@pytest.fixture
def start_broker_at(tmp_path: Path) -> Iterator[Callable[..., BrokerThread]]:
    """Starts brokers for one test only, with settings of its own."""
    running: list[BrokerThread] = []

    def start(*settings: str) -> BrokerThread:
        running.append(BrokerThread(tmp_path / str(len(running)), *settings))
        return running[-1]

    yield start
    for each in running:
        each.close()


_numbers = count()


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return f"thing-{next(_numbers)}"
