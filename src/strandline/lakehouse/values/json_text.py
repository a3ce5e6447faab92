"""One JSON text as a Python value, as RFC 8259 and this project's exactness allow it."""

from __future__ import annotations

import json
from typing import Never

from strandline.lakehouse.values.decoding import BAD_VALUE, Unfit
from strandline.lakehouse.values.observing import show


def parse_object(value: bytes) -> dict[str, object]:
    """One JSON object; raises Unfit."""
    record = parse_json(value)
    if not isinstance(record, dict):
        raise Unfit(BAD_VALUE, f"The value is JSON, but no object: {show(record)}.")
    return record


def parse_json(value: bytes) -> object:
    """One JSON value as RFC 8259 and this project's exactness allow it; raises Unfit."""
    try:
        text = value.decode("utf-8")
        record: object = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Unfit(BAD_VALUE, f"The value is not UTF-8: {error.reason}.") from None
    except RecursionError:
        raise Unfit(BAD_VALUE, "The value is nested too deeply.") from None
    except ValueError as error:
        raise Unfit(BAD_VALUE, f"The value is not JSON: {error}.") from None
    return record


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Unfit(BAD_VALUE, f"The field {twice!r} is there twice.")
    return record


def _no_constant(word: str) -> Never:
    raise Unfit(BAD_VALUE, f"{word} is not JSON.")
