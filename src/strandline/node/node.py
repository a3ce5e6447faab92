"""ONE broker as a synchronous, deterministic machine.

Events come in as method calls with the time; effects come out of `finish_turn`, in the order in
which they must be carried out. A turn is any number of events: a driver that handles many ready
sockets in one turn sends their answers together. There is no socket, thread, clock or ambient
randomness here; the same node runs in the asyncio broker and in the seeded simulator.

This file routes: which handler answers which API, and what follows from changes of the metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any, Final

from strandline.cluster.image import ClusterImage, ImageDelta
from strandline.cluster.store import Changes, StoreError
from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.cluster.znodes import ResourceKind
from strandline.config.broker import BrokerConfig
from strandline.errors import MalformedFrame, StorageError
from strandline.node.background import Background
from strandline.node.connection import Connection
from strandline.node.controller import Controller
from strandline.node.effects import Effect
from strandline.node.metadata import Metadata
from strandline.node.outbox import Outbox
from strandline.node.produce_path import ProducePath
from strandline.node.purgatory import Purgatory
from strandline.node.replicas import Directory, Replicas
from strandline.node.request import Handler, Request
from strandline.node.routes import Routes
from strandline.node.settings import Settings
from strandline.node.timers import Timers
from strandline.node.topic_creation import TopicCreation
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_request_header, peek
from strandline.protocol.messages.produce import ProduceRequest
from strandline.protocol.schema import decode_from
from strandline.storage.files import Files
from strandline.types import BrokerId, Instant, TopicPartition

log = logging.getLogger(__name__)

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS, "__transaction_state"})


class Node:
    """A broker without a driver. All methods are called from one thread."""

    def __init__(
        self,
        config: BrokerConfig,
        image: ClusterImage,
        directories: Sequence[Directory],
        *,
        files: Files,
        random: Random,
    ) -> None:
        self.broker_id = BrokerId(config.node_id)
        self.outbox = Outbox()
        self.timers = Timers()
        self.purgatory = Purgatory(self.timers, self.outbox)
        self.metadata = Metadata(image, self.outbox)
        self.settings = Settings(config)
        self.replicas = Replicas(
            files,
            directories,
            self.purgatory,
            random,
            internal_topics=INTERNAL_TOPICS,
            producer_expiration_ms=config.producer_id_expiration_ms,
        )
        self.controller = Controller(self.metadata)
        self.creation = TopicCreation(self.controller, self.settings, random)
        self.background = Background(self.replicas, self.settings, self.timers, self.outbox)
        self.routes = Routes(self, random)
        self._connection_ids = count(1)

    # -- life --------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Take up every partition that the metadata gives this broker, and the periodic work."""
        self.settings.follow(self.metadata.image, self.broker_id)
        for topic in self.metadata.image.topics.values():
            for number in topic.partitions:
                self._take_up(TopicPartition(topic.name, number), now)
        self.background.start(now)

    def stop(self, broker_epoch: int) -> bool:
        """Close every log; returns whether the next start needs no recovery."""
        closed = [directory.close_clean(broker_epoch) for directory in self.replicas.directories]
        return all(closed)

    # -- connections -------------------------------------------------------------------------

    def open_connection(self, client_host: str, listener: str) -> Connection:
        """A client has connected to the listener of that name."""
        in_flight_max = self.settings.in_flight_max
        return Connection(next(self._connection_ids), client_host, listener, in_flight_max)

    def close_connection(self, connection: Connection) -> None:
        """A client has gone; what it waited for is forgotten."""
        self.purgatory.drop_connection(connection)

    def receive(self, connection: Connection, frame: memoryview, now: Instant) -> None:
        """Handle one request. The frame's bytes may be patched, and belong to the caller after."""
        path = connection.short_way
        if path is not None and path.maybe_produce(frame, now.wall_ms):
            return
        try:
            self._receive(connection, frame, now)
        except MalformedFrame as error:
            connection.closing = str(error)
            self.outbox.speaks(connection)

    def _receive(self, connection: Connection, frame: memoryview, now: Instant) -> None:
        api_key, version, _ = peek(frame)
        handler = self.routes.find(api_key)
        if handler is None:
            raise MalformedFrame(f"The API with key {api_key} is not served.")
        api = KNOWN[api_key]
        header, position = parse_request_header(frame)
        if not api.versions.covers(version):
            if api_key != ApiKey.API_VERSIONS:
                raise MalformedFrame(
                    f"Version {version} of {api.name} is not served, only {api.versions}."
                )
            self.routes.refuse_version(
                Request(
                    connection, self.outbox, api.key, version, header.correlation_id, None, None
                )
            )
            return
        # Bytes behind the body are left alone, as Kafka does: librdkafka 2.16 sends three of them
        # after a Metadata request for all topics.
        body: object = decode_from(api.request_class, version, frame, position)[0]
        request: Request[Any] = Request(
            connection, self.outbox, api.key, version, header.correlation_id, header.client_id, body
        )
        self._handle(handler, request, now)
        if api_key == ApiKey.PRODUCE:
            self._learn(request, frame)

    def _learn(self, request: Request[ProduceRequest], frame: memoryview) -> None:
        """Give further produce requests of this shape the short way."""
        body, connection = request.body, request.connection
        if (
            body.acks not in (1, -1)
            or body.transactional_id is not None
            or len(body.topic_data) != 1
        ):
            return
        topic = body.topic_data[0]
        if len(topic.partition_data) != 1 or connection.closing is not None:
            return
        replica = self.replicas.find(topic.name, topic.topic_id, topic.partition_data[0].index)
        if replica is None or replica.topic_partition.topic in INTERNAL_TOPICS:
            return
        if not isinstance(connection.short_way, ProducePath):
            connection.short_way = ProducePath(connection, self.outbox)
        connection.short_way.learn(frame, request, replica)

    def _handle(self, handler: Handler, request: Request[object], now: Instant) -> None:
        try:
            handler(request, now)
        except Exception as error:
            # The boundary: one connection pays for a bug of ours, not the broker.
            log.exception("%s from %s failed", request.api_key.name, request.connection.client_host)
            request.abandon(f"{request.api_key.name} failed: {error}")

    # -- events from the driver --------------------------------------------------------------

    def metadata_changed(self, changes: Changes, now: Instant) -> None:
        """The store tells what changed, whoever changed it."""
        delta = self.metadata.advance(changes)
        self._follow(delta, now)

    def metadata_written(self, token: int, error: StoreError | None, now: Instant) -> None:
        """A `WriteMetadata` was carried out (its changes were told before)."""
        self.metadata.written(token, error, now)

    def log_synced(self, token: int, result: bool | StorageError, now: Instant) -> None:
        """A `SyncLog` was carried out."""
        self.background.log_synced(token, result, now)

    def finish_turn(self, now: Instant) -> list[Effect]:
        """Run what is due, wake what can go on, and hand over everything to be done."""
        self.timers.run_due(now)
        self.purgatory.wake(now)
        self.background.sync_if_wanted(now)
        return self.outbox.take()

    def next_deadline_ms(self) -> int | None:
        """Monotonic time at which a turn is due even without an event."""
        return self.timers.next_deadline_ms()

    # -- metadata ----------------------------------------------------------------------------

    def _follow(self, delta: ImageDelta, now: Instant) -> None:
        for topic in delta.topics_deleted:
            self.replicas.remove(topic, now)
        if delta.topics_deleted and self.routes.uses_groups:
            gone = [(topic.name, topic.topic_id) for topic in delta.topics_deleted]
            self.routes.groups.topics_deleted(gone, now)
        for partition in delta.partitions_changed:
            self._take_up(partition, now)
        if any(resource.kind is ResourceKind.BROKER for resource in delta.configs_changed):
            self.settings.follow(self.metadata.image, self.broker_id)
            self._reconfigure(list(self.metadata.image.topics))
        else:
            self._reconfigure(
                [
                    resource.name
                    for resource in delta.configs_changed
                    if resource.kind is ResourceKind.TOPIC
                ]
            )

    def _take_up(self, partition: TopicPartition, now: Instant) -> None:
        image = self.metadata.image
        state = image.partition(partition)
        if state is None or state.leader != self.broker_id:
            return
        topic = image.topics[partition.topic]
        replica = self.replicas.lead(
            partition,
            topic.topic_id,
            state.leader_epoch,
            self.settings.of_topic(partition.topic, image),
            now,
        )
        if replica is not None and partition.topic == CONSUMER_OFFSETS:
            self.routes.groups.became_leader(replica, now)

    def _reconfigure(self, topics: Sequence[str]) -> None:
        image = self.metadata.image
        for name in topics:
            topic = image.topics.get(name)
            if topic is None:
                continue
            config = self.settings.of_topic(name, image)
            for number in topic.partitions:
                self.replicas.reconfigure(TopicPartition(name, number), config)
