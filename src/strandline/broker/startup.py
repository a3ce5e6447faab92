"""Putting a broker together: the order of its start.

    check formats ── bind ── load the metadata ── the steps of `node.start_up`, which end with the
    node ── start the node, which registers ── accept connections ── wait until leaders are known

Registering, taking the controller's office and electing are the node's work, at the start as after
every lost session. This file decides nothing about the log; it calls the parts in the right order.
How a broker ends is in `running`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from random import SystemRandom
from typing import TYPE_CHECKING, Final, assert_never

from strandline.broker.acceptor import Limits, ListenerSocket
from strandline.broker.addresses import advertised_endpoints, bind, bound
from strandline.broker.embedded_client import EmbeddedClient
from strandline.broker.embedded_store import EmbeddedStore
from strandline.broker.event_loop import loop_use
from strandline.broker.exposure import exposure_notices
from strandline.broker.frame_memory import FrameMemory
from strandline.broker.handle_budget import HandleBudget
from strandline.broker.readiness import Readiness
from strandline.broker.running import Broker, Gate, Parts
from strandline.broker.server import Server
from strandline.broker.server_tls import ServerTls
from strandline.broker.start_report import StartReport
from strandline.broker.turns import read_clock
from strandline.broker.watch import Watch
from strandline.cluster.image import ClusterImage
from strandline.cluster.store import Changes, Store, StoreError
from strandline.config.broker import BrokerConfig
from strandline.config.listener_settings import ListenerSettings
from strandline.config.listeners import Listener
from strandline.errors import InvalidSetting
from strandline.node.node import Node
from strandline.node.start_up import StartUp, Wait, Write
from strandline.storage.formats import check_formats
from strandline.storage.real_files import RealFiles
from strandline.types import BrokerId

if TYPE_CHECKING:
    from strandline.node.authentication.first_users import FirstUser
    from strandline.node.authentication.tokens import TokenChecker

log = logging.getLogger(__name__)

_READY_S: Final = 30.0
_BUSY_S: Final = 8.0
"""A busy machine takes so much longer to notice what is waited for, and to write it to its disk."""


async def start_broker(
    config: BrokerConfig,
    store: Store | None = None,
    *,
    is_alone: bool = True,
    cut_from: Collection[BrokerId] = (),
    gate: Gate | None = None,
    handles: HandleBudget | None = None,
    frames: FrameMemory | None = None,
    users: Sequence[FirstUser] = (),
) -> Broker:
    """Start a broker on this event loop and wait until it is ready.

    Without a store, the metadata is kept in the first log directory for this broker alone. A given
    store is closed by the broker's end. A broker that is not alone in its cluster adopts no logs
    that the metadata does not know. `cut_from` names brokers that it cannot reach, for tests.
    Brokers that start together register together behind a `gate`: then no broker that is only a
    moment late loses its place in the in-sync replicas. Brokers of one process share `handles` and
    `frames`. `users` are made unless they are there.

    Raises `InvalidSetting`, `StorageError` and `StoreError`.
    """
    start = _Start(
        config,
        store,
        is_alone=is_alone,
        cut_from=cut_from,
        gate=gate,
        handles=handles or HandleBudget.of_process(),
        frames=frames or FrameMemory.of_process(config.queued_max_request_bytes),
        users=users,
    )
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
        gate: Gate | None,
        handles: HandleBudget,
        frames: FrameMemory,
        users: Sequence[FirstUser],
    ) -> None:
        self._is_alone = is_alone
        self._config = config
        self._cut_from = cut_from
        self._gate = gate
        self._broker_id = BrokerId(config.node_id)
        self._handles = handles
        self._frames = frames
        self._files = handles.files()
        self._store = store
        self._own_store: EmbeddedStore | None = None
        self._start_up = StartUp(
            config, self._files, SystemRandom(), clock=read_clock, is_alone=is_alone, users=users
        )
        self._directories = self._start_up.directories
        self._sockets: list[ListenerSocket] = []
        self._server: Server | None = None
        self._node: Node | None = None
        self._watch = Watch()
        self._tokens: Mapping[str, TokenChecker] = {}
        """What checks the tokens of OAUTHBEARER, by listener."""

    async def run(self) -> Broker:
        """All steps, in order."""
        check_formats(self._files, self._config.log_dirs)
        tls = ServerTls.of(self._config)
        self._directories.notices.extend(tls.notices(read_clock().wall_ms))
        self._check_login()
        if self._config.authorizer_class_name and self._config.strandline_audit_log_path:
            from strandline.broker.audit_file import open_audit_file

            open_audit_file(self._config.strandline_audit_log_path)
        self._tokens = await oauth_keys(self._config)
        addresses = self._bind()
        endpoints = await advertised_endpoints(self._config, addresses)
        self._directories.make()
        store = self._store or self._open_own_store()
        await self._prepare(store)
        if self._gate is not None:
            await self._gate.wait()
        node = self._start_up.make_node(endpoints, self._checker)
        self._node = node
        node.parts.handle_use = lambda: self._handles.use
        node.parts.loop_use = loop_use
        node.parts.certificates = tls.own_certificates
        node.quotas.stopwatch = time.monotonic_ns
        server = self._server = Server(
            node,
            store,
            self._files,
            _limits(self._config, self._handles, self._frames),
            self._sockets,
            tls=tls,
            on_halt=self._watch.changed,
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
        sockets = (each.socket for each in self._sockets)
        notices = exposure_notices(self._config, zip(addresses, sockets, strict=True))
        self._directories.notices.extend(notices)
        return addresses

    def _checker(self, settings: ListenerSettings) -> TokenChecker:
        checker = self._tokens.get(settings.listener)
        if checker is None:
            raise InvalidSetting(
                "sasl.enabled.mechanisms",
                f"The listener {settings.listener} cannot begin to take OAUTHBEARER at run time: "
                "restart the broker.",
            )
        return checker

    def _check_login(self) -> None:
        """Brokers of a cluster must get into each other's listeners."""
        between = self._config.inter_broker_listener
        if self._is_alone or not between.has_sasl:
            return
        from strandline.node.authentication.sasl_listeners import own_login

        if own_login(self._config) is None:
            raise InvalidSetting(
                "sasl.jaas.config",
                f"Brokers reach each other by the listener {between.name}, which has SASL, and "
                "this broker has no name and password to log in with: set listener.name."
                f"{between.name.lower()}.scram-sha-512.sasl.jaas.config, or name a listener "
                "without SASL in inter.broker.listener.name.",
            )

    def _open_own_store(self) -> Store:
        self._own_store = EmbeddedStore(RealFiles(), self._config.log_dirs[0])
        self._store = EmbeddedClient(
            self._own_store, session_timeout_ms=self._config.zookeeper_session_timeout_ms
        )
        return self._store

    async def _prepare(self, store: Store) -> None:
        """Carry out what the start's own steps ask for."""
        view = await store.load(self._changed)
        for step in self._start_up.steps(view):
            match step:
                case Write():
                    try:
                        await store.multi(step.operations)
                    except StoreError as error:
                        step.error = error
                case Wait():
                    timeout_s = step.timeout_ms / 1000 + _BUSY_S
                    step.is_met = await self._watch.until(step.condition, timeout_s=timeout_s)
                case _:
                    assert_never(step)

    async def _wait_until_ready(self, node: Node, server: Server) -> None:
        """Serve as soon as the broker is registered, but say so when leaders are known."""
        membership = node.membership
        await self._watch.until(
            lambda: membership.is_registered or membership.is_fenced, timeout_s=_READY_S
        )
        if membership.is_fenced:  # one that started at the same moment was faster
            raise self._start_up.id_in_use(node.metadata.image)
        server.accept()
        is_ready = Readiness(self._now, self._broker_id)
        if not await self._watch.until(is_ready, timeout_s=_READY_S):
            self._directories.notices.append(f"Not everything is ready yet: {is_ready.missing()}.")

    # -- following the metadata --------------------------------------------------------------

    def _now(self) -> ClusterImage:
        return self._start_up.image if self._node is None else self._node.metadata.image

    def _changed(self, changes: Changes) -> None:
        """The store's listener: before the node lives, the image is kept here."""
        if self._server is None:
            self._start_up.changed(changes)
        else:
            self._server.metadata_changed(changes)
        self._watch.changed()

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


async def oauth_keys(config: BrokerConfig) -> Mapping[str, TokenChecker]:
    """What checks the tokens of listeners with OAUTHBEARER. Raises `InvalidSetting`."""
    named = [
        ListenerSettings(config.layers.static, each.name)
        for each in config.listeners
        if each.has_sasl
    ]
    wanted = [each for each in named if "OAUTHBEARER" in each.items("sasl.enabled.mechanisms")]
    if not wanted:
        return {}
    try:
        from strandline.broker.oauth_keys import OauthKeys
    except ModuleNotFoundError as missing:
        raise InvalidSetting(
            "sasl.enabled.mechanisms",
            "OAUTHBEARER needs the package PyJWT: pip install 'strandline[oauth]'.",
        ) from missing
    found = {}
    for settings in wanted:
        keys = found[settings.listener] = OauthKeys(settings)
        await asyncio.to_thread(keys.load)
    return found


def _limits(config: BrokerConfig, handles: HandleBudget, frames: FrameMemory) -> Limits:
    return Limits(
        frame_bytes_max=config.socket_request_max_bytes,
        idle_ms_max=config.connections_max_idle_ms,
        handles=handles,
        frames=frames,
    )
