"""ONE broker as a synchronous, deterministic machine.

Events come in as method calls with the time; effects come out of `finish_turn`, in the order in
which they must be carried out. A turn is any number of events: a driver that handles many ready
sockets in one turn sends their answers together. There is no socket, thread, clock or ambient
randomness here; the same node runs in the asyncio broker and in the seeded simulator.

This file holds the parts together and routes events to them: which handler answers which API
stands in `routes`, how a frame comes to it in `request_dispatcher`, and what follows from a change
of the metadata in `metadata_listener`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from random import Random
from typing import TYPE_CHECKING

from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes, StoreError
from strandline.cluster.topic_names import INTERNAL_TOPICS
from strandline.cluster.znodes import BrokerNode
from strandline.config.broker import BrokerConfig
from strandline.errors import MalformedFrame, StorageError, StrandlineError
from strandline.node.authentication.authentication import Authentication, no_tokens
from strandline.node.background import Background
from strandline.node.client_quotas import ClientQuotas
from strandline.node.connection import Connection
from strandline.node.controller import Controller
from strandline.node.controller_loop import ControllerLoop
from strandline.node.effects import Effect, LinkId
from strandline.node.fetchers import Fetchers
from strandline.node.group_access import GroupAccess
from strandline.node.in_sync_changes import InSyncChanges
from strandline.node.logs import Directory, Logs
from strandline.node.membership import Membership
from strandline.node.metadata import Metadata
from strandline.node.metadata_listener import MetadataListener
from strandline.node.open_connections import OpenConnections
from strandline.node.outbox import Outbox
from strandline.node.parts import NodeParts
from strandline.node.peers import Peers
from strandline.node.purgatory import Purgatory
from strandline.node.replica import Replica
from strandline.node.replica_host import ReplicaHost
from strandline.node.replicas import Replicas
from strandline.node.request_dispatcher import RequestDispatcher
from strandline.node.routes import Routes
from strandline.node.settings import Settings
from strandline.node.sharing.access import ShareAccess
from strandline.node.telemetry import Telemetry
from strandline.node.timers import Timers
from strandline.node.token_expiry import TokenExpiry
from strandline.node.topic_creation import TopicCreation
from strandline.node.transaction_access import TransactionAccess
from strandline.node.why.refusals import Refusal
from strandline.storage.clean_shutdown import CleanShutdown, together
from strandline.storage.compaction.dry_run import DryRun
from strandline.storage.compaction.plan import CleaningResult
from strandline.storage.files import Files
from strandline.storage.flush_plan import Closing, finish
from strandline.types import ANONYMOUS, BrokerId, Instant, Principal

if TYPE_CHECKING:
    from strandline.node.authentication.sasl_listeners import Tokens
    from strandline.node.authorization.authority import Authority


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
        registration: BrokerNode,
        tokens: Tokens = no_tokens,
    ) -> None:
        """`registration` is what this broker tells the others about itself; it registers itself.

        `tokens` makes what checks the tokens of OAUTHBEARER. Raises `InvalidSetting` for SASL that
        cannot be.
        """
        self.broker_id = BrokerId(config.node_id)
        self.outbox = Outbox()
        self.timers = Timers()
        self.purgatory = Purgatory(self.timers, self.outbox)
        self.metadata = Metadata(image, self.outbox)
        self.settings = Settings(config)
        self.settings.ignores_case = any(each.ignores_case for each in directories)
        host = ReplicaHost(
            Logs(
                files,
                directories,
                random,
                producer_expiration_ms=config.producer_id_expiration_ms,
            ),
            self.metadata,
            self.settings,
            self.purgatory,
            self.timers,
        )
        self.replicas = Replicas(host, internal_topics=INTERNAL_TOPICS)
        self.telemetry = Telemetry(self.outbox, self.metadata, self.replicas, _explain)
        self.authentication = Authentication(self.metadata, self.settings, self.timers, self.outbox)
        self.authentication.load(random, tokens)
        self.peers = Peers(
            self.metadata,
            self.settings,
            self.outbox,
            self.timers,
            self.authentication.login(random),
        )
        self.fetchers = Fetchers(
            self.broker_id, self.metadata, self.settings, self.peers, self.timers
        )
        self.controller = Controller(self.metadata, self.timers)
        self.membership = Membership(self.metadata, self.settings, self.timers, registration)
        self.controller_loop = ControllerLoop(
            self.metadata, self.controller, self.settings, self.timers, self.membership
        )
        self.in_sync_changes = InSyncChanges(
            self.metadata,
            self.settings,
            self.membership,
            self.controller_loop,
            self.peers,
            self.timers,
        )
        host.proposals = self.in_sync_changes
        self.creation = TopicCreation(self.controller, self.settings, random)
        self.background = Background(self.replicas, self.settings, self.timers, self.outbox)
        self.sharing = ShareAccess(
            self.metadata,
            self.settings,
            self.replicas,
            self.peers,
            self.timers,
            creation=self.creation,
            purgatory=self.purgatory,
        )
        self.groups = GroupAccess(
            self.metadata, self.settings, self.replicas, self.timers, random, self.sharing
        )
        self.transactions = TransactionAccess(
            self.metadata,
            self.settings,
            self.replicas,
            self.peers,
            self.timers,
            controller=self.controller,
            groups=self.groups,
        )
        self.connections = OpenConnections()
        self.quotas = ClientQuotas(self.settings, self.timers, self.outbox, self.connections)
        self.quotas.start(image)
        self.authority: Authority | None = None
        if config.authorizer_class_name:
            # Most brokers have none, and do without what it needs.
            from strandline.node.authorization.authority import Authority

            self.authority = Authority(config, self.metadata, self.connections)
        self.parts = NodeParts(
            broker_id=self.broker_id,
            authentication=self.authentication,
            outbox=self.outbox,
            timers=self.timers,
            purgatory=self.purgatory,
            metadata=self.metadata,
            settings=self.settings,
            replicas=self.replicas,
            telemetry=self.telemetry,
            peers=self.peers,
            fetchers=self.fetchers,
            controller=self.controller,
            membership=self.membership,
            controller_loop=self.controller_loop,
            in_sync_changes=self.in_sync_changes,
            creation=self.creation,
            background=self.background,
            groups=self.groups,
            transactions=self.transactions,
            sharing=self.sharing,
            quotas=self.quotas,
            authority=self.authority,
        )
        self.routes = Routes(self.parts, random)
        self._requests = RequestDispatcher(self.routes, self.parts)
        self.authentication.serve = self._requests.dispatch
        self._metadata_listener = MetadataListener(self.parts)
        self._connection_ids = count(1)

    # -- life --------------------------------------------------------------------------------

    def start(self, now: Instant) -> None:
        """Become a member of the cluster, with the partitions it gives, and begin to work."""
        self._metadata_listener.start(now)
        self.background.start(now)
        self.membership.start()
        self.controller_loop.start(now)
        if self.authentication.delegation_tokens.is_enabled:
            interval_ms = self.settings.broker.delegation_token_expiry_check_interval_ms
            expiry = TokenExpiry(self.controller_loop)
            self.background.repeat(interval_ms, interval_ms, expiry.look, now)

    def begin_shutdown(self, now: Instant) -> None:
        """Ask the cluster to do without this broker; see `is_shutdown_complete`. Idempotent."""
        self.background.cleaning.stop()
        self.membership.begin_shutdown(now)

    @property
    def is_shutdown_complete(self) -> bool:
        """Whether leadership has moved away as far as it can, or took too long to."""
        image = self.metadata.image
        states = (image.partition(replica.topic_partition) for replica in self.replicas)
        return self.membership.may_stop(state for state in states if state is not None)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's newest registration, -1 if it never was registered."""
        return self.membership.broker_epoch

    @property
    def oldest_valid_broker_epoch(self) -> int:
        """The broker epoch for the marker of a clean shutdown; -1 if it never was registered."""
        return self.membership.oldest_valid_broker_epoch

    def stop(self, broker_epoch: int) -> bool:
        """Close every log; returns whether the next start needs no recovery.

        `broker_epoch` goes into the marker of a clean shutdown: that is
        `oldest_valid_broker_epoch`.
        """
        clean = True
        for closing in self.closings(broker_epoch):
            clean &= finish(closing)
        return clean

    def closings(self, broker_epoch: int, *, at_once: int = 1) -> list[Closing]:
        """`stop` in steps of so many logs, for each log directory; all are to be finished."""
        membership, directories = self.membership, self.replicas.logs.directories
        # Each marker names the logs of all: the next start may be without one of the directories.
        held = together(each.held for each in directories)
        shutdown = CleanShutdown(broker_epoch, membership.lives, membership.unheard_ms, held)
        return [each.closing(shutdown, at_once=at_once) for each in directories]

    def abandon(self) -> None:
        """Let every file go, and write nothing: as if the process had died."""
        for directory in self.replicas.logs.directories:
            directory.close()

    # -- connections -------------------------------------------------------------------------

    def open_connection(
        self,
        client_host: str,
        listener: str,
        principal: Principal = ANONYMOUS,
        now: Instant | None = None,
    ) -> Connection:
        """A client has connected to the listener of that name; TLS may have told who it is.

        A listener with SASL needs to know the time: a client has not more of it than it needs.
        """
        in_flight_max = self.settings.in_flight_max
        number = next(self._connection_ids)
        connection = Connection(number, client_host, listener, in_flight_max, principal)
        connection.frame_bytes_max = self.settings.broker.socket_request_max_bytes
        self.authentication.opened(connection, now)
        self.connections.add(connection)
        return connection

    def close_connection(self, connection: Connection) -> None:
        """A client has gone; what it waited for is forgotten."""
        connection.ended()
        self.purgatory.drop_connection(connection)
        self.connections.remove(connection)

    def receive(self, connection: Connection, frame: memoryview, now: Instant) -> None:
        """Handle one request. The frame's bytes may be patched, and belong to the caller after."""
        path = connection.fast_path
        if path is not None and path.maybe_handle(frame, now):
            return
        try:
            self._receive(connection, frame, now)
        except MalformedFrame as error:
            connection.closing = str(error)
            self.outbox.flush_later(connection)

    def _receive(self, connection: Connection, frame: memoryview, now: Instant) -> None:
        gate = connection.gate
        if gate is not None and gate.is_shut:
            gate.maybe_handle(frame, now)
        else:
            self._requests.dispatch(connection, frame, now)

    # -- events from the driver --------------------------------------------------------------

    def metadata_changed(self, changes: Changes, now: Instant) -> None:
        """The store tells what changed, by this broker or another."""
        before = self.metadata.image
        delta = self.metadata.advance(changes)
        self.quotas.follow(self.metadata.image, delta)
        self.authentication.delegation_tokens.follow(delta)
        if self.authority is not None:
            self.authority.follow(delta)
        self.telemetry.metadata_changed(before, self.metadata.image, delta, now)
        self._metadata_listener.follow(delta, now)

    def metadata_written(self, token: int, error: StoreError | None, now: Instant) -> None:
        """A `WriteMetadata` was carried out (its changes were told before)."""
        self.metadata.written(token, error, now)

    def log_synced(self, token: int, result: bool | StorageError, now: Instant) -> None:
        """A `SyncLog` was carried out."""
        self.background.log_synced(token, result, now)

    def log_cleaned(self, token: int, result: CleaningResult, now: Instant) -> None:
        """A `CleanLog` has brought a new segment."""
        self.background.cleaning.log_cleaned(token, result, now)

    def cleaning_ended(self, token: int, error: StrandlineError | None, now: Instant) -> None:
        """A `CleanLog` was carried out, or ended early."""
        self.background.cleaning.cleaning_ended(token, error, now)

    def log_examined(self, token: int, outcome: DryRun | StrandlineError, now: Instant) -> None:
        """An `ExamineLog` was carried out."""
        del now
        self.background.dry_runs.ended(token, outcome)

    def files_removed(self, token: int, error: StorageError | None, now: Instant) -> None:
        """A `RemoveFiles` was carried out, or could not be."""
        del now
        self.background.retention_task.files_removed(token, error)

    def link_opened(self, link: LinkId, now: Instant) -> None:
        """A `Dial` succeeded."""
        self.peers.link_opened(link, now)

    def link_received(self, link: LinkId, frame: memoryview, now: Instant) -> None:
        """A frame came over a link, its size left out; its bytes belong to the caller after."""
        self.peers.link_received(link, frame, now)

    def link_closed(self, link: LinkId, reason: str, now: Instant) -> None:
        """A link has ended, or could not be made."""
        self.peers.link_closed(link, reason, now)

    def finish_turn(self, now: Instant) -> list[Effect]:
        """Run what is due, wake what can go on, and hand over everything to be done."""
        self.timers.run_due(now)
        self._metadata_listener.act(now)
        self.background.act(now)
        self.fetchers.starts_saved(self.replicas.save_log_starts())
        self.membership.act(now)
        self.controller_loop.act(now)
        self.in_sync_changes.act(now)
        self.purgatory.wake(now)
        self.background.sync_if_wanted(now)
        self.telemetry.finish_turn(now)
        return self.outbox.take()

    # -- checks ------------------------------------------------------------------------------

    def check(self, replicas: Iterable[Replica]) -> None:
        """Raise `InvariantViolated` unless the parts of this broker agree about these replicas,
        and nothing waits for what has happened. For tests and simulators, between two turns.

        Costs as much as there is to be waited for, and nothing for what logs hold; `check_all`
        looks at every replica, and at what each log says of itself.
        """
        self.parts.check(replicas)

    def check_all(self) -> None:
        """Raise `InvariantViolated` unless everything agrees that `check` is about, and logs and
        fetch sessions with themselves."""
        self.parts.check_all()
        for session in self.routes.fetch_sessions or ():
            session.check()

    @property
    def is_without_directory(self) -> bool:
        """Whether every log directory has failed, so that the process is to end (`Halt`)."""
        return self.replicas.is_without_directory

    def next_deadline_ms(self) -> int | None:
        """Monotonic time at which a turn is due even without an event."""
        return self.timers.next_deadline_ms()


def _explain(refusal: Refusal) -> str:
    # The rules are needed for this sentence only, and most brokers never say one.
    from strandline.node.why.table import explain

    return explain(refusal)
