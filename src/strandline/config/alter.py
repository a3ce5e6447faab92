"""What AlterConfigs and IncrementalAlterConfigs do to stored overrides.

Theory: overrides are a map from names to text. An alteration makes a new map, which is checked as
a whole before it is returned; nothing is changed in place, so that "validate only" is the same
call with its result dropped. Errors carry Kafka's codes: INVALID_REQUEST for a request that makes
no sense or a broker setting that cannot change, INVALID_CONFIG for the rest. Storing is not here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from strandline.config.broker import BrokerConfig, SettingLayers
from strandline.config.definition import BROKER_SETTINGS, GROUP_SETTINGS, TOPIC_SETTINGS
from strandline.config.describe import RESTART_ONLY
from strandline.config.group import check_group
from strandline.config.listener_changes import check_change, check_opened, is_for_one_broker
from strandline.config.load import (
    NOT_FOR_ONE_BROKER,
    is_usable,
    make_broker_config,
    topic_config,
)
from strandline.config.resolve import LISTENER_PREFIX
from strandline.config.setting import Setting, Update
from strandline.config.thread_changes import check_threads
from strandline.config.values import Kind, format_value
from strandline.errors import ErrorCode, InvalidSetting, ProtocolError

_LONGEST_VALUE: Final = 32_767
"""Kafka stores no longer value: its records count characters in 16 bits."""


BrokerCheck = Callable[[BrokerConfig], None]
"""Whether this broker can do with its settings as they would be: raises `InvalidSetting`."""


def always(config: BrokerConfig) -> None:
    """The check of a broker that has nothing to look at."""


class Operation(IntEnum):
    """What to do with one setting; the numbers of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One item of a request. `operation` is as received and may be unknown."""

    name: str
    operation: int
    value: str | None


def alter_topic(
    overrides: Mapping[str, str], alterations: Sequence[Alteration], broker: BrokerConfig
) -> dict[str, str]:
    """A topic's overrides after an incremental alteration; raises ProtocolError."""
    altered = _altered(overrides, alterations, TOPIC_SETTINGS)
    _check_topic(altered, broker)
    return altered


def replace_topic(
    settings: Iterable[tuple[str, str | None]], broker: BrokerConfig
) -> dict[str, str]:
    """A topic's overrides after the older AlterConfigs, which replaces all of them."""
    replaced = _replaced(settings)
    _check_topic(replaced, broker)
    return replaced


def alter_group(
    overrides: Mapping[str, str], alterations: Sequence[Alteration], broker: BrokerConfig
) -> dict[str, str]:
    """A group's overrides after an incremental alteration; raises ProtocolError."""
    altered = _altered(overrides, alterations, GROUP_SETTINGS)
    _check_group(altered, broker)
    return altered


def replace_group(
    settings: Iterable[tuple[str, str | None]], broker: BrokerConfig
) -> dict[str, str]:
    """A group's overrides after the older AlterConfigs, which replaces all of them."""
    replaced = _replaced(settings)
    _check_group(replaced, broker)
    return replaced


def alter_broker(
    stored: Mapping[str, str],
    alterations: Sequence[Alteration],
    broker: BrokerConfig,
    *,
    one_broker: bool,
    check: BrokerCheck = always,
) -> dict[str, str]:
    """The dynamic settings of one broker or of all after an incremental alteration."""
    if one_broker:
        # Version 0.1.0 stored them. They have no effect, and leave with the next change.
        stored = {name: stored[name] for name in stored if name not in NOT_FOR_ONE_BROKER}
    altered = _altered(stored, alterations, BROKER_SETTINGS)
    touched = {each.name for each in alterations}
    _check_broker(altered, broker, touched, check, one_broker=one_broker)
    return altered


def replace_broker(
    settings: Iterable[tuple[str, str | None]],
    broker: BrokerConfig,
    *,
    one_broker: bool,
    check: BrokerCheck = always,
    is_running: bool = True,
) -> dict[str, str]:
    """The dynamic settings of one broker or of all after the older AlterConfigs.

    A broker that is not running yet may begin with any number of threads.
    """
    replaced = _replaced(settings)
    _check_broker(replaced, broker, replaced, check, one_broker=one_broker, is_running=is_running)
    return replaced


def _altered(
    overrides: Mapping[str, str],
    alterations: Sequence[Alteration],
    known: Mapping[str, Setting],
) -> dict[str, str]:
    _check_request([each.name for each in alterations])
    altered = dict(overrides)
    for each in alterations:
        match each.operation:
            case Operation.DELETE:
                altered.pop(each.name, None)
            case Operation.SET:
                altered[each.name] = _present(each)
            case Operation.APPEND | Operation.SUBTRACT:
                items = _list_items(altered.get(each.name), each, known)
                altered[each.name] = _combined(items, each)
            case _:
                raise ProtocolError(
                    ErrorCode.INVALID_REQUEST,
                    f"The operation {each.operation} on {each.name} does not exist.",
                )
    _check_lengths(altered)
    return altered


def _replaced(settings: Iterable[tuple[str, str | None]]) -> dict[str, str]:
    items = [Alteration(name, Operation.SET, value) for name, value in settings]
    _check_request([each.name for each in items])
    replaced = {each.name: _present(each) for each in items}
    _check_lengths(replaced)
    return replaced


def _check_request(names: list[str]) -> None:
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"The request has {', '.join(twice)} more than once; each setting may appear once.",
        )


def _present(alteration: Alteration) -> str:
    if alteration.value is None:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST,
            f"The value for {alteration.name} is null; only a deletion may have no value.",
        )
    return alteration.value


def _check_lengths(overrides: Mapping[str, str]) -> None:
    for name, text in overrides.items():
        if len(text) > _LONGEST_VALUE:
            raise ProtocolError(
                ErrorCode.INVALID_CONFIG,
                f"The value of {name} has {len(text)} characters; at most {_LONGEST_VALUE} "
                "are stored.",
            )


def _list_items(
    current: str | None, alteration: Alteration, known: Mapping[str, Setting]
) -> list[str]:
    """The items that a list has now; one that was never set starts from the default."""
    setting = known.get(alteration.name)
    if setting is None or setting.kind is not Kind.LIST:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG,
            f"{alteration.name} is not a list; only lists can be appended to or subtracted from.",
        )
    text = format_value(setting.default) if current is None else current
    return [item for item in (text or "").split(",") if item]


def _combined(items: list[str], alteration: Alteration) -> str:
    for item in _present(alteration).split(","):
        present = item in items
        if alteration.operation == Operation.APPEND and not present:
            items.append(item)
        elif alteration.operation == Operation.SUBTRACT and present:
            items.remove(item)
    return ",".join(items)


def _check_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    try:
        topic_config(overrides, broker)
    except InvalidSetting as invalid:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, str(invalid)) from invalid


def _check_group(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    try:
        check_group(overrides, broker)
    except InvalidSetting as invalid:
        raise ProtocolError(ErrorCode.INVALID_CONFIG, str(invalid)) from invalid


def _check_broker(
    stored: Mapping[str, str],
    broker: BrokerConfig,
    touched: Collection[str],
    check: BrokerCheck,
    *,
    one_broker: bool,
    is_running: bool = True,
) -> None:
    """Raise INVALID_REQUEST unless these can be the dynamic settings of one broker or of all.

    Names that are no settings are stored, as Kafka does: they may be those of a plugin. Of what was
    stored before and is not `touched`, brokers leave out what they cannot use; so does this check.
    """
    _check_changeable([name for name in stored if name in touched], one_broker=one_broker)
    known = {
        name: text
        for name, text in stored.items()
        if (name in BROKER_SETTINGS or name.startswith(LISTENER_PREFIX))
        and (name in touched or is_usable(name, text, one_broker=one_broker))
    }
    own = {} if one_broker else broker.layers.per_broker
    # What is meant for all brokers must be right without what this one has of its own.
    for per_broker in ({}, own) if own else (own,):
        layers = SettingLayers(
            static=broker.layers.static,
            cluster_wide=broker.layers.cluster_wide if one_broker else known,
            per_broker=known if one_broker else per_broker,
        )
        try:
            altered = make_broker_config(layers).config
            if one_broker:
                check_opened(broker, altered)
            _check_listeners(stored, touched, broker, altered)
            check(altered)
            if is_running and per_broker is own:  # as all of it comes to on this broker
                check_threads(broker, altered)
        except InvalidSetting as invalid:
            raise ProtocolError(ErrorCode.INVALID_REQUEST, str(invalid)) from invalid


def _check_changeable(names: Sequence[str], *, one_broker: bool) -> None:
    """Raise INVALID_REQUEST for what cannot change at run time, in Kafka's words: tools compare
    them."""
    for name in names:
        if one_broker and name in NOT_FOR_ONE_BROKER:
            raise ProtocolError(
                ErrorCode.INVALID_CONFIG,
                f"{name} cannot be set for one broker: leader and controller must go by the same "
                "number. Set it for the topic, or for all brokers.",
            )
    known = [BROKER_SETTINGS[name] for name in sorted(names) if name in BROKER_SETTINGS]
    _refuse_any(
        "Cannot update these configs dynamically",
        [each.name for each in known if not each.is_dynamic or each.name in RESTART_ONLY],
    )
    _refuse_any(
        "These security configs can be dynamically updated only per-listener using the listener "
        "prefix",
        [each.name for each in known if each.name.startswith("ssl.")],
    )
    if not one_broker:
        _refuse_any(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [each.name for each in known if each.update is Update.PER_BROKER]
            + [name for name in sorted(names) if is_for_one_broker(name)],
        )


def _check_listeners(
    stored: Mapping[str, str],
    touched: Collection[str],
    broker: BrokerConfig,
    altered: BrokerConfig,
) -> None:
    for name in touched:
        text = stored.get(name)
        if name.startswith(LISTENER_PREFIX) and (text is not None or _is_stored(name, broker)):
            check_change(name, text, broker, altered)


def _is_stored(name: str, broker: BrokerConfig) -> bool:
    return any(name in layer for layer in (broker.layers.per_broker, broker.layers.cluster_wide))


def _refuse_any(why: str, names: Sequence[str]) -> None:
    if names:
        raise ProtocolError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(names)}]")
