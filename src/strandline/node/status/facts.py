"""Facts: fields of a document that say what they mean, and their way into plain objects.

This file must not know which documents there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields, is_dataclass
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints


def fact(meaning: str) -> Any:
    """A field of the document, with what it means."""
    return field(metadata={"meaning": meaning})


def as_json(value: Any) -> Any:
    """A document as plain objects. Thousands of parts go through here for one question, so what is
    to be done with each field is found out once per class."""
    return {
        name: getattr(value, name) if convert is None else convert(getattr(value, name))
        for name, convert in _plan(value.__class__)
    }


@cache
def _plan(declared: Any) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """How each field becomes plain; None for one that is."""
    hints = get_type_hints(declared)
    return tuple((each.name, _converter(hints[each.name])) for each in fields(declared))


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    inner = get_args(hint)
    if is_dataclass(hint):
        return as_json
    if not any(map(is_dataclass, inner)):
        return None
    if get_origin(hint) is list:
        return lambda parts: [as_json(part) for part in parts]
    return lambda part: None if part is None else as_json(part)
