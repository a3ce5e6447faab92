"""`Security` by Kafka's names of settings, and by librdkafka's where those differ.

This file knows names and what they exclude. Values that are secrets are taken as they are, and
appear in no error.

    Kafka                                                   librdkafka
    ssl.truststore.location (PEM or PKCS#12), .certificates ssl.ca.location, ssl.ca.pem
    ssl.keystore.location, .certificate.chain               ssl.certificate.location, .pem
    ssl.keystore.key                                        ssl.key.location, ssl.key.pem
    sasl.jaas.config                                        sasl.username, sasl.password
    sasl.mechanism                                          sasl.mechanisms
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, TypeVar, get_args

from strandline.client.security import jaas
from strandline.client.security.secret import Secret
from strandline.client.security.settings import (
    PLAINTEXT,
    Mechanism,
    Sasl,
    Security,
    Store,
    Tls,
    TlsVersion,
    TokenEndpoint,
)
from strandline.errors import InvalidSetting
from strandline.numerals import INT32_MAX, whole_number

T = TypeVar("T", bound=str)
_Given: TypeAlias = Mapping[str, object]

_PROTOCOL: Final = "security.protocol"
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final[tuple[Mechanism, ...]] = get_args(Mechanism)
_VERSIONS: Final[tuple[TlsVersion, ...]] = get_args(TlsVersion)
_STORE_TYPES: Final = ("PEM", "PKCS12", "JKS")

_TOKENAUTH: Final = "sasl.tokenauth"
"""With a name and a password: they are those of a delegation token. Our own; in Kafka it is an
option in `sasl.jaas.config`."""

_TLS: Final = (
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
    "ssl.truststore.type",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    "ssl.enabled.protocols",
    "ssl.protocol",
)
_SASL: Final = (
    "sasl.mechanism",
    "sasl.mechanisms",
    jaas.NAME,
    "sasl.username",
    "sasl.password",
    _TOKENAUTH,
    "sasl.oauthbearer.token",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
)
NAMES: Final = (_PROTOCOL, *_TLS, *_SASL)
"""All that are taken."""

SECRET_NAMES: Final = frozenset(
    {
        jaas.NAME,
        "sasl.password",
        "sasl.oauthbearer.token",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)
"""Those whose values are never to be shown."""

_REFUSED: Final = {
    "enable.ssl.certificate.verification": (
        "is not served: trust the broker's authority with ssl.truststore.location; "
        "ssl.endpoint.identification.algorithm= (empty) leaves its name unchecked"
    ),
    "ssl.cipher.suites": "is not served: OpenSSL chooses, within ssl.enabled.protocols",
    "ssl.engine.factory.class": "names a Java class: certificates come from PEM or PKCS#12 files",
    "ssl.provider": "names a Java provider: Python's ssl is used",
    "sasl.client.callback.handler.class": (
        "names a Java class: name and password come from sasl.jaas.config or sasl.username and "
        "sasl.password, tokens from sasl.oauthbearer.token or a token endpoint"
    ),
    "sasl.login.callback.handler.class": (
        "names a Java class: tokens come from sasl.oauthbearer.token (also file:PATH) or "
        "sasl.oauthbearer.token.endpoint.url"
    ),
    "sasl.login.class": "names a Java class",
    "sasl.kerberos.service.name": "is not served: there is no Kerberos (GSSAPI) here",
}


def security_of(given: _Given) -> Security:
    """What the settings say of `NAMES`; others in there are left alone. Raises `InvalidSetting`."""
    for name, reason in _REFUSED.items():
        if name in given:
            raise InvalidSetting(name, f"{name} {reason}.")
    protocol = _one_of(given, _PROTOCOL, _PROTOCOLS, "PLAINTEXT", str.upper)
    _refuse_unused(given, protocol)
    if protocol == "PLAINTEXT":
        return PLAINTEXT
    return Security(
        tls=_tls(given) if protocol.endswith("SSL") else None,
        sasl=_sasl(given) if protocol.startswith("SASL") else None,
    )


def is_refused(name: str) -> bool:
    """Whether `security_of` has a sentence for a name that it does not take."""
    return name in _REFUSED


def _refuse_unused(given: _Given, protocol: str) -> None:
    """Who names a password and forgets the protocol would send everything in the clear."""
    unused: tuple[str, ...] = () if protocol.endswith("SSL") else _TLS
    unused += () if protocol.startswith("SASL") else _SASL
    name = next((name for name in unused if name in given), None)
    if name is not None:
        needed = "SSL or SASL_SSL" if name in _TLS else "SASL_SSL or SASL_PLAINTEXT"
        raise InvalidSetting(
            name, f"{name} has no effect while security.protocol is {protocol}: it needs {needed}."
        )


# -- TLS -----------------------------------------------------------------------------------------


def _tls(given: _Given) -> Tls:
    oldest, newest = _versions(given)
    trust = _store(
        given,
        files=("ssl.truststore.location", "ssl.ca.location"),
        texts=("ssl.truststore.certificates", "ssl.ca.pem"),
        of="ssl.truststore",
    )
    chain = _store(
        given,
        files=("ssl.keystore.location", "ssl.certificate.location"),
        texts=("ssl.keystore.certificate.chain", "ssl.certificate.pem"),
        of="ssl.keystore",
    )
    key = _store(given, files=("ssl.key.location",), texts=("ssl.keystore.key", "ssl.key.pem"))
    if key is not None and chain is None:
        raise InvalidSetting(
            key.setting,
            f"{key.setting} needs the certificate that the key is for: "
            "ssl.keystore.certificate.chain or ssl.certificate.location.",
        )
    return Tls(
        trust=trust,
        chain=chain,
        key=key,
        key_password=_secret(given, "ssl.key.password"),
        checks_name=_checks_name(given),
        oldest=oldest,
        newest=newest,
    )


def _store(
    given: _Given, *, files: tuple[str, ...], texts: tuple[str, ...], of: str | None = None
) -> Store | None:
    named = [name for name in (*files, *texts) if name in given]
    if not named:
        return None
    if len(named) > 1:
        raise InvalidSetting(named[1], f"{named[1]} and {named[0]} exclude each other.")
    name = named[0]
    if of is not None:
        # The content says what it is; a type only has to be one that there is.
        _one_of(given, f"{of}.type", _STORE_TYPES, "PEM", str.upper)
    return Store(
        setting=name,
        path=_text(given, name) if name in files else None,
        pem=_secret(given, name) if name in texts else None,
        password=None if of is None else _secret(given, f"{of}.password"),
    )


def _checks_name(given: _Given) -> bool:
    name = "ssl.endpoint.identification.algorithm"
    return _one_of(given, name, ("https", "", "none"), "https", str.lower) == "https"


def _versions(given: _Given) -> tuple[TlsVersion, TlsVersion]:
    name = "ssl.enabled.protocols"
    known = dict.fromkeys(_VERSIONS)
    listed = [each.strip() for each in _text(given, name).split(",")] if name in given else []
    for each in listed:
        if each not in known:
            raise InvalidSetting(name, f"{name} takes {' and '.join(known)}, not '{each}'.")
    enabled = [version for version in _VERSIONS if not listed or version in listed]
    newest = _one_of(given, "ssl.protocol", ("TLS", *_VERSIONS), "TLSv1.3", str)
    enabled = [version for version in enabled if newest != "TLSv1.2" or version == newest]
    if not enabled:
        raise InvalidSetting(name, f"{name} and ssl.protocol leave no version of TLS.")
    return enabled[0], enabled[-1]


# -- SASL ----------------------------------------------------------------------------------------


def _sasl(given: _Given) -> Sasl:
    name = "sasl.mechanism" if "sasl.mechanism" in given else "sasl.mechanisms"
    if name not in given:
        raise InvalidSetting(
            "sasl.mechanism", f"sasl.mechanism is missing: one of {', '.join(_MECHANISMS)}."
        )
    if _text(given, name).upper() == "GSSAPI":
        raise InvalidSetting(
            name, f"{name}: there is no Kerberos (GSSAPI) here; one of {', '.join(_MECHANISMS)}."
        )
    mechanism = _one_of(given, name, _MECHANISMS, "PLAIN", str.upper)
    options = _login_options(given, mechanism)
    if mechanism == "OAUTHBEARER":
        return _oauth(given, options)
    username = options.get("username") or _text(given, "sasl.username")
    password = _secret(options, "password", jaas.NAME) or _secret(given, "sasl.password")
    if not username or password is None:
        raise InvalidSetting(
            "sasl.username" if not username else "sasl.password",
            f"{mechanism} needs a name and a password: sasl.username and sasl.password, or "
            'sasl.jaas.config with username="..." password="...".',
        )
    return Sasl(
        mechanism=mechanism,
        username=username,
        password=password,
        is_delegation_token=_is_token(given, options, mechanism),
    )


def _is_token(given: _Given, options: Mapping[str, str], mechanism: Mechanism) -> bool:
    said = options.get("tokenauth") or str(given.get(_TOKENAUTH, "false"))
    if said.lower() not in ("true", "false"):
        raise InvalidSetting(_TOKENAUTH, f"{_TOKENAUTH} takes true and false, not '{said}'.")
    is_token = said.lower() == "true"
    if is_token and not mechanism.startswith("SCRAM"):
        raise InvalidSetting(_TOKENAUTH, f"{_TOKENAUTH} is for SCRAM; {mechanism} has no tokens.")
    return is_token


def _login_options(given: _Given, mechanism: Mechanism) -> Mapping[str, str]:
    if jaas.NAME not in given:
        return {}
    line = Secret(jaas.NAME, _text(given, jaas.NAME)).reveal()
    login = jaas.parse_jaas(line)
    if mechanism not in login.mechanisms:
        raise InvalidSetting(
            jaas.NAME,
            f"{jaas.NAME} has a login module for {' and '.join(login.mechanisms)}; "
            f"sasl.mechanism is {mechanism}.",
        )
    return login.options


def _oauth(given: _Given, options: Mapping[str, str]) -> Sasl:
    token = _secret(given, "sasl.oauthbearer.token")
    extensions = tuple(
        (name.removeprefix("extension_"), value)
        for name, value in options.items()
        if name.startswith("extension_")
    )
    if token is not None:
        return Sasl(mechanism="OAUTHBEARER", token=token, extensions=extensions)
    name = "sasl.oauthbearer.token.endpoint.url"
    url = _text(given, name)
    if not url:
        raise InvalidSetting(
            name,
            "OAUTHBEARER needs sasl.oauthbearer.token (a token, env:NAME or file:PATH) or "
            f"{name} with a client id and secret.",
        )
    return Sasl(
        mechanism="OAUTHBEARER",
        endpoint=_endpoint(given, options, _checked_url(name, url)),
        extensions=extensions,
    )


def _endpoint(given: _Given, options: Mapping[str, str], url: str) -> TokenEndpoint:
    ids = ("sasl.oauthbearer.client.credentials.client.id", "sasl.oauthbearer.client.id")
    secrets = tuple(each.removesuffix("id") + "secret" for each in ids)
    client_id = options.get("clientId") or next(filter(None, (_text(given, n) for n in ids)), "")
    secret = _secret(options, "clientSecret", jaas.NAME) or next(
        filter(None, (_secret(given, name) for name in secrets)), None
    )
    if not client_id or secret is None:
        raise InvalidSetting(
            ids[0], f"The token endpoint needs {ids[0]} and {secrets[0]}, or both in {jaas.NAME}."
        )
    return TokenEndpoint(
        url=url,
        client_id=client_id,
        client_secret=secret,
        scope=options.get("scope") or _text(given, "sasl.oauthbearer.scope") or None,
        connect_timeout_ms=_milliseconds(given, "sasl.login.connect.timeout.ms"),
        read_timeout_ms=_milliseconds(given, "sasl.login.read.timeout.ms"),
    )


def _checked_url(name: str, url: str) -> str:
    parsed = urllib.parse.urlsplit(url)
    is_local = parsed.hostname in ("localhost", "127.0.0.1", "::1")
    if not parsed.hostname or not (
        parsed.scheme == "https" or (parsed.scheme == "http" and is_local)
    ):
        raise InvalidSetting(
            name, f"{name} is an https URL, since it is told a secret; http only on this machine."
        )
    return url


# -- Values --------------------------------------------------------------------------------------


def _text(given: Mapping[str, object], name: str) -> str:
    value = given.get(name, "")
    if not isinstance(value, str):
        raise InvalidSetting(name, f"{name} takes text.")
    return value.strip()


def _secret(given: Mapping[str, object], name: str, setting: str | None = None) -> Secret | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise InvalidSetting(name, f"{name} takes text.")
    return Secret(setting or name, value)


def _milliseconds(given: _Given, name: str) -> int:
    text = str(given.get(name, 10_000))
    found = whole_number(text, INT32_MAX)
    if not found:
        raise InvalidSetting(name, f"{name} takes milliseconds, not '{text}'.")
    return found


def _one_of(
    given: _Given, name: str, choices: tuple[T, ...], default: T, form: Callable[[str], str]
) -> T:
    if name not in given:
        return default
    value = form(_text(given, name))
    for choice in choices:
        if choice == value:
            return choice
    shown = ", ".join(choice or "nothing" for choice in choices)
    raise InvalidSetting(name, f"{name} takes {shown}, not '{given[name]}'.")
