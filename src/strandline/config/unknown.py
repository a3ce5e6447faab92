"""What to say about a name that is no setting: what may have been meant, or where it went."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.errors import InvalidSetting

_REMOVED: Final = {
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "host.name": "use listeners",
    "port": "use listeners",
    "inter.broker.protocol.version": "Kafka 4 has no such setting",
    "log.message.format.version": "Kafka 4 has no such setting",
    "message.format.version": "Kafka 4 has no such setting",
    "log.message.downconversion.enable": "Kafka 4 has no such setting",
    "message.downconversion.enable": "Kafka 4 has no such setting",
    "log.message.timestamp.difference.max.ms": (
        "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "message.timestamp.difference.max.ms": (
        "use message.timestamp.before.max.ms and message.timestamp.after.max.ms"
    ),
    "broker.id.generation.enable": "set node.id",
    "reserved.broker.max.id": "set node.id",
    "offsets.commit.required.acks": "Kafka 4 has no such setting",
}


def unknown_setting(name: str, known: Iterable[str], what: str) -> InvalidSetting:
    """The error for an unknown name, with the nearest known one when one is near."""
    if name in _REMOVED:
        return InvalidSetting(name, f"{name} is not a {what} any more: {_REMOVED[name]}.")
    if name.startswith("zookeeper."):
        return InvalidSetting(
            name,
            f"{name} is not a {what} any more: Strandline serves only zookeeper.connect, "
            "zookeeper.connection.timeout.ms and zookeeper.session.timeout.ms of these.",
        )
    import difflib  # here because only a mistake needs it, and start-up time counts

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]}?" if near else "."
    return InvalidSetting(name, f"{name} is not a {what}{hint}")
