"""The rule about TLS: which clients do not come in by a listener, and what they lack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene

_REASONS: Final = (
    (
        "peer did not return a certificate",
        "it shows no certificate, which ssl.client.auth=required demands",
        "Give the client a certificate and its key with ssl.keystore.location.",
    ),
    (
        "certificate verify failed",
        "its certificate is not accepted",
        "Show a certificate that is valid now and of an authority that the broker's "
        "ssl.truststore.location has, or add its authority there.",
    ),
    (
        "alert unknown ca",
        "it does not trust the authority of this broker's certificate",
        "Give the client the authority's certificate with ssl.truststore.location.",
    ),
    (
        "http request",
        "it speaks HTTP and not TLS",
        "Set the client to Kafka's protocol, with security.protocol=SSL or SASL_SSL.",
    ),
    (
        "wrong version number",
        "it does not speak TLS",
        "Set security.protocol=SSL or SASL_SSL at the client.",
    ),
    (
        "unsupported protocol",
        "it has no version of TLS in common with this broker",
        "Let ssl.enabled.protocols of both have one version in common.",
    ),
)
"""What OpenSSL says on the broker's side; what it means; what ends it."""


def handshake_failed(scene: Scene) -> Iterator[Finding]:
    """Clients whose TLS handshakes failed in the last hour."""
    for kind, failures in scene.node.authentication.handshakes.lately(scene.now):
        cause, remedy = next(
            ((cause, remedy) for text, cause, remedy in _REASONS if text in kind.reason),
            ("its handshake was not completed", None),
        )
        ago_s = (scene.now.monotonic_ms - failures.last.monotonic_ms) / 1000
        times = "once" if failures.count == 1 else f"{failures.count:,} times"
        yield Finding(
            f"the client at {kind.host}, by listener {kind.listener}",
            cause,
            failures.first.wall_ms,
            (f"{times}, last {ago_s:.1f} s ago: {kind.reason}",),
            remedy,
        )


RULES: Final = (
    Rule(
        "handshake-failed",
        "The TLS handshakes of a client fail",
        Scope.CLUSTER,
        (),
        "The client and the listener do not agree about certificates or about TLS itself: the "
        "client is sent away before its first request. Failures of the last hour are told.",
        "Compare the client's settings of TLS with those of the listener.",
        ("ssl.client.auth", "ssl.truststore.location", "ssl.enabled.protocols"),
        handshake_failed,
    ),
)
