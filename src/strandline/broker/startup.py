"""Putting a broker together: the order of its start and of its end.

    bind ── load the metadata ── claim the log directories ── load the logs ── register
    ── take the controller's office ── adopt what only the disk knows ── elect ── start the node
    ── accept connections

The end is the reverse: connections first, the marker of a clean shutdown last. This file decides
nothing about the log; it calls the parts in the right order.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random, SystemRandom

from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.kraft_metadata import read_kraft_metadata
from strandline.broker.server import Limits, ListenerSocket, MetadataAccess, Server, read_clock
from strandline.cluster.controller import (
    FoundPartition,
    adopt_partitions,
    become_controller,
    bootstrap,
    elect_on_start,
    register_broker,
)
from strandline.cluster.identifiers import random_uuid, uuid_text
from strandline.cluster.image import ClusterImage
from strandline.cluster.kraft_settings import KraftSettings, UnreadableMetadata
from strandline.cluster.store import Changes, SessionId, StoreView
from strandline.cluster.znodes import BrokerNode, Endpoint
from strandline.config.broker import BrokerConfig
from strandline.config.listeners import Listener
from strandline.errors import CorruptRecords, InvalidSetting, StorageError
from strandline.node.node import Node
from strandline.node.replicas import Directory
from strandline.node.settings import Settings
from strandline.storage.directory_names import DirectoryKind, retired_directory_name
from strandline.storage.files import join
from strandline.storage.log import Log
from strandline.storage.log_directory import LogDirectory, LogToLoad
from strandline.storage.meta_properties import read_meta_properties
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StartReport:
    """What the start found, for whoever started the broker."""

    cluster_id: str
    addresses: tuple[Listener, ...]
    """Where clients connect; ports as bound."""
    log_dirs: tuple[str, ...]
    topics: int
    partitions: int
    was_clean: bool
    """Whether every log directory was shut down cleanly, or is new."""
    notices: tuple[str, ...]
    """Sentences about what was cut, rebuilt, adopted or left alone."""


class Broker:
    """A running broker. Made by `start_broker`."""

    def __init__(
        self,
        node: Node,
        server: Server,
        store: EmbeddedStore,
        session: SessionId,
        report: StartReport,
    ) -> None:
        self.report = report
        self.node = node
        self._server = server
        self._store = store
        self._session = session

    async def stop(self) -> bool:
        """Shut down cleanly; returns whether the next start needs no recovery."""
        await self._server.stop()
        registered = self.node.metadata.image.brokers.get(self.node.broker_id)
        clean = self.node.stop(registered.epoch if registered else -1)
        await self._store.close_session(self._session)
        await self._store.close()
        return clean


async def start_broker(config: BrokerConfig) -> Broker:
    """Start a broker on this event loop. Raises `InvalidSetting` and `StorageError`."""
    start = _Start(config)
    try:
        return await start.run()
    except BaseException:
        await start.undo()
        raise


class _Start:
    """The steps of one start, and what must be let go if one of them fails."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._broker_id = BrokerId(config.node_id)
        self._random: Random = SystemRandom()
        self._files = RealFiles()
        self._notices: list[str] = []
        self._sockets: list[ListenerSocket] = []
        self._directories: list[Directory] = []
        self._store: EmbeddedStore | None = None
        self._server: Server | None = None
        self._node: Node | None = None
        self._image = ClusterImage()

    async def run(self) -> Broker:
        """All steps, in order."""
        config = self._config
        for listener in config.listeners:
            self._sockets.append(ListenerSocket(listener.name, _bind(listener, config)))
        addresses = [
            _bound(listener, bound.socket)
            for listener, bound in zip(config.listeners, self._sockets, strict=True)
        ]
        for path in config.log_dirs:
            self._files.make_directory(path)
        store = self._store = EmbeddedStore(RealFiles(), config.log_dirs[0])
        session = store.open_session()
        view = await store.load(self._changed)
        self._image = ClusterImage.from_view(view)
        await self._bootstrap(store, view)
        cluster_id = self._image.cluster_id or ""
        self._open_directories(cluster_id)
        was_clean = all(
            directory.clean_shutdown is not None or not directory.contents.partitions
            for directory in self._directories
        )
        self._load_logs()
        await self._take_office(store, session, addresses)
        node = self._node = Node(
            config, self._image, self._directories, files=self._files, random=self._random
        )
        server = self._server = Server(
            node, MetadataAccess(store, session), self._files, _limits(config), self._sockets
        )
        node.start(read_clock())
        server.start()
        report = StartReport(
            cluster_id,
            tuple(addresses),
            tuple(config.log_dirs),
            len(self._image.topics),
            sum(len(topic.partitions) for topic in self._image.topics.values()),
            was_clean,
            tuple(self._notices),
        )
        return Broker(node, server, store, session, report)

    async def undo(self) -> None:
        """Let everything go without marking anything as cleanly shut down."""
        for bound in self._sockets:
            bound.socket.close()
        for directory in self._directories:
            directory.close()
        if self._store is not None:
            await self._store.close()

    def _changed(self, changes: Changes) -> None:
        """The store's listener: before the node lives, the image is kept here."""
        if self._server is None:
            self._image, _ = self._image.apply(changes)
        else:
            self._server.metadata_changed(changes)

    async def _bootstrap(self, store: EmbeddedStore, view: StoreView) -> None:
        present = read_meta_properties(self._files, self._config.log_dirs[0])
        known = None if present is None else present.cluster_id
        operations = bootstrap(
            {node.path for node in view.nodes},
            random=self._random,
            cluster_id=known or uuid_text(random_uuid(self._random)),
        )
        if operations:
            await store.multi(operations)

    def _open_directories(self, cluster_id: str) -> None:
        for path in self._config.log_dirs:
            directory: Directory = LogDirectory(self._files, path)
            self._directories.append(directory)
            directory.open(self._broker_id, cluster_id)
            self._notices += directory.warnings

    def _load_logs(self) -> None:
        settings = Settings(self._config)
        settings.follow(self._image, self._broker_id)
        now = read_clock()

        def load(found: LogToLoad) -> Log:
            loaded = Log.load(
                self._files,
                found,
                settings.of_topic(found.topic_partition.topic, self._image),
                now_ms=now.wall_ms,
                random=self._random,
                producer_expiration_ms=self._config.producer_id_expiration_ms,
            )
            self._notices.extend(loaded.recovery_report.lines())
            return loaded

        for directory in self._directories:
            if directory.offline_reason is None:
                directory.load_logs(load)
            if directory.offline_reason is not None:
                self._notices.append(f"{directory.path} is offline: {directory.offline_reason}")

    async def _take_office(
        self, store: EmbeddedStore, session: SessionId, addresses: Sequence[Listener]
    ) -> None:
        """Register, become controller, adopt what only the disk knows, and elect leaders."""
        now = read_clock()
        registration = BrokerNode(
            self._broker_id,
            tuple(
                Endpoint(listener.name, listener.host, listener.port)
                for listener in _advertised(self._config, addresses)
            ),
            self._config.broker_rack,
            now.wall_ms,
        )
        await store.multi(register_broker(self._image, registration), session)
        await store.multi(
            become_controller(self._image, self._broker_id, now_ms=now.wall_ms), session
        )
        found = [
            FoundPartition(partition, loaded.topic_id, loaded.leader_epochs.latest)
            for directory in self._directories
            for partition, loaded in directory.logs.items()
        ]
        adoption = adopt_partitions(
            self._image,
            found,
            self._broker_id,
            self._config,
            random=self._random,
            kept=self._settings_of_kafka(),
        )
        self._notices += adoption.notices()
        # Also when nothing was found: what lies here from now on is no reason to adopt again.
        if adoption.operations:
            await store.multi(adoption.operations)
        for stray in adoption.stray:
            self._set_aside(stray)
        election = elect_on_start(self._image, self._broker_id)
        if election.operations:
            await store.multi(election.operations)

    def _set_aside(self, stray: FoundPartition) -> None:
        """Rename a log that the metadata does not know, so that its name is free, and keep it.

        It is a partition that was deleted while this broker could not finish that, or one that
        somebody put here.
        """
        for directory in self._directories:
            found = directory.logs.get(stray.partition)
            if found is None or directory.offline_reason is not None:
                continue
            unique_id = random_uuid(self._random).hex
            name = retired_directory_name(stray.partition, DirectoryKind.STRAY, unique_id)
            try:
                found.rename_directory(join(directory.path, name))
                directory.forget([stray.partition])
            except StorageError as error:
                directory.go_offline(str(error))
            found.close()
            self._notices.append(
                f"The log of {stray.partition} (topic id {stray.topic_id}) is not one that the "
                f"metadata gives to this broker: it is kept as {found.directory}."
            )

    def _settings_of_kafka(self) -> KraftSettings | None:
        """Settings that Kafka kept in its metadata log, for the one time that logs are adopted."""
        if self._broker_id in self._image.adopted_by:
            return None
        try:
            return read_kraft_metadata(self._files, self._config.log_dirs)
        except (UnreadableMetadata, CorruptRecords, StorageError) as error:
            self._notices.append(f"The settings in Kafka's metadata log cannot be read: {error}")
            return None


def _bind(listener: Listener, config: BrokerConfig) -> socket.socket:
    """A listening socket. Raises `InvalidSetting` with the address when it cannot be had."""
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, size in (
            (socket.SO_SNDBUF, config.socket_send_buffer_bytes),
            (socket.SO_RCVBUF, config.socket_receive_buffer_bytes),
        ):
            if size > 0:
                sock.setsockopt(socket.SOL_SOCKET, option, size)
        sock.bind((listener.host, listener.port))
        sock.listen(config.socket_listen_backlog_size)
    except OSError as error:
        sock.close()
        raise InvalidSetting(
            "listeners", f"listeners: {listener} cannot be bound: {error.strerror or error}."
        ) from error
    return sock


def _bound(listener: Listener, sock: socket.socket) -> Listener:
    """The listener with the port that the system chose for port 0."""
    return Listener(listener.name, listener.host, sock.getsockname()[1], listener.security_protocol)


def _advertised(config: BrokerConfig, bound: Sequence[Listener]) -> list[Listener]:
    """What clients are told: as configured, with bound ports for 0 and a host for "any"."""
    ports = {listener.name: listener.port for listener in bound}
    hostname = socket.gethostname()
    return [
        Listener(
            listener.name,
            listener.host or hostname,
            listener.port or ports.get(listener.name, 0),
            listener.security_protocol,
        )
        for listener in config.advertised_listeners
    ]


def _limits(config: BrokerConfig) -> Limits:
    return Limits(
        frame_bytes_max=config.socket_request_max_bytes,
        connections_max=config.max_connections,
        per_address_max=config.max_connections_per_ip,
        per_address_overrides=config.max_connections_per_ip_overrides,
        idle_ms_max=config.connections_max_idle_ms,
    )
