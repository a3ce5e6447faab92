"""Putting a broker together: the order of its start.

    bind ── load the metadata ── make the cluster's tree ── claim the log directories
    ── load the logs ── adopt what only the disk knows ── wait until the broker's id is free
    ── start the node, which registers ── accept connections ── wait until leaders are known

Registering, taking the controller's office and electing are the node's work, at the start as after
every lost session. This file decides nothing about the log; it calls the parts in the right order.
How a broker ends is in `running`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from random import Random, SystemRandom
from typing import Final

from strandline.broker.acceptor import Limits, ListenerSocket
from strandline.broker.addresses import advertised_endpoints, bind, bound
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.readiness import Readiness
from strandline.broker.running import Broker, Parts, StartReport
from strandline.broker.server import Server, read_clock
from strandline.broker.watch import Watch
from strandline.cluster.controller import adopt_partitions, bootstrap
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import (
    Changes,
    Create,
    MultiRefused,
    NodeCreated,
    Operation,
    OutcomeUnknown,
    Store,
    StoreUnavailable,
)
from strandline.cluster.znodes import BrokerNode, adoption_path
from strandline.config.broker import BrokerConfig
from strandline.config.listeners import Listener
from strandline.config.topic import TopicConfig
from strandline.errors import InvalidSetting
from strandline.node.log_directories import LogDirectories
from strandline.node.node import Node
from strandline.node.settings import Settings
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId, TopicPartition

log = logging.getLogger(__name__)

_WRITE_ROUNDS_MAX: Final = 20
_READY_S: Final = 10.0
_ID_GRACE_S: Final = 2.0


async def start_broker(
    config: BrokerConfig,
    store: Store | None = None,
    *,
    is_alone: bool = True,
    cut_from: Collection[BrokerId] = (),
    gate: asyncio.Barrier | None = None,
) -> Broker:
    """Start a broker on this event loop and wait until it is ready.

    Without a store, the metadata is kept in the first log directory for this broker alone. A given
    store is closed by the broker's end. A broker that is not alone in its cluster adopts no logs
    that the metadata does not know. `cut_from` names brokers that it cannot reach, for tests.
    Brokers that start together register together behind a `gate`: then nobody who is only a moment
    late loses its place in the in-sync replicas. Raises `InvalidSetting`, `StorageError` and
    `StoreError`.
    """
    start = _Start(config, store, is_alone=is_alone, cut_from=cut_from, gate=gate)
    try:
        return await start.run()
    except BaseException:
        await start.undo()
        raise


class _Start:
    """The steps of one start, and what must be let go if one of them fails."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store | None,
        *,
        is_alone: bool,
        cut_from: Collection[BrokerId],
        gate: asyncio.Barrier | None,
    ) -> None:
        self._config = config
        self._is_alone = is_alone
        self._cut_from = cut_from
        self._gate = gate
        self._broker_id = BrokerId(config.node_id)
        self._random: Random = SystemRandom()
        self._files = RealFiles()
        self._store = store
        self._own_store: EmbeddedStore | None = None
        self._directories = LogDirectories(self._files, config.log_dirs, self._random)
        self._sockets: list[ListenerSocket] = []
        self._server: Server | None = None
        self._node: Node | None = None
        self._image = ClusterImage()
        self._paths: set[str] = set()
        self._watch = Watch()

    async def run(self) -> Broker:
        """All steps, in order."""
        addresses = self._bind()
        self._directories.make()
        store = self._store or self._open_own_store()
        await self._load_metadata(store)
        self._directories.open(self._broker_id, self._image.cluster_id or "")
        self._load_logs()
        await self._adopt(store)
        await self._wait_for_id()
        if self._gate is not None:
            await self._gate.wait()
        node = self._node = self._make_node(addresses)
        server = self._server = Server(
            node, store, self._files, _limits(self._config), self._sockets
        )
        server.links.block_exactly(self._cut_from)
        node.start(read_clock())
        server.start()
        await self._wait_until_ready(node, server)
        parts = Parts(node, server, store, self._directories, self._watch, self._own_store)
        return Broker(parts, self._report(addresses))

    async def undo(self) -> None:
        """Let everything go without marking anything as cleanly shut down."""
        if self._server is not None:
            self._server.abandon()
        for each in self._sockets:
            each.socket.close()
        self._directories.abandon()
        if self._store is not None:
            await self._store.close()
        if self._own_store is not None:
            await self._own_store.close()

    # -- the steps ---------------------------------------------------------------------------

    def _bind(self) -> list[Listener]:
        addresses = []
        for listener in self._config.listeners:
            sock = bind(listener, self._config)
            self._sockets.append(ListenerSocket(listener.name, sock))
            addresses.append(bound(listener, sock))
        return addresses

    def _open_own_store(self) -> Store:
        self._own_store = EmbeddedStore(RealFiles(), self._config.log_dirs[0])
        self._store = self._own_store.client(self._config.zookeeper_session_timeout_ms)
        return self._store

    async def _load_metadata(self, store: Store) -> None:
        """Read the tree, and make what is missing of it: other brokers may be doing the same."""
        view = await store.load(self._changed)
        self._image = ClusterImage.from_view(view)
        self._paths = {node.path for node in view.nodes}
        await self._write(store, self._missing)
        self._paths = set()

    def _missing(self) -> Sequence[Operation]:
        # Metadata that others share and that are not there are those of the wrong cluster: giving
        # them the id of the logs would make all of these strays.
        known = self._directories.known_cluster_id() if self._is_alone else None
        operations = bootstrap(
            self._paths,
            random=self._random,
            cluster_id=known or uuid_text(random_uuid(self._random)),
        )
        if not self._is_alone and self._broker_id not in self._image.adopted_by:
            # Logs that others deleted must never be taken for logs to adopt, also not by a later
            # start of this broker alone.
            operations += (Create(adoption_path(self._broker_id)),)
        return operations

    def _load_logs(self) -> None:
        settings = Settings(self._config)
        settings.follow(self._image, self._broker_id)

        def config_of(partition: TopicPartition) -> TopicConfig:
            return settings.of_topic(partition.topic, self._image)

        self._directories.load(
            config_of,
            now_ms=read_clock().wall_ms,
            producer_expiration_ms=self._config.producer_id_expiration_ms,
        )

    async def _adopt(self, store: Store) -> None:
        """Take in what only the disk knows, the first time; later such logs are strays."""
        found = self._directories.found()
        is_first = self._broker_id not in self._image.adopted_by
        adoption = adopt_partitions(
            self._image,
            found,
            self._broker_id,
            self._config,
            random=self._random,
            kept=self._directories.settings_of_kafka() if is_first else None,
        )
        self._directories.notices += adoption.notices()
        # Also when nothing was found: what lies here from now on is no reason to adopt again.
        if adoption.operations:
            await store.multi(adoption.operations)
        self._directories.set_aside(adoption.stray)

    async def _wait_for_id(self) -> None:
        """A registration under this broker's id ends with its session, if its process is gone."""

        def is_free() -> bool:
            return self._broker_id not in self._image.brokers

        if is_free():
            return
        log.info("Broker %d is still registered; its session may have to end", self._broker_id)
        patience_s = 2 * self._config.zookeeper_session_timeout_ms / 1000 + _ID_GRACE_S
        if not await self._watch.until(is_free, timeout_s=patience_s):
            raise self._id_in_use(self._image)

    def _id_in_use(self, image: ClusterImage) -> InvalidSetting:
        other = image.brokers[self._broker_id]
        return InvalidSetting(
            "node.id",
            f"A broker with the id {self._broker_id} is running in this cluster, at "
            f"{other.endpoints[0]}: every broker needs an id of its own.",
        )

    def _make_node(self, addresses: Sequence[Listener]) -> Node:
        registration = BrokerNode(
            self._broker_id,
            advertised_endpoints(self._config, addresses),
            self._config.broker_rack,
            read_clock().wall_ms,
            previous_epoch=self._directories.previous_epoch,
        )
        return Node(
            self._config,
            self._image,
            self._directories.all,
            files=self._files,
            random=self._random,
            registration=registration,
        )

    async def _wait_until_ready(self, node: Node, server: Server) -> None:
        """Serve as soon as the broker is registered, but say so when leaders are known."""
        membership = node.membership
        await self._watch.until(
            lambda: membership.is_registered or membership.is_ousted, timeout_s=_READY_S
        )
        if membership.is_ousted:  # one that started at the same moment was faster
            raise self._id_in_use(node.metadata.image)
        server.accept()
        is_ready = Readiness(self._now, self._broker_id)
        if not await self._watch.until(is_ready, timeout_s=_READY_S):
            self._directories.notices.append(f"Not everything is ready yet: {is_ready.missing()}.")

    # -- following the metadata --------------------------------------------------------------

    def _now(self) -> ClusterImage:
        return self._image if self._node is None else self._node.metadata.image

    def _changed(self, changes: Changes) -> None:
        """The store's listener: before the node lives, the image is kept here."""
        if self._server is None:
            self._image, _ = self._image.apply(changes)
            self._paths.update(
                change.path for change in changes.changes if isinstance(change, NodeCreated)
            )
        else:
            self._server.metadata_changed(changes)
        self._watch.changed()

    async def _write(self, store: Store, decide: Callable[[], Sequence[Operation]]) -> None:
        """Make a decision true; it is made again if somebody else was faster."""
        for _ in range(_WRITE_ROUNDS_MAX):
            operations = decide()
            if not operations:
                return
            try:
                await store.multi(operations)
            except (MultiRefused, OutcomeUnknown) as error:
                log.info("Writing the first metadata again: %s", error)
            else:
                return
        raise StoreUnavailable("The metadata keeps changing while this broker starts.")

    def _report(self, addresses: Sequence[Listener]) -> StartReport:
        image = self._now()
        return StartReport(
            image.cluster_id or "",
            tuple(addresses),
            tuple(self._config.log_dirs),
            len(image.topics),
            sum(len(topic.partitions) for topic in image.topics.values()),
            self._directories.was_clean,
            tuple(self._directories.notices),
        )


def _limits(config: BrokerConfig) -> Limits:
    return Limits(
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        per_address_max=config.max_connections_per_ip,
        per_address_overrides=config.max_connections_per_ip_overrides,
        idle_ms_max=config.connections_max_idle_ms,
    )
