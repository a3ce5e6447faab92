"""Settings of clients by their names in Kafka: which there are, and what values they take.

This file knows names and forms of values. It must not know what a client does with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from strandline.client.fetching import ISOLATIONS, FetchSettings
from strandline.client.group_settings import NAMES, GroupSettings, parse_group_settings
from strandline.client.producer import ProducerSettings
from strandline.client.security.names import NAMES as SECURITY_NAMES
from strandline.client.security.names import is_refused, security_of
from strandline.client.settings import Address, ClientSettings, parse_addresses
from strandline.client.share_group.settings import ACQUIRE_MODES, MODES, ShareSettings
from strandline.errors import InvalidSetting
from strandline.numerals import INT32_MAX, INT64_MAX, whole_number
from strandline.records.codec import Codec

Settings: TypeAlias = Mapping[str, object]
"""Values may be text as in Kafka's files, or numbers and truth values of Python."""
_Read: TypeAlias = Callable[[str, object], Any]

_ACKS: Final = {"all": -1, "-1": -1, "1": 1, "0": 0}
_CODECS: Final = {"none": Codec.NONE, **{codec.setting: codec for codec in Codec if codec}}
RESETS: Final = ("earliest", "latest", "none")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidSetting(name, f"{name} takes text, not {value!r}.")
    return value


def _name(name: str, value: object) -> str:
    if not _text(name, value):
        raise InvalidSetting(name, f"{name} must not be empty.")
    return str(value)


def _whole_number(most: int) -> _Read:
    def read(name: str, value: object) -> int:
        number = whole_number(str(value), most)
        if number is None:
            raise InvalidSetting(
                name, f"{name} takes a whole number from 0 to {most}, not {value!r}."
            )
        return number

    return read


_number: Final = _whole_number(INT32_MAX)
_long: Final = _whole_number(INT64_MAX)


def _flag(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise InvalidSetting(name, f"{name} takes true or false, not {value!r}.")
    return text == "true"


def _one_of(choices: Mapping[str, Any]) -> _Read:
    def read(name: str, value: object) -> Any:
        if str(value) not in choices:
            raise InvalidSetting(name, f"{name} takes {', '.join(choices)}, not {value!r}.")
        return choices[str(value)]

    return read


@dataclass(frozen=True, slots=True)
class _Setting:
    """Where a value goes: a field of the settings of one part of a client."""

    field: str
    read: _Read


_CLIENT: Final = {
    "client.id": _Setting("client_id", _text),
    "request.timeout.ms": _Setting("request_timeout_ms", _number),
    "default.api.timeout.ms": _Setting("operation_timeout_ms", _number),
    "socket.connection.setup.timeout.ms": _Setting("connect_timeout_ms", _number),
    "metadata.max.age.ms": _Setting("metadata_age_max_ms", _number),
    "retry.backoff.ms": _Setting("retry_backoff_ms", _number),
    "retry.backoff.max.ms": _Setting("retry_backoff_max_ms", _number),
    "reconnect.backoff.ms": _Setting("reconnect_backoff_ms", _number),
    "reconnect.backoff.max.ms": _Setting("reconnect_backoff_max_ms", _number),
}
_PRODUCER: Final = {
    "acks": _Setting("acks", _one_of(_ACKS)),
    "enable.idempotence": _Setting("is_idempotent", _flag),
    "compression.type": _Setting("codec", _one_of(_CODECS)),
    "batch.size": _Setting("batch_bytes", _number),
    "linger.ms": _Setting("linger_ms", _number),
    "buffer.memory": _Setting("buffer_bytes_max", _long),
    "delivery.timeout.ms": _Setting("delivery_timeout_ms", _number),
    "allow.auto.create.topics": _Setting("may_create_topics", _flag),
    "transactional.id": _Setting("transactional_id", _name),
    "transaction.timeout.ms": _Setting("transaction_timeout_ms", _number),
}
_CONSUMER: Final = {
    "isolation.level": _Setting("isolation", _one_of(ISOLATIONS)),
    "fetch.min.bytes": _Setting("min_bytes", _number),
    "fetch.max.bytes": _Setting("max_bytes", _number),
    "max.partition.fetch.bytes": _Setting("partition_max_bytes", _number),
    "client.rack": _Setting("rack", _text),
    "check.crcs": _Setting("checks_crc", _flag),
}
_SHARE: Final = {
    "group.id": _Setting("group", _name),
    "share.acknowledgement.mode": _Setting("mode", _one_of({each: each for each in MODES})),
    "share.acquire.mode": _Setting("acquire_mode", _one_of(ACQUIRE_MODES)),
    "max.poll.records": _Setting("max_poll_records", _number),
    "fetch.min.bytes": _Setting("min_bytes", _number),
    "fetch.max.bytes": _Setting("max_bytes", _number),
    "fetch.max.wait.ms": _Setting("max_wait_ms", _number),
    "client.rack": _Setting("rack", _text),
    "check.crcs": _Setting("checks_crc", _flag),
}
SHARE_NAMES: Final = tuple(_SHARE)
_BOOTSTRAP: Final = "bootstrap.servers"
_LINGER_MS: Final = 5
"""As Kafka's producer since 4.0."""


@dataclass(frozen=True, slots=True)
class Connecting:
    """Where a client finds its cluster, and how it behaves towards it."""

    bootstrap: tuple[Address, ...]
    client: ClientSettings


@dataclass(frozen=True, slots=True)
class Reading:
    """What a consumer does."""

    connecting: Connecting
    fetch: FetchSettings
    group: str | None
    reset: str
    """One of `RESETS`."""
    member: GroupSettings | None
    """How to be a member of the group, if there is one."""


@dataclass(frozen=True, slots=True)
class Sharing:
    """What a share consumer does."""

    connecting: Connecting
    member: ShareSettings


def connecting_of(settings: Settings) -> Connecting:
    """The settings of an administrator. Raises `InvalidSetting`."""
    _refuse_unknown(settings, "an administrator", _CLIENT)
    return _connecting(settings)


def producing_of(settings: Settings) -> tuple[Connecting, ProducerSettings]:
    """The settings of a producer. Raises `InvalidSetting`."""
    _refuse_unknown(settings, "a producer", _CLIENT, _PRODUCER)
    fields = _fields(settings, _PRODUCER)
    wants_idempotence = fields.get("is_idempotent", False)
    if wants_idempotence and fields.get("acks", -1) != -1:
        raise InvalidSetting(
            "enable.idempotence", "enable.idempotence needs acks=all: others cannot know."
        )
    if "transactional_id" in fields:
        _check_transactional(fields)
    elif "transaction_timeout_ms" in fields:
        raise InvalidSetting(
            "transaction.timeout.ms", "transaction.timeout.ms needs a transactional.id."
        )
    fields.setdefault("linger_ms", _LINGER_MS)
    return _connecting(settings), ProducerSettings(**fields)


def _check_transactional(fields: Mapping[str, Any]) -> None:
    if not fields.get("is_idempotent", True):
        raise InvalidSetting(
            "enable.idempotence", "transactional.id needs enable.idempotence=true."
        )
    if fields.get("acks", -1) != -1:
        raise InvalidSetting("acks", "transactional.id needs acks=all.")


def reading_of(settings: Settings) -> Reading:
    """The settings of a consumer. Raises `InvalidSetting`."""
    _refuse_unknown(settings, "a consumer", _CLIENT, _CONSUMER, NAMES, ("group.id",))
    reset = _one_of({each: each for each in RESETS})(
        "auto.offset.reset", settings.get("auto.offset.reset", "latest")
    )
    fetch = FetchSettings(**_fields(settings, _CONSUMER))
    connecting = _connecting(settings)
    if "group.id" not in settings:
        return Reading(connecting, fetch, None, reset, None)
    group = _text("group.id", settings["group.id"])
    named = {name: str(value) for name, value in settings.items() if name in NAMES}
    if isinstance(settings.get("enable.auto.commit"), bool):
        named["enable.auto.commit"] = named["enable.auto.commit"].lower()
    client = connecting.client
    member = replace(
        parse_group_settings(group, named),
        request_timeout_ms=client.request_timeout_ms,
        retry_backoff_ms=client.retry_backoff_ms,
        retry_backoff_max_ms=client.retry_backoff_max_ms,
    )
    return Reading(connecting, fetch, group, reset, member)


def sharing_of(settings: Settings) -> Sharing:
    """The settings of a share consumer. Raises `InvalidSetting`."""
    _refuse_unknown(settings, "a share consumer", _CLIENT, _SHARE)
    if "group.id" not in settings:
        raise InvalidSetting("group.id", "group.id is missing: a share consumer has a group.")
    connecting = _connecting(settings)
    return Sharing(connecting, share_settings_of(settings, connecting.client))


def share_settings_of(settings: Settings, client: ClientSettings) -> ShareSettings:
    """The settings of a member of a share group, with `group.id`, for a client that is set up
    already. Raises `InvalidSetting`."""
    return ShareSettings(
        **_fields(settings, _SHARE),
        request_timeout_ms=client.request_timeout_ms,
        operation_timeout_ms=client.operation_timeout_ms,
        retry_backoff_ms=client.retry_backoff_ms,
        retry_backoff_max_ms=client.retry_backoff_max_ms,
    )


def _connecting(settings: Settings) -> Connecting:
    if _BOOTSTRAP not in settings:
        raise InvalidSetting(_BOOTSTRAP, f"{_BOOTSTRAP} is missing: host:port, or several of them.")
    addresses = parse_addresses(_text(_BOOTSTRAP, settings[_BOOTSTRAP]))
    security = security_of(settings)
    return Connecting(addresses, ClientSettings(**_fields(settings, _CLIENT), security=security))


def _fields(settings: Settings, known: Mapping[str, _Setting]) -> dict[str, Any]:
    return {
        setting.field: setting.read(name, settings[name])
        for name, setting in known.items()
        if name in settings
    }


def _refuse_unknown(
    settings: object, who: str, *known: Mapping[str, object] | tuple[str, ...]
) -> None:
    if not isinstance(settings, Mapping):
        # Users without a type checker would be told of a setting by the name of its first letter.
        raise InvalidSetting(
            _BOOTSTRAP, f'Settings are a mapping: {{"{_BOOTSTRAP}": "{settings}"}}, for instance.'
        )
    names = sorted({_BOOTSTRAP, *(name for each in known for name in each), *SECURITY_NAMES})
    unknown = next((name for name in settings if name not in names and not is_refused(name)), None)
    if unknown is not None:
        raise InvalidSetting(
            unknown, f"There is no setting '{unknown}' of {who}; there are {', '.join(names)}."
        )
