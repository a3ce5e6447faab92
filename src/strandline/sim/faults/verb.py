"""What a verb of a plan is: a name, what it does, and how it is written.

Which faults of the catalogue it makes stands in `catalogue`.
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
    usage: str
    """Words and options, for people."""
