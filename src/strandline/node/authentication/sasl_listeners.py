"""The SASL of listeners, from settings under Kafka's names: which mechanisms, and who is known.

    listener.name.<listener>.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
    listener.name.<listener>.plain.sasl.jaas.config=...PlainLoginModule required user_alice="...";

A mechanism's JAAS line also has the name and password by which this broker itself logs in with
others, if the listener is that of the brokers. Classes are Kafka's code and are refused by name,
but for those that do what is done here anyhow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from strandline.client.security.jaas import Login, parse_jaas
from strandline.client.security.secret import Secret
from strandline.client.security.settings import Mechanism as ClientMechanism
from strandline.client.security.settings import Sasl
from strandline.cluster.scram_credentials import MECHANISMS
from strandline.config.broker import BrokerConfig
from strandline.config.listener_settings import SASL_MECHANISMS, ListenerSettings
from strandline.errors import InvalidSetting
from strandline.node.authentication.mechanisms import Mechanism, Plain
from strandline.node.authentication.scram_server import Lookup, Scram, TokenLookup
from strandline.node.authentication.tokens import OauthBearer, TokenChecker

_JAAS: Final = "sasl.jaas.config"
_USER: Final = "user_"
_CLASSES: Final = {
    "sasl.server.callback.handler.class": (
        "users of PLAIN are in sasl.jaas.config, those of SCRAM in the metadata "
        "(kafka-configs, --add-scram), and tokens of OAUTHBEARER are checked with "
        "sasl.oauthbearer.jwks.endpoint.url"
    ),
    "sasl.login.callback.handler.class": "brokers log in with sasl.jaas.config",
    "sasl.login.class": "brokers log in with sasl.jaas.config",
}
_HARMLESS: Final = frozenset(
    {
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler",
        "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        "org.apache.kafka.common.security.plain.internals.PlainServerCallbackHandler",
        "org.apache.kafka.common.security.scram.internals.ScramServerCallbackHandler",
    }
)
"""What they do is done here."""

Tokens = Callable[[ListenerSettings], TokenChecker]
"""Makes what checks the tokens of a listener. Raises `InvalidSetting`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslListener:
    """What one listener demands of its clients."""

    mechanisms: Mapping[str, Mechanism]
    reauthentication_ms: Mapping[str, int]
    """By mechanism: the longest session; 0 for no end."""
    receive_bytes_max: int
    """The largest request of a client that has not authenticated."""


def sasl_listener(
    settings: ListenerSettings,
    lookup: Lookup,
    delegated: TokenLookup,
    tokens: Tokens,
    random: Random,
) -> SaslListener:
    """What a listener with SASL demands. Raises `InvalidSetting`."""
    mechanisms: dict[str, Mechanism] = {}
    for name in enabled_mechanisms(settings):
        _refuse_classes(settings, name)
        match name:
            case "PLAIN":
                mechanisms[name] = Plain(_passwords(settings))
            case "OAUTHBEARER":
                mechanisms[name] = OauthBearer(tokens(settings))
            case _:
                mechanisms[name] = Scram(MECHANISMS[name], lookup, delegated, random)
    return SaslListener(
        mechanisms=mechanisms,
        reauthentication_ms={
            name: max(0, settings.number("connections.max.reauth.ms", name)) for name in mechanisms
        },
        receive_bytes_max=settings.number("sasl.server.max.receive.size"),
    )


def enabled_mechanisms(settings: ListenerSettings) -> tuple[str, ...]:
    """`sasl.enabled.mechanisms` of a listener. Raises `InvalidSetting` if one is not served."""
    setting = "sasl.enabled.mechanisms"
    found = settings.items(setting)
    wrong = [each for each in found if each not in SASL_MECHANISMS]
    if wrong or not found:
        told = f"has {wrong[0]}" if settings.is_given(setting) and wrong else "is not set"
        raise InvalidSetting(
            settings.name(setting),
            f"{settings.name(setting)} {told} for the listener {settings.listener}; mechanisms "
            f"that are served are {', '.join(SASL_MECHANISMS)}.",
        )
    return found


def _refuse_classes(settings: ListenerSettings, mechanism: str) -> None:
    for setting, instead in _CLASSES.items():
        given = settings.text(setting, mechanism)
        if given is not None and given not in _HARMLESS:
            name = settings.name(setting, mechanism)
            raise InvalidSetting(
                name, f"{name} is {given}, a Java class, which is not served: {instead}."
            )


def _passwords(settings: ListenerSettings) -> dict[str, bytes]:
    """Of the users of PLAIN. Raises `InvalidSetting` if there is none: every login would fail."""
    name, login = login_of(settings, "PLAIN")
    options = {} if login is None else login.options
    users = {
        option.removeprefix(_USER): Secret(name, password).reveal().encode()
        for option, password in options.items()
        if option.startswith(_USER)
    }
    if not users:
        told = "is not set" if login is None else "names no user"
        raise InvalidSetting(
            name,
            f"The listener {settings.listener} has PLAIN, and {name} {told}: name users there "
            '(...PlainLoginModule required user_alice="PASSWORD";), or take PLAIN out of '
            f"{settings.name('sasl.enabled.mechanisms')}.",
        )
    return users


def login_of(settings: ListenerSettings, mechanism: str) -> tuple[str, Login | None]:
    """The JAAS line of a listener's mechanism, with its name. Raises `InvalidSetting`."""
    name, line = settings.prefixed(_JAAS, mechanism)
    if line is None:
        return name, None
    try:
        login = parse_jaas(line)
    except InvalidSetting as error:
        raise InvalidSetting(name, str(error).replace(_JAAS, name, 1)) from None
    if mechanism not in login.mechanisms:
        raise InvalidSetting(name, f"{name} has a login module that is not for {mechanism}.")
    return name, login


def own_login(config: BrokerConfig) -> Sasl | None:
    """How this broker logs in with others; None if their listener has no SASL, or nothing is said.

    Raises `InvalidSetting` for what is said and cannot be used.
    """
    between = config.inter_broker_listener
    if not between.has_sasl:
        return None
    settings = ListenerSettings(config.layers.static, between.name)
    setting = "sasl.mechanism.inter.broker.protocol"
    if settings.is_given(setting):
        wanted = str(settings.value(setting))
        if wanted not in enabled_mechanisms(settings):
            raise InvalidSetting(
                setting, f"{setting} is {wanted}, which the listener {between.name} does not have."
            )
        candidates: tuple[str, ...] = (wanted,)
    else:
        candidates = enabled_mechanisms(settings)
    for mechanism in candidates:
        name, login = login_of(settings, mechanism)
        found = _login(mechanism, name, login)
        if found is not None:
            return found
    return None


def _login(mechanism: str, name: str, login: Login | None) -> Sasl | None:
    if login is None:
        return None
    known: dict[str, ClientMechanism] = {
        "PLAIN": "PLAIN",
        "SCRAM-SHA-256": "SCRAM-SHA-256",
        "SCRAM-SHA-512": "SCRAM-SHA-512",
    }
    user, password = login.options.get("username"), login.options.get("password")
    if mechanism not in known or user is None or password is None:
        return None
    return Sasl(mechanism=known[mechanism], username=user, password=Secret(name, password))
