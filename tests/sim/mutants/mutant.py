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
    """A few words with dashes: the rule, so that `without` can stand before it."""
    sentence: str
    """The rule, with its source."""
    expected: tuple[str, ...]
    """The invariants of which at least one must notice its absence; none if it cannot be noticed
    in a run, because another rule stands behind it or no client can ask for it."""
    switch_on: SwitchOn
    remark: str = ""
    """Why no run notices, or hardly any, and what does."""


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


def patch_all(places: tuple[Any, ...], **replacements: Any) -> SwitchOn:
    """The same in several places, such as all modules that have imported a function by its name."""
    return together(*(patch(place, **replacements) for place in places))


def together(*switches: SwitchOn) -> SwitchOn:
    """Switch all of them on."""

    @contextmanager
    def switched() -> Iterator[None]:
        with ExitStack() as stack:
            for switch in switches:
                stack.enter_context(switch())
            yield

    return switched


def nothing(*_: Any, **__: Any) -> None:
    """In place of a check that raises, or of a step that is left out."""


def yes(*_: Any, **__: Any) -> bool:
    """In place of a test that may fail."""
    return True


def no(*_: Any, **__: Any) -> bool:
    """In place of a test that may hold."""
    return False
