"""Contexts of Python's `ssl` for a client's settings, and sentences about failed handshakes.

This file must not know connections.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from strandline.client.security.settings import Tls
from strandline.client.security.stores import VERSIONS, identify, reason_of, trust
from strandline.errors import AuthenticationFailed, ErrorCode, ProtocolError

_NOT_TRUSTED: Final = (
    "the broker does not accept the client's certificate (ssl.keystore.location): it must be valid "
    "and of an authority that the broker's ssl.truststore.location has"
)
_NONE: Final = (
    "the broker demands a client certificate (ssl.client.auth=required): set ssl.keystore.location "
    "to a PEM file with the client's private key and certificate"
)
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": _NONE,
    "UNKNOWN_CA": _NOT_TRUSTED,
    # Java's brokers say so of a client that shows none, too.
    "BAD_CERTIFICATE": f"{_NONE}; or, of a client that has one, {_NOT_TRUSTED}",
    "UNSUPPORTED_CERTIFICATE": _NOT_TRUSTED,
    "CERTIFICATE_REVOKED": _NOT_TRUSTED,
    "CERTIFICATE_EXPIRED": "the client's certificate (ssl.keystore.location) has expired",
    "CERTIFICATE_UNKNOWN": _NOT_TRUSTED,
    "PROTOCOL_VERSION": "the broker takes other versions of TLS: see ssl.enabled.protocols",
}
"""What an alert of the broker means, by the end of OpenSSL's name for it."""
_OTHER_ALERT: Final = (
    "the broker refused it; it may demand a client certificate (ssl.keystore.location) or another "
    "version of TLS"
)


def context_of(tls: Tls) -> ssl.SSLContext:
    """The context for a connection. Raises `InvalidSetting` about files that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = VERSIONS[tls.oldest]
    context.maximum_version = VERSIONS[tls.newest]
    context.check_hostname = tls.checks_name
    if tls.trust is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        trust(context, tls.trust)
    if tls.chain is not None:
        identify(context, tls.chain, tls.key, tls.key_password)
    return context


def alert(address: object, start: bytes | bytearray) -> AuthenticationFailed | None:
    """What to say if an answer begins as TLS's alert does, which plain requests get."""
    if bytes(start[:2]) != b"\x15\x03":
        return None
    return AuthenticationFailed(
        ErrorCode.NETWORK_EXCEPTION,
        f"The broker at {address} speaks TLS: set security.protocol to SSL or SASL_SSL.",
    )


def failed(address: object, error: OSError) -> ProtocolError:
    """What to say of a TLS handshake that failed."""
    where = f"The TLS handshake with {address} failed"
    if isinstance(error, ssl.SSLCertVerificationError):
        told = error.verify_message.rstrip(".")  # some have one
        if error.verify_code in (18, 19, 20, 21):
            remedy = (
                "Trust its authority with ssl.truststore.location, a file with the authority's "
                "certificate in PEM form"
            )
        else:
            remedy = "The certificate must be valid, and for the host that is connected to"
        return AuthenticationFailed(ErrorCode.NETWORK_EXCEPTION, f"{where}: {told}. {remedy}.")
    if not isinstance(error, ssl.SSLError):
        told = error.strerror or str(error) or "it took too long"
        return ProtocolError(ErrorCode.NETWORK_EXCEPTION, f"{where}: {told}.")
    reason = error.reason or str(error)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return AuthenticationFailed(
            ErrorCode.NETWORK_EXCEPTION,
            f"{where}: it does not speak TLS on this port. Is security.protocol right?",
        )
    if "ALERT" in reason:
        told = next((told for end, told in _ALERTS.items() if reason.endswith(end)), _OTHER_ALERT)
        return AuthenticationFailed(
            ErrorCode.NETWORK_EXCEPTION, f"{where} ({reason_of(error)}): {told}."
        )
    if "EOF" in reason:
        return ProtocolError(
            ErrorCode.NETWORK_EXCEPTION,
            f"{where}: the broker closed the connection. Does the port speak TLS?",
        )
    return AuthenticationFailed(ErrorCode.NETWORK_EXCEPTION, f"{where}: {reason_of(error)}.")


@contextmanager
def first_answer(*, is_plain: bool) -> Iterator[None]:
    """Around what waits for the first answer: a broker that hangs up upon it may want TLS."""
    try:
        yield
    except ProtocolError as error:
        is_unexplained = type(error) is ProtocolError and error.code is ErrorCode.NETWORK_EXCEPTION
        if not (is_plain and is_unexplained):
            raise
        raise ProtocolError(
            error.code, f"{error.message} Does the port speak TLS? Then security.protocol says so."
        ) from error
