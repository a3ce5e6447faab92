"""Several brokers, each in a process of its own, under one supervisor that keeps the metadata.

    supervisor    embedded store, its socket, the ports that stay the brokers' own
    ├── broker 1  `child_process`: sockets, log directories, a session over the store's socket
    ├── broker 2
    └── broker 3

The twin of `LocalCluster`, with the same data directory. A process that ended is started again,
after a pause that grows while it does not stay. The death of a process is known here for certain,
so its session ends at once; one that hangs loses its session by silence. When the supervisor dies,
its brokers end: they could not take part in any change.

Theory of the end: all are told to stop and give their leaderships away while the others still
serve; the last step, in which nothing can be elected any more, they take together.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from typing import Final

from strandline.broker import child_words as words
from strandline.broker.child import Child
from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.readiness import offline_notice
from strandline.broker.reserved_ports import ReservedPort, with_ports
from strandline.broker.start_report import StartReport
from strandline.broker.store_server import StoreServer
from strandline.broker.watch import Watch
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes
from strandline.config.broker import BrokerConfig
from strandline.errors import StrandlineError
from strandline.storage.durable_directory import make_durably
from strandline.storage.formats import check_formats
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId

SOCKET: Final = "metadata.sock"
SOCKET_PATH_BYTES_MAX: Final = 100
"""The system's bound is 108 with Linux, 104 with macOS."""
FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 30.0
STAYED_S: Final = 60.0
"""A process that was ready for so long is started again without a long pause."""
_STOP_S: Final = 75.0
"""A broker has bounds of its own; this one is for a process that hangs."""

log = logging.getLogger(__name__)


class ProcessCluster:
    """See the module. All methods belong to one event loop. Made by `start`."""

    def __init__(
        self,
        configs: Sequence[BrokerConfig],
        store: EmbeddedStore,
        command: Sequence[str],
        users: Sequence[str],
        log_level: str,
    ) -> None:
        self.children: dict[BrokerId, Child] = {}
        """The newest process of each broker."""
        self.image = ClusterImage()
        """The metadata as the store has it."""
        self._configs = {BrokerId(config.node_id): config for config in configs}
        self._store = store
        self._command = tuple(command)
        self._users = list(users)
        self._log_level = log_level
        self._watch = Watch()
        self._observer = EmbeddedClient(
            store, session_timeout_ms=configs[0].zookeeper_session_timeout_ms
        )
        self._ports: list[ReservedPort] = []
        self._orders: dict[BrokerId, words.Order] = {}
        self._server: StoreServer | None = None
        self._temporary: str | None = None
        self._supervision: list[asyncio.Task[None]] = []

    @classmethod
    async def start(
        cls,
        configs: Sequence[BrokerConfig],
        metadata_directory: str,
        command: Sequence[str],
        users: Sequence[str] = (),
        log_level: str = "info",
    ) -> ProcessCluster:
        """Start all brokers at once and wait until they are ready.

        `command` runs `child_process`; `users` are as `--add-scram` takes them.
        Raises `InvalidSetting`, `StorageError`, `StoreError` and `StrandlineError`; then nothing
        runs.
        """
        files = RealFiles()
        check_formats(files, [path for config in configs for path in config.log_dirs])
        make_durably(files, metadata_directory)
        store = EmbeddedStore(files, metadata_directory)
        cluster = cls(configs, store, command, users, log_level)
        try:
            view = await cluster._observer.load(cluster._metadata_changed)
            cluster.image = ClusterImage.from_view(view)
            path = cluster._socket_path(metadata_directory)
            cluster._server = await StoreServer.start(store, path)
            cluster._make_orders(path)
            await cluster._start_together()
        except BaseException:
            await cluster.abandon()
            raise
        return cluster

    @property
    def reports(self) -> dict[int, StartReport]:
        """What the starts of the brokers found, of those that are ready."""
        found = {each: self.children[each].report for each in sorted(self.children)}
        return {each: report for each, report in found.items() if report is not None}

    @property
    def notice(self) -> str | None:
        """What is not there although all brokers run: they may have been more before."""
        return offline_notice(self.image)

    async def until_unfit(self) -> str:
        """Wait until no broker may go on, and say what became of them."""
        children = self.children
        await self._watch.for_ever_until(
            lambda: all(each.unfit_reason is not None for each in children.values())
        )
        return " ".join(dict.fromkeys(str(each.unfit_reason) for each in children.values()))

    async def stop(self) -> bool:
        """Stop all brokers cleanly, and the metadata store; whether all of them could."""
        try:
            await self._end_supervision()
            running = [each for each in self.children.values() if not each.has_ended]
            for child in running:
                child.wake()
                child.tell(words.STOP)
            try:
                async with asyncio.timeout(_STOP_S):
                    await self._watch.for_ever_until(
                        lambda: all(each.is_leaving or each.has_ended for each in running)
                    )
                    for child in running:
                        child.tell(words.LEAVE)
                    for child in running:
                        await child.ended()
            except TimeoutError:
                log.warning("Brokers that do not stop within %.0f s are killed.", _STOP_S)
            return all(each.was_clean for each in self.children.values())
        finally:
            await self.abandon()

    async def abandon(self) -> None:
        """Kill what runs, and give back what the supervisor holds."""
        await self._end_supervision()
        for child in self.children.values():
            child.kill()
            await child.ended()
        while self._ports:
            self._ports.pop().release()
        if self._server is not None:
            await self._server.close()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
        await self._observer.close()
        await self._store.close()

    # -- starting ----------------------------------------------------------------------------

    def _socket_path(self, directory: str) -> str:
        """In the data directory, unless that has a longer path than a socket may have."""
        path = os.path.abspath(os.path.join(directory, SOCKET))
        if len(os.fsencode(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
        self._temporary = tempfile.mkdtemp(prefix="strandline-")  # only this user's
        return os.path.join(self._temporary, SOCKET)

    def _make_orders(self, path: str) -> None:
        for broker_id, config in self._configs.items():
            listeners = with_ports(config.listeners, self._ports)
            settings = {**config.layers.static, "listeners": ",".join(map(str, listeners))}
            self._orders[broker_id] = words.Order(
                broker_id, settings, path, len(self._configs), self._users, self._log_level
            )

    async def _start_together(self) -> None:
        """All register behind one gate: none that is a moment late loses its in-sync replicas."""
        children = await asyncio.gather(*map(self._spawn, self._configs))
        await self._all_are(children, lambda child: child.is_prepared)
        for child in children:
            child.tell(words.GO)
        await self._all_are(children, lambda child: child.report is not None)
        self._supervision += [
            asyncio.create_task(self._supervise(broker_id)) for broker_id in self._configs
        ]

    async def _all_are(self, children: Sequence[Child], is_so: Callable[[Child], bool]) -> None:
        """Wait for all. Raises what keeps the first of them that cannot start."""
        await self._watch.for_ever_until(
            lambda: all(map(is_so, children)) or any(map(_cannot_start, children))
        )
        for child in filter(_cannot_start, children):
            raise child.failure or StrandlineError(
                f"The process of broker {child.broker_id} {child.end} before it was ready."
            )

    async def _until(self, child: Child, is_so: Callable[[Child], bool]) -> None:
        await self._watch.for_ever_until(lambda: is_so(child) or child.has_ended)

    async def _spawn(self, broker_id: BrokerId) -> Child:
        child = self.children[broker_id] = Child(broker_id, self._watch.changed)
        await child.start(self._command, self._orders[broker_id])
        return child

    # -- keeping them running ----------------------------------------------------------------

    async def _supervise(self, broker_id: BrokerId) -> None:
        """Start a broker again whenever its process has ended."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        ready_since_s = loop.time()
        while True:
            child = self.children[broker_id]
            await self._until(child, lambda now: now.is_leaving)
            child.tell(words.LEAVE)  # it was told to stop alone
            await child.ended()
            if self._server is not None:
                await self._server.broker_died(broker_id)
            if child.unfit_reason is not None:
                log.error("Broker %d is not started again: %s", broker_id, child.unfit_reason)
                return
            if child.report is not None and loop.time() - ready_since_s > STAYED_S:
                pause_s = FIRST_PAUSE_S
            why = f": {child.failure}" if child.failure is not None else ""
            log.warning(
                "The process of broker %d %s%s; it is started again in %.1f s.",
                *(broker_id, child.end, why, pause_s),
            )
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LAST_PAUSE_S)
            child = await self._spawn(broker_id)
            await self._until(child, lambda now: now.is_prepared)
            child.tell(words.GO)
            await self._until(child, lambda now: now.report is not None)
            ready_since_s = loop.time()
            if child.report is not None:
                log.info("Broker %d is ready again.", broker_id)
                for notice in child.report.notices:
                    log.info("Broker %d: %s", broker_id, notice)

    async def _end_supervision(self) -> None:
        for task in self._supervision:
            task.cancel()
        if self._supervision:
            await asyncio.wait(self._supervision)
        self._supervision.clear()

    def _metadata_changed(self, changes: Changes) -> None:
        self.image, _ = self.image.apply(changes)


def _cannot_start(child: Child) -> bool:
    return child.failure is not None or child.has_ended
