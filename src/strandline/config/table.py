"""The text form of the tables of settings: `settings.txt` to rows.

This file knows how a row is written, and no setting by name. The text is part of the package, so
what is wrong in it is a bug of ours: any error ends the import.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from strandline.config.allowed import (
    ANYTHING,
    GzipLevel,
    ListOf,
    NonEmptyText,
    NonNullText,
    OneOf,
    QuorumAddresses,
    Range,
    Rule,
    ShareOffsetReset,
    ThrottledReplicas,
)
from strandline.config.setting import Importance, Service, Setting, Synonym, Update
from strandline.config.values import Kind, Value

_KINDS: Final = {kind.name.lower(): kind for kind in Kind}
_IMPORTANCES: Final = {each.value: each for each in Importance}
_SERVICES: Final = {each.value: each for each in Service}
_UPDATES: Final = {each.value: each for each in Update}
_WORDS: Final[dict[str, Value]] = {"null": None, "true": True, "false": False}
_How: TypeAlias = tuple[Update, tuple[Synonym, ...], bool, bool]
"""When it can change, what it comes from, whether it is internal, and dynamic only."""
_PLAIN: Final[_How] = (Update.READ_ONLY, (), False, False)
_WHOLE: Final = (Kind.INT, Kind.SHORT, Kind.LONG)


def read_sections(path: str) -> dict[str, tuple[Setting, ...]]:
    """The rows of the file by the titles of their sections, both in its order."""
    sections: dict[str, list[Setting]] = {}
    rules: dict[str, Rule] = {
        "any": ANYTHING,
        "gzip level": GzipLevel(),
        "not empty": NonEmptyText(),
        "not null": NonNullText(),
        "quorum addresses": QuorumAddresses(),
        "throttled replicas": ThrottledReplicas(),
    }
    rows: list[Setting] = []
    with open(path, encoding="utf-8") as file:
        for line in file.read().split("\n"):
            if " | " in line and line[0] != "#":
                rows.append(_row(line, rules))
            elif line.startswith("["):
                rows = sections[line[1:-1]] = []
    return {title: tuple(each) for title, each in sections.items()}


def _row(line: str, rules: dict[str, Rule]) -> Setting:
    name, kind_name, default, importance, allowed, service, how, doc, *deviation = line.split(" | ")
    kind = _KINDS[kind_name]
    rule = rules.get(allowed)
    if rule is None:
        rule = rules[allowed] = _rule(allowed)
    update, synonyms, internal, dynamic_only = _how(how) if how else _PLAIN
    return Setting(
        name,
        kind,
        _default(kind, default),
        _IMPORTANCES[importance],
        rule,
        _SERVICES[service],
        doc,
        update,
        synonyms,
        internal,
        deviation[0] if deviation else "",
        dynamic_only,
    )


def _how(text: str) -> _How:
    update, synonyms, *_ = _PLAIN
    words = text.split(", ")
    for word in words:
        if word.startswith("from "):
            synonyms = tuple(map(_synonym, word[5:].split(" ")))
        elif word not in ("internal", "dynamic only"):
            update = _UPDATES[word]
    return update, synonyms, "internal" in words, "dynamic only" in words


def _synonym(text: str) -> Synonym:
    name, _, factor = text.partition("*")
    return Synonym(name, int(factor)) if factor else Synonym(name)


def _default(kind: Kind, text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    if kind in _WHOLE:
        return int(text)
    if kind is Kind.DOUBLE:
        return float(text)
    if kind is Kind.LIST:
        return tuple(text[1:-1].split(", ")) if text != "[]" else ()
    return text


def _rule(text: str) -> Rule:
    """`>= 1`, `1 to 9`, `one of a, b`, `any case of a, b`, `[full ]list[ of a, b][ shown as c]`."""
    if text.startswith(">= "):
        return Range(_number(text[3:]))
    if text == "share offset reset":
        return ShareOffsetReset()
    if text.startswith("one of "):
        return OneOf(*text[7:].split(", "))
    if text.startswith("any case of "):
        return OneOf(*text[12:].split(", "), any_case=True)
    if text.startswith(("list", "full list")):
        items, _, shown = text.partition(" shown as ")
        _, _, words = items.partition(" of ")
        empty = not text.startswith("full")
        return ListOf(*(words.split(", ") if words else ()), empty=empty, text=shown or None)
    low, high = text.split(" to ")
    return Range(_number(low), _number(high))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
