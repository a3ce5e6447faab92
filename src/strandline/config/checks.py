"""What no single setting of a broker or a topic shows: settings that must fit one another.

The rules are those of Kafka's broker; what Strandline adds is that a listener which lets everyone
in must be on loopback, or be meant so. Functions take the values of all settings by name and raise
InvalidSetting, or return sentences about what is odd but allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, cast

from strandline.addresses import as_connected
from strandline.config.listeners import (
    Listener,
    check_distinct_ports,
    parse_listeners,
    parse_protocol_map,
)
from strandline.config.topic import TopicConfig
from strandline.config.values import Value
from strandline.errors import InvalidSetting

_ALL_ADDRESSES: Final = "0.0.0.0"  # noqa: S104 - refused below, not bound
_MEBIBYTE: Final = 1 << 20
_CODECS: Final = range(5)
CONSUMER_ASSIGNORS: Final = ("uniform", "range")
"""The assignors on the broker's side that Kafka brings along."""

_TIMES: Final = ("assignment.interval.ms", "heartbeat.interval.ms", "session.timeout.ms")
_BOUNDED: Final = {
    "consumer": _TIMES,
    "share": (
        *_TIMES,
        "delivery.count.limit",
        "partition.max.record.locks",
        "record.lock.duration.ms",
    ),
}
"""By kinds of groups, what has a minimum and a maximum that its settings must lie between."""

LIMITS_BY_ADDRESS: Final = "max.connections.per.ip.overrides"

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""Kafka's name for the one way to pick a replica for a consumer that is known here (KIP-392)."""


AUTHORIZERS: Final = (
    "kafka.security.authorizer.AclAuthorizer",
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
)
"""Kafka's names for the authorizer that there is: ACLs in the metadata store."""


class Network(NamedTuple):
    """What the network settings come to."""

    listeners: tuple[Listener, ...]
    advertised_listeners: tuple[Listener, ...]
    inter_broker_listener: Listener
    connection_limits: dict[str, int]


def check_network(
    merged: Mapping[str, str], values: Mapping[str, Value]
) -> tuple[Network, list[str]]:
    """Listeners to open and to tell about, limits by address, and warnings."""
    controllers = {name.upper() for name in _items(values, "controller.listener.names")}
    protocols = _protocols(merged, values, controllers)
    opened = parse_listeners("listeners", _items(values, "listeners"), protocols)
    check_distinct_ports("listeners", opened)
    listeners = tuple(each for each in opened if each.name not in controllers)
    if not listeners:
        raise InvalidSetting(
            "listeners",
            "listeners has no listener for clients: all of its names are in "
            "controller.listener.names.",
        )
    warnings = [
        f"The listener {each} is not opened: {each.name} is for a KRaft controller, which "
        "Strandline does not have."
        for each in opened
        if each.name in controllers
    ]
    advertised = _advertised(values, listeners, protocols, controllers)
    between = _inter_broker(merged, values, advertised)
    limits = connection_limits(cast("str", values[LIMITS_BY_ADDRESS]))
    if values["max.connections.per.ip"] == 0 and not limits:
        raise InvalidSetting(
            "max.connections.per.ip",
            f"max.connections.per.ip is 0 and {LIMITS_BY_ADDRESS} is empty: no client could "
            "connect.",
        )
    return Network(listeners, advertised, between, limits), warnings


def _protocols(
    merged: Mapping[str, str], values: Mapping[str, Value], controllers: set[str]
) -> dict[str, str]:
    name = "listener.security.protocol.map"
    protocols = parse_protocol_map(name, cast("str", values[name]))
    if name not in merged:  # Kafka adds its controller listeners to the default map only
        protocols = {**dict.fromkeys(controllers, "PLAINTEXT"), **protocols}
    return protocols


def _advertised(
    values: Mapping[str, Value],
    listeners: tuple[Listener, ...],
    protocols: Mapping[str, str],
    controllers: set[str],
) -> tuple[Listener, ...]:
    name = "advertised.listeners"
    if values[name] is None:
        advertised = listeners
    else:
        parsed = parse_listeners(name, _items(values, name), protocols)
        advertised = tuple(each for each in parsed if each.name not in controllers)
    if not advertised:
        raise InvalidSetting(name, f"{name} has no listener for clients; it needs one.")
    known = {each.name for each in listeners}
    for each in advertised:
        if each.name not in known:
            raise InvalidSetting(
                name,
                f"{name} has the listener {each.name}, which is not in listeners "
                f"({', '.join(sorted(known))}).",
            )
        if each.host == _ALL_ADDRESSES:
            raise InvalidSetting(
                name if values[name] is not None else "listeners",
                f"The advertised address {each} cannot be reached; set {name} to an address "
                "that clients can reach.",
            )
    return advertised


def _inter_broker(
    merged: Mapping[str, str], values: Mapping[str, Value], advertised: tuple[Listener, ...]
) -> Listener:
    """The listener by which brokers reach each other.

    It is the one that is named, or the one named after `security.inter.broker.protocol`, as in
    Kafka. If nothing is said it is the first without security, or else the first.
    """
    by_name, by_protocol = "inter.broker.listener.name", "security.inter.broker.protocol"
    known = {each.name: each for each in advertised}
    if values[by_name] and by_protocol in merged:
        raise InvalidSetting(by_protocol, f"{by_protocol} and {by_name} exclude each other.")
    setting = by_name if values[by_name] else by_protocol
    if setting not in merged:
        plain = (each for each in advertised if each.security_protocol == "PLAINTEXT")
        return next(plain, advertised[0])
    wanted = str(values[setting]).upper()
    if wanted not in known:
        raise InvalidSetting(
            setting,
            f"{setting} is {values[setting]}, which is not in advertised.listeners "
            f"({', '.join(sorted(known))}).",
        )
    return known[wanted]


def connection_limits(text: str) -> dict[str, int]:
    """The limits of `max.connections.per.ip.overrides`, by addresses as connections have them.

    Raises `InvalidSetting`. A host's name is refused: Kafka looks it up once, which would say
    nothing of the address that the host has later.
    """
    name = LIMITS_BY_ADDRESS
    limits: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        address, colon, limit = (part.strip() for part in item.rpartition(":"))
        if not colon or not address or not limit.isdecimal():
            raise InvalidSetting(
                name, f"{name} has the entry '{item}'; each entry must be address:limit."
            )
        if address.startswith("[") and address.endswith("]"):
            address = address[1:-1]
        try:
            limits[as_connected(address)] = int(limit)
        except ValueError:
            raise InvalidSetting(
                name,
                f"{name} has the entry '{item}'; {address} is not an IP address, and names of "
                "hosts are not looked up here: write the host's address.",
            ) from None
    return limits


def log_directories(values: Mapping[str, Value]) -> tuple[str, ...]:
    """`log.dirs`, or `log.dir` when that is not set."""
    name = "log.dir" if values["log.dirs"] is None else "log.dirs"
    return tuple(_items(values, name))


def check_topic(config: TopicConfig) -> None:
    """What must fit together when a topic's settings, or a broker's defaults of them, are set."""
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidSetting(
            "min.compaction.lag.ms",
            f"min.compaction.lag.ms is {config.min_compaction_lag_ms} and max.compaction.lag.ms "
            f"is {config.max_compaction_lag_ms}; the minimum must not be above the maximum.",
        )


def check_broker(values: Mapping[str, Value]) -> list[str]:
    """Everything else that must fit together; returns warnings."""
    _check_order(values, "replica.fetch.wait.max.ms", "replica.socket.timeout.ms")
    _check_order(values, "replica.fetch.wait.max.ms", "replica.lag.time.max.ms")
    if _number(values, "queued.max.request.bytes") > 0:
        _check_order(values, "socket.request.max.bytes", "queued.max.request.bytes")
    idle_ms = _number(values, "connections.max.idle.ms")
    delay_ms = _number(values, "connection.failed.authentication.delay.ms")
    if 0 <= idle_ms <= delay_ms:
        raise InvalidSetting(
            "connections.max.idle.ms",
            f"connections.max.idle.ms is {idle_ms}; it must be above "
            f"connection.failed.authentication.delay.ms, which is {delay_ms}.",
        )
    _check_cleaner(values)
    if "classic" not in _items(values, "group.coordinator.rebalance.protocols"):
        raise InvalidSetting(
            "group.coordinator.rebalance.protocols",
            "group.coordinator.rebalance.protocols is without classic, which cannot be off.",
        )
    _check_groups(values)
    _check_selector(values)
    warnings = _check_authorizer(values)
    codec = _number(values, "offsets.topic.compression.codec")
    if codec not in _CODECS:
        raise InvalidSetting(
            "offsets.topic.compression.codec",
            f"offsets.topic.compression.codec is {codec}; it must be from 0 to {_CODECS[-1]}.",
        )
    session_min = _number(values, "group.min.session.timeout.ms")
    session_max = _number(values, "group.max.session.timeout.ms")
    if session_min > session_max:
        warnings.append(
            f"group.min.session.timeout.ms ({session_min}) is above "
            f"group.max.session.timeout.ms ({session_max}): no member can join a group."
        )
    return warnings


def _check_cleaner(values: Mapping[str, Value]) -> None:
    threads = max(1, _number(values, "log.cleaner.threads"))
    buffer_bytes = _number(values, "log.cleaner.dedupe.buffer.size")
    if buffer_bytes // threads <= _MEBIBYTE:
        raise InvalidSetting(
            "log.cleaner.dedupe.buffer.size",
            f"log.cleaner.dedupe.buffer.size is {buffer_bytes}; it must be above 1 MiB for each "
            f"of the {threads} threads of log.cleaner.threads.",
        )
    # Kafka takes the following, and compacts nothing: its cleaner fails, or waits for ever.
    load_factor = cast("float", values["log.cleaner.io.buffer.load.factor"])
    if load_factor <= 0:
        raise InvalidSetting(
            "log.cleaner.io.buffer.load.factor",
            f"log.cleaner.io.buffer.load.factor is {load_factor}; it must be above 0, or no key "
            "has room.",
        )
    bytes_per_second = cast("float", values["log.cleaner.io.max.bytes.per.second"])
    if bytes_per_second < 1:
        raise InvalidSetting(
            "log.cleaner.io.max.bytes.per.second",
            f"log.cleaner.io.max.bytes.per.second is {bytes_per_second}; it must be at least 1.",
        )


def _check_authorizer(values: Mapping[str, Value]) -> list[str]:
    name, users = "authorizer.class.name", "super.users"
    authorizer, super_users = cast("str", values[name]), cast("str", values[users])
    if authorizer and authorizer not in AUTHORIZERS:
        raise InvalidSetting(
            name,
            f"{name} is {authorizer}, a Java class that is not known here; ACLs are switched on "
            f"by {' or '.join(AUTHORIZERS)}.",
        )
    for part in filter(None, (part.strip() for part in super_users.split(";"))):
        kind, colon, user = part.partition(":")
        if not (kind and colon and user):
            raise InvalidSetting(
                users,
                f"{users} has {part!r}, which is not of the form User:name; principals are "
                "separated by semicolons.",
            )
    if super_users and not authorizer:
        return [f"{users} has no effect without {name}: everyone may do everything."]
    if authorizer and not super_users:
        return [
            f"{name} is set and {users} is empty: other brokers, and the administrator who is to "
            "write the first ACLs, are refused until ACLs allow them."
        ]
    return []


def _check_groups(values: Mapping[str, Value]) -> None:
    for kind, bounded in _BOUNDED.items():
        for rest in bounded:
            least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
            _check_order(values, least, most)
            _check_order(values, least, f"group.{kind}.{rest}")
            _check_order(values, f"group.{kind}.{rest}", most)
        heartbeat = f"group.{kind}.heartbeat.interval.ms"
        session = f"group.{kind}.session.timeout.ms"
        if _number(values, heartbeat) >= _number(values, session):
            raise InvalidSetting(
                heartbeat,
                f"{heartbeat} is {values[heartbeat]}; it must be less than {session}, which is "
                f"{values[session]}.",
            )
    _check_order(values, "group.share.max.size", "group.share.max.share.sessions")
    name = "group.consumer.assignors"
    unknown = [each for each in _items(values, name) if each not in CONSUMER_ASSIGNORS]
    if unknown:
        raise InvalidSetting(
            name,
            f"{name} has {unknown[0]}, which is not known here; there are "
            f"{' and '.join(CONSUMER_ASSIGNORS)}.",
        )


def _check_order(values: Mapping[str, Value], lower: str, upper: str) -> None:
    if _number(values, lower) > _number(values, upper):
        raise InvalidSetting(
            lower,
            f"{lower} is {values[lower]}; it must not be above {upper}, which is {values[upper]}.",
        )


def _check_selector(values: Mapping[str, Value]) -> None:
    name = "replica.selector.class"
    if values[name] not in (None, "", RACK_AWARE_SELECTOR):
        raise InvalidSetting(
            name,
            f"{name} is {values[name]}, a Java class that is not known here; only "
            f"{RACK_AWARE_SELECTOR} is.",
        )


def _number(values: Mapping[str, Value], name: str) -> int:
    return cast("int", values[name])


def _items(values: Mapping[str, Value], name: str) -> tuple[str, ...]:
    return cast("tuple[str, ...]", values[name])
