"""What a server needs of TLS: that of its listeners, and that of its links to other brokers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.config.broker import BrokerConfig
from strandline.config.listener_settings import ListenerSettings
from strandline.config.listeners import Listener

if TYPE_CHECKING:
    from strandline.broker.tls_listener import Certificates, TlsListener
    from strandline.node.status.broker_document import Certificate


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTls:
    """See the module. Nothing given is a broker without TLS."""

    listeners: dict[str, TlsListener] = field(default_factory=dict)
    """By the names of listeners that have TLS."""
    links: Certificates | None = None
    """For links to other brokers; None if they are without TLS."""
    timeout_s: float = 10.0
    """How long a handshake may take."""

    @classmethod
    def of(cls, config: BrokerConfig) -> ServerTls:
        """Read certificates. Raises `InvalidSetting` for what cannot be used."""
        between = config.inter_broker_listener
        if not any(each.has_tls for each in (*config.listeners, between)):
            return cls()
        # What reads certificates is needed by few brokers.
        from strandline.broker.tls_listener import Certificates, TlsListener, client_context

        static = config.layers.static
        return cls(
            listeners={
                each.name: TlsListener(ListenerSettings(static, each.name), has_sasl=each.has_sasl)
                for each in config.listeners
                if each.has_tls
            },
            links=Certificates(ListenerSettings(static, between.name), client_context)
            if between.has_tls
            else None,
            timeout_s=config.strandline_authentication_timeout_ms / 1000,
        )

    def check(self, config: BrokerConfig) -> None:
        """Raise `InvalidSetting` for settings that cannot be used."""
        for certificates, settings in self._with_settings(config):
            certificates.check(settings)

    def read(self, listener: Listener, config: BrokerConfig) -> TlsListener | None:
        """What settings say of the TLS of a listener, if it has that. Raises `InvalidSetting`."""
        if not listener.has_tls:
            return None
        from strandline.broker.tls_listener import TlsListener

        return TlsListener(ListenerSettings.now(config, listener.name), has_sasl=listener.has_sasl)

    def follow(self, config: BrokerConfig) -> None:
        """Settings have changed: connections that come from now on go by them."""
        for certificates, settings in self._with_settings(config):
            certificates.follow(settings)

    def _with_settings(
        self, config: BrokerConfig
    ) -> Iterator[tuple[Certificates, ListenerSettings]]:
        for name, listener in self.listeners.items():
            yield listener.certificates, ListenerSettings.now(config, name)
        if self.links is not None:
            between = config.inter_broker_listener.name
            yield self.links, ListenerSettings.now(config, between)

    def own_certificates(self) -> list[Certificate]:
        """What the listeners show, by their names."""
        found = (self.listeners[name].certificates.own for name in sorted(self.listeners))
        return [each for each in found if each is not None]

    def notices(self, wall_ms: int) -> list[str]:
        """Sentences about certificates that clients refuse, or will soon."""
        if not self.listeners:
            return []
        from strandline.node.authentication.certificate_time import untimely

        return [
            f"The certificate of the listener {each.listener} ({each.kept_in}) {wrong.sentence}."
            for each in self.own_certificates()
            if (wrong := untimely(each, wall_ms)) is not None
        ]
