"""The SASL of one broker: which listeners demand it, who is known, and how often it failed.

Users of SCRAM are in the metadata; all else comes from settings. This file holds the parts
together; what one client has to pass is in `gate`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from strandline.cluster.scram_credentials import ScramCredential, ScramMechanism
from strandline.cluster.znodes import ConfigResource, ResourceKind
from strandline.errors import InvalidSetting, InvariantViolated
from strandline.node.authentication.delegation_tokens import DelegationTokens
from strandline.node.authentication.failed_handshakes import FailedHandshakes, HandshakeKind
from strandline.node.connection import Connection
from strandline.node.metadata import Metadata
from strandline.node.outbox import Outbox
from strandline.node.settings import Settings
from strandline.node.sparing_log import SparingLog
from strandline.node.timers import Timers
from strandline.types import Instant

if TYPE_CHECKING:
    from strandline.config.broker import BrokerConfig
    from strandline.config.listener_settings import ListenerSettings
    from strandline.config.listeners import Listener
    from strandline.node.authentication.sasl_listeners import SaslListener, Tokens
    from strandline.node.authentication.tokens import TokenChecker
    from strandline.node.peer_login import PeerLogin

log = logging.getLogger(__name__)


class Attempts(NamedTuple):
    """What authentications are counted by."""

    listener: str
    mechanism: str
    """Empty if none was named."""
    failed: bool


class Authentication:
    """See the module."""

    def __init__(
        self, metadata: Metadata, settings: Settings, timers: Timers, outbox: Outbox
    ) -> None:
        self.timers = timers
        self.outbox = outbox
        self.failures = SparingLog(log)
        self.attempts: Counter[Attempts] = Counter()
        self.handshakes = FailedHandshakes()
        self.serve: Callable[[Connection, memoryview, Instant], None] = _nothing
        """How the node handles a request."""
        self._metadata = metadata
        self._settings = settings
        self._means: tuple[Tokens, Random] | None = None
        """What it takes to make the SASL of a listener."""
        self._listeners: dict[str, SaslListener] = {}
        self._protocols: dict[str, str] = {}
        """Of the listeners as they were opened."""
        self.delegation_tokens = DelegationTokens(metadata)

    def load(self, random: Random, tokens: Tokens) -> None:
        """Read what settings say. Raises `InvalidSetting`."""
        config = self._settings.broker
        self.delegation_tokens.load(config)
        self._means = (tokens, random)
        for each in config.listeners:
            self.open(each, config)

    def open(self, listener: Listener, config: BrokerConfig) -> None:
        """Clients may come by that listener. Raises `InvalidSetting`."""
        demands = self.read(listener, config)
        self._protocols[listener.name] = listener.security_protocol
        if demands is not None:
            self._listeners[listener.name] = demands

    def close(self, name: str) -> None:
        """No more clients come by that listener."""
        self._protocols.pop(name, None)
        self._listeners.pop(name, None)

    def read(self, listener: Listener, config: BrokerConfig) -> SaslListener | None:
        """What settings say of the SASL of a listener, if it has that. Raises `InvalidSetting`."""
        if not listener.has_sasl or self._means is None:
            return None
        # Few brokers have such listeners; the others start without these imports.
        from strandline.config.listener_settings import ListenerSettings
        from strandline.node.authentication.sasl_listeners import sasl_listener

        return sasl_listener(
            ListenerSettings.now(config, listener.name),
            self._credential,
            self.delegation_tokens.credential,
            *self._means,
        )

    def login(self, random: Random) -> PeerLogin | None:
        """How this broker authenticates with others. Raises `InvalidSetting`."""
        config = self._settings.broker
        if not config.inter_broker_listener.has_sasl:
            return None
        from strandline.node.authentication.sasl_listeners import own_login
        from strandline.node.peer_login import PeerLogin

        sasl = own_login(config)
        return None if sasl is None else PeerLogin(sasl, random)

    def opened(self, connection: Connection, now: Instant | None) -> None:
        """A client has come: it may have to authenticate before anything else."""
        connection.protocol = self._protocols.get(connection.listener, connection.protocol)
        listener = self._listeners.get(connection.listener)
        if listener is None:
            return
        if now is None:
            raise InvariantViolated("A client that has to authenticate has some time for it.")
        from strandline.node.authentication.gate import Gate

        Gate(self, listener, connection).shut(now)

    def count(self, listener: str, mechanism: str, *, failed: bool) -> None:
        """An authentication has ended."""
        self.attempts[Attempts(listener, mechanism, failed)] += 1

    def handshake_failed(self, kind: HandshakeKind, now: Instant) -> None:
        """A client has not come in: its TLS handshake failed."""
        self.count(kind.listener, "TLS", failed=True)
        self.handshakes.note(kind, now)

    @property
    def failure_delay_ms(self) -> int:
        """How long a client that failed waits for the answer."""
        return self._settings.broker.connection_failed_authentication_delay_ms

    @property
    def timeout_ms(self) -> int:
        """How long a client may take."""
        return self._settings.broker.strandline_authentication_timeout_ms

    @property
    def in_flight_max(self) -> int:
        """Of a client that has authenticated."""
        return self._settings.in_flight_max

    @property
    def frame_bytes_max(self) -> int:
        """Of a client that has authenticated."""
        return self._settings.broker.socket_request_max_bytes

    def _credential(self, user: str, mechanism: ScramMechanism) -> ScramCredential | None:
        stored = self._metadata.image.overrides(ConfigResource(ResourceKind.USER, user))
        text = stored.get(mechanism.sasl_name)
        try:
            return None if text is None else ScramCredential.parse(text)
        except ValueError:
            return None  # another program wrote it; no client can log in with that


def no_tokens(settings: ListenerSettings) -> TokenChecker:
    """Of a driver that checks no tokens."""
    raise InvalidSetting(
        "sasl.enabled.mechanisms",
        f"sasl.enabled.mechanisms has OAUTHBEARER for the listener {settings.listener}, which this "
        "broker cannot check.",
    )


def _nothing(connection: Connection, frame: memoryview, now: Instant) -> None:
    """Before the node is whole."""
    del connection, frame, now
