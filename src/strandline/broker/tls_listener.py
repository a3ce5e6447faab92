"""The TLS of one listener: its certificate, whom it trusts, and who a client's certificate says.

Certificates are read again when their files change, for the connections that come then; files that
cannot be used any more are logged, and the former ones stay. This file must not know handshakes.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Final, get_args

from strandline.broker.tls_socket import TlsSocket
from strandline.client.security.secret import Secret
from strandline.client.security.settings import Store, Tls, TlsVersion
from strandline.client.security.stores import VERSIONS, identify, own_certificate, trust
from strandline.client.security.tls import context_of
from strandline.config.listener_changes import CERTIFICATES
from strandline.config.listener_settings import ListenerSettings
from strandline.errors import InvalidSetting
from strandline.node.authentication.der import validity
from strandline.node.authentication.distinguished_name import subject_of
from strandline.node.authentication.principal_rules import PrincipalRules
from strandline.node.status import broker_document
from strandline.types import ANONYMOUS, USER, Principal

log = logging.getLogger(__name__)

_LOOK_AGAIN_S: Final = 1.0
_FILES: Final = ("ssl.keystore.location", "ssl.truststore.location")
_REFERENCES: Final = tuple(sorted(CERTIFICATES.difference(_FILES)))
"""Settings that may name a file, as `file:PATH`."""
_TYPES: Final = ("PEM", "PKCS12", "JKS")
_MODES: Final = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


class Certificates:
    """A context of TLS that is made anew when the files of its settings change."""

    def __init__(
        self, settings: ListenerSettings, make: Callable[[ListenerSettings], ssl.SSLContext]
    ) -> None:
        """Raises `InvalidSetting` for what cannot be used, now but not later."""
        self._settings = settings
        self._make = make
        self._stamp = _stamps(settings)
        self._looked_s = time.monotonic()
        self._context = make(settings)
        self._own = own_facts(settings)

    @property
    def context(self) -> ssl.SSLContext:
        """The one of today."""
        self._look_at_files()
        return self._context

    @property
    def own(self) -> broker_document.Certificate | None:
        """What is known of one's own certificate; None if there is none."""
        self._look_at_files()
        return self._own

    def check(self, settings: ListenerSettings) -> None:
        """Raise `InvalidSetting` for other settings that cannot be used."""
        if _given(settings) != _given(self._settings):
            self._make(settings)
            own_facts(settings)

    def follow(self, settings: ListenerSettings) -> None:
        """Go by these settings from now on, or, if they cannot be used, by the former ones."""
        if _given(settings) == _given(self._settings):
            return
        stamp = _stamps(settings)  # of before they are read: what changes meanwhile is read again
        if self._adopt(settings):
            self._stamp = stamp
            log.info("The listener %s has other certificates", settings.listener)

    def _look_at_files(self) -> None:
        now_s = time.monotonic()
        if now_s < self._looked_s + _LOOK_AGAIN_S:
            return
        self._looked_s = now_s
        stamp = _stamps(self._settings)
        if stamp == self._stamp:
            return
        self._stamp = stamp
        if self._adopt(self._settings):
            log.info("The listener %s has read its certificates again", self._settings.listener)

    def _adopt(self, settings: ListenerSettings) -> bool:
        """Go by what these settings and their files say now, unless that cannot be used."""
        try:
            context, own = self._make(settings), own_facts(settings)
        except InvalidSetting as error:
            log.error(
                "The certificates of the listener %s have changed and cannot be used; the former "
                "ones stay: %s",
                settings.listener,
                error,
            )
            return False
        self._settings, self._context, self._own = settings, context, own
        return True


class TlsListener:
    """See the module. Raises `InvalidSetting` for what cannot be used."""

    def __init__(self, settings: ListenerSettings, *, has_sasl: bool) -> None:
        self._has_sasl = has_sasl
        rules = "ssl.principal.mapping.rules"
        self._rules = PrincipalRules(settings.text(rules) or "DEFAULT", settings.name(rules))
        self.certificates = Certificates(settings, partial(server_context, has_sasl=has_sasl))

    def wrap(self, sock: socket.socket) -> TlsSocket:
        """The socket with a handshake to be done."""
        context = self.certificates.context
        if context.verify_mode is ssl.CERT_NONE or context.minimum_version >= VERSIONS["TLSv1.3"]:
            return TlsSocket(sock, context, server_side=True)
        # OpenSSL keeps sessions of TLS 1.2 in the context that a connection begins with, and takes
        # up a known one without asking for a certificate. So each begins with a context of its own.
        wrapped = TlsSocket(sock, _without_sessions(context), server_side=True)
        wrapped.tls.context = context
        return wrapped

    def principal(self, sock: TlsSocket) -> Principal:
        """Who the client is by its certificate. Raises `ValueError` if that cannot be read."""
        certificate = sock.tls.getpeercert(binary_form=True)
        if certificate is None or self._has_sasl:
            return ANONYMOUS
        return Principal(USER, self._rules.name_of(subject_of(certificate)))


def _without_sessions(like: ssl.SSLContext) -> ssl.SSLContext:
    """What a connection takes over at its beginning: all but certificates and trust."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.num_tickets, context.options = like.num_tickets, like.options
    context.minimum_version, context.maximum_version = like.minimum_version, like.maximum_version
    context.verify_mode = like.verify_mode
    return context


def own_facts(settings: ListenerSettings) -> broker_document.Certificate | None:
    """What the broker tells of the certificate that it shows."""
    chain = tls_settings(settings).chain
    if chain is None:
        return None
    certificate = own_certificate(chain)
    try:
        counts = validity(certificate)
        return broker_document.Certificate(
            listener=settings.listener,
            subject=subject_of(certificate),
            kept_in=chain.path or chain.setting,
            begins_wall_ms=counts.begins_ms,
            expires_wall_ms=counts.expires_ms,
        )
    except ValueError as error:
        raise InvalidSetting(chain.setting, f"{chain.setting}: {error}") from error


def server_context(settings: ListenerSettings, *, has_sasl: bool) -> ssl.SSLContext:
    """The context for clients of a listener. Raises `InvalidSetting`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Tickets would let a client come back whose certificate is not trusted any more, and TLS 1.2
    # lets clients ask for handshakes over and over.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
    tls = tls_settings(settings)
    context.minimum_version, context.maximum_version = VERSIONS[tls.oldest], VERSIONS[tls.newest]
    if tls.chain is None:
        raise InvalidSetting(
            "ssl.keystore.location",
            f"The listener {settings.listener} has no certificate: set ssl.keystore.location to a "
            "PEM file with its private key and certificates, or ssl.keystore.certificate.chain "
            "and ssl.keystore.key.",
        )
    identify(context, tls.chain, tls.key, tls.key_password)
    mode = _MODES[_client_auth(settings, has_sasl=has_sasl)]
    if mode is not ssl.CERT_NONE:
        if tls.trust is None:
            raise InvalidSetting(
                "ssl.truststore.location",
                f"The listener {settings.listener} asks clients for certificates "
                "(ssl.client.auth) and trusts no authority: set ssl.truststore.location.",
            )
        trust(context, tls.trust)
        context.verify_mode = mode
    return context


def client_context(settings: ListenerSettings) -> ssl.SSLContext:
    """The context by which this broker connects to the listener of others. Raises as above."""
    return context_of(tls_settings(settings))


def tls_settings(settings: ListenerSettings) -> Tls:
    """Certificates and versions of a listener. Raises `InvalidSetting`."""
    oldest, newest = _versions(settings)
    key_name = settings.name("ssl.keystore.key")
    key = _secret(settings, "ssl.keystore.key")
    algorithm = str(settings.value("ssl.endpoint.identification.algorithm") or "").lower()
    return Tls(
        trust=_store(
            settings,
            "ssl.truststore.location",
            "ssl.truststore.certificates",
            "ssl.truststore.password",
            "ssl.truststore.type",
        ),
        chain=_store(
            settings,
            "ssl.keystore.location",
            "ssl.keystore.certificate.chain",
            "ssl.keystore.password",
            "ssl.keystore.type",
        ),
        key=None if key is None else Store(setting=key_name, pem=key),
        key_password=_secret(settings, "ssl.key.password"),
        checks_name=algorithm == "https",
        oldest=oldest,
        newest=newest,
    )


def _versions(settings: ListenerSettings) -> tuple[TlsVersion, TlsVersion]:
    known: tuple[TlsVersion, ...] = get_args(TlsVersion)
    enabled = settings.items("ssl.enabled.protocols")
    if settings.value("ssl.protocol") == known[0]:
        known = known[:1]  # Java's context of that version has no newer one
    versions = [each for each in known if each in enabled]
    if not versions:
        raise InvalidSetting(
            "ssl.enabled.protocols",
            f"ssl.enabled.protocols is {','.join(enabled)}; it must have {' or '.join(known)}.",
        )
    return versions[0], versions[-1]


def _client_auth(settings: ListenerSettings, *, has_sasl: bool) -> str:
    """Kafka asks clients of SASL for certificates only if that is said of their listener itself."""
    name = "ssl.client.auth"
    if has_sasl and settings.name(name) == name:
        return "none"
    return str(settings.value(name)).lower()


def _store(
    settings: ListenerSettings, location: str, text: str, password: str, kind: str
) -> Store | None:
    path, pem = settings.text(location), _secret(settings, text)
    if path is not None and pem is not None:
        raise InvalidSetting(
            settings.name(text),
            f"{settings.name(text)} and {settings.name(location)} exclude each other.",
        )
    # What a file is shows its content; a type only has to be one that there is.
    if str(settings.value(kind)).upper() not in _TYPES:
        raise InvalidSetting(
            settings.name(kind),
            f"{settings.name(kind)} is {settings.value(kind)}; it must be {' or '.join(_TYPES)}.",
        )
    if path is None and pem is None:
        return None
    return Store(
        setting=settings.name(text if path is None else location),
        path=path,
        pem=pem,
        password=_secret(settings, password),
    )


def _given(settings: ListenerSettings) -> tuple[object, ...]:
    return tuple(settings.value(each) for each in sorted(CERTIFICATES))


def _secret(settings: ListenerSettings, name: str) -> Secret | None:
    text = settings.text(name)
    return None if text is None else Secret(settings.name(name), text)


def _stamps(settings: ListenerSettings) -> tuple[object, ...]:
    given = [settings.text(name) or "" for name in _REFERENCES]
    named = [text.removeprefix("file:") for text in given if text.startswith("file:")]
    return tuple(map(_stamp, [*map(settings.text, _FILES), *named]))


def _stamp(path: str | None) -> object:
    if path is None:
        return None
    try:
        status = os.stat(os.path.expanduser(path))
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
