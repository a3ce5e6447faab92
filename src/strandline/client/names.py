"""What a program gives as several names."""

from __future__ import annotations

from collections.abc import Iterable


def several(names: Iterable[str], what: str) -> list[str]:
    """The names. Raises `TypeError` for a string alone, which would be taken for its letters:
    `delete_topics("ab")` would delete the topics `a` and `b`."""
    if isinstance(names, str):
        raise TypeError(f"{what} are several names: [{names!r}], not {names!r}.")
    return list(names)
