"""What a value is at this moment, for assertions about things that change.

Type checkers keep what an assertion has found of an attribute, also over calls that change it, and
take the opposite assertion, and all that follows it, for code that is never reached.
"""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def current(value: T) -> T:
    """The value itself; what is asserted of it is not kept for its name."""
    return value
