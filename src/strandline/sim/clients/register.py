"""What a group may have stored for one partition, seen as a register.

It has the value that the last confirmed change has left, or what any change without a definite
outcome since then would leave. Such a change may come at any time, so from the first of them on the
register is in doubt for good, and what is read narrows nothing down. Pure: it knows no requests.
"""

from __future__ import annotations

from typing import Final

NOTHING: Final = -1
"""What an answer says where no offset is stored."""


class Register:
    """One group's offset of one partition; nothing is stored at first."""

    __slots__ = ("_possible", "group", "is_certain")

    def __init__(self, group: str) -> None:
        self.group = group
        self.is_certain = True
        """Whether the outcome of each change so far is known."""
        self._possible = {NOTHING}

    def left(self, value: int) -> None:
        """A change is confirmed, while the register was certain: it holds this."""
        self._possible = {value}

    def doubt(self, value: int) -> None:
        """A change may have been made, or may be made yet."""
        self._possible.add(value)
        self.is_certain = False

    def may_hold(self, value: int) -> bool:
        """Whether this may be read now."""
        return value in self._possible

    def emptied(self) -> None:
        """All of it was lost by permission; late changes may still come."""
        if self.is_certain:
            self._possible = {NOTHING}
        else:
            self._possible.add(NOTHING)

    def __str__(self) -> str:
        return " or ".join(
            "nothing" if each == NOTHING else str(each) for each in sorted(self._possible)
        )
