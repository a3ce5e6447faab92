"""What a rule that can be switched off consists of, and how real code is patched for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

SwitchOn = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One safety rule, and the way to do without it."""

    name: str
    """A few words with dashes: what is not done."""
    sentence: str
    """The rule, with its source."""
    expected: tuple[str, ...]
    """The invariants of which at least one must notice its absence."""
    switch_on: SwitchOn


def patch(place: Any, **replacements: Any) -> SwitchOn:
    """Replace attributes of a class or module while the context lasts."""

    @contextmanager
    def switched() -> Iterator[None]:
        before = {name: place.__dict__[name] for name in replacements}
        for name, replacement in replacements.items():
            setattr(place, name, replacement)
        try:
            yield
        finally:
            for name, original in before.items():
                setattr(place, name, original)

    return switched


def together(*switches: SwitchOn) -> SwitchOn:
    """Switch all of them on."""

    @contextmanager
    def switched() -> Iterator[None]:
        with ExitStack() as stack:
            for switch in switches:
                stack.enter_context(switch())
            yield

    return switched
