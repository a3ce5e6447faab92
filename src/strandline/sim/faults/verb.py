"""What a verb of a plan is: a name, what it does, and which faults of the catalogue it makes.

The numbers F-01 to F-72 are those of the fault catalogue in docs/simulator.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from strandline.sim.faults.scene import Scene
from strandline.sim.plan import Action

Act: TypeAlias = Callable[[Scene, Action], None]
"""Does it; raises `Skipped` if it makes no sense at this moment, `BadScript` if it never does."""


class Verb(NamedTuple):
    """See the module."""

    name: str
    act: Act
    faults: tuple[str, ...]
    """Which faults of the catalogue it makes, alone or with others."""
    usage: str
    """Words and options, for people."""
