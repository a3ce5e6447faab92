"""What to say about a name that is no setting: what may have been meant, or where it went."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from strandline.config.setting import Setting
from strandline.errors import InvalidSetting

_REMOVED: Final = {
    "advertised.host.name": "use advertised.listeners",
    "advertised.port": "use advertised.listeners",
    "host.name": "use listeners",
    "port": "use listeners",
    "delegation.token.master.key": "use delegation.token.secret.key",
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


_WITHOUT_REPLACEMENT: Final = "Kafka 4 has no such setting"
_EDITS_MAX: Final = ((8, 1), (16, 2))
"""A name shorter than so many letters is misspelt by at most so many edits; any other by 3."""


def refuse_misspelt(name: str, known: Collection[str], of_topics: Mapping[str, Setting]) -> None:
    """Raise InvalidSetting for a name that must be a known one, misspelt, or an older one.

    So is the name of a setting of topics, `of_topics` by their names: Kafka ignores it in a
    broker's file, and who wrote it believes that all topics follow it. Any other name may be that
    of a plugin, and is no mistake.
    """
    removed = _REMOVED.get(f"log.{name}") or _REMOVED.get(name)
    if removed == _WITHOUT_REPLACEMENT:
        return
    if removed is not None:
        raise InvalidSetting(name, f"{name} is not a broker setting any more: {removed}.")
    if name.startswith(("zookeeper.", "listener.name.")):
        raise unknown_setting(name, known, "broker setting")
    written = _plain(name)
    if written in of_topics and written not in known:
        raise InvalidSetting(name, _of_topics_only(name, of_topics[written]))
    edits_max = next((edits for length, edits in _EDITS_MAX if len(name) < length), 3)
    edits, nearest = min((_edits(written, _plain(other), edits_max), other) for other in known)
    if edits <= edits_max:
        raise InvalidSetting(name, f"{name} is not a broker setting; did you mean {nearest}?")


def _of_topics_only(name: str, setting: Setting) -> str:
    """The sentence that names the broker setting which means the same, in the same unit."""
    told = f"{name} is a topic setting, not a broker setting"
    if setting.synonyms:
        behind = setting.synonyms[0].name
        return f"{told}; its default for all topics is the broker setting {behind}."
    return f"{told}, and no broker setting gives its default; set it for single topics."


def _plain(name: str) -> str:
    return name.lower().replace("_", ".").replace("-", ".")


def _edits(written: str, meant: str, most: int) -> int:
    """Letters to insert, remove or replace to make one of the other; beyond `most` any number
    above it. (Levenshtein's distance, row by row.)"""
    if abs(len(written) - len(meant)) > most:
        return most + 1
    row = list(range(len(meant) + 1))
    for line, letter in enumerate(written, start=1):
        above, row = row, [line]
        for column, other in enumerate(meant, start=1):
            replaced = above[column - 1] + (letter != other)
            row.append(min(replaced, above[column] + 1, row[-1] + 1))
        if min(row) > most:
            return most + 1
    return row[-1]


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
