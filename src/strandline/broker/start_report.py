"""What the start of a broker found, apart from the broker: a supervisor has none in it."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.config.listeners import Listener


@dataclass(frozen=True, slots=True)
class StartReport:
    """What the start found, for the program that started the broker."""

    cluster_id: str
    addresses: tuple[Listener, ...]
    """Where clients connect; ports as bound."""
    log_dirs: tuple[str, ...]
    topics: int
    partitions: int
    was_clean: bool
    """Whether every log directory was shut down cleanly, or is new."""
    notices: tuple[str, ...]
    """Sentences about what was cut, rebuilt, adopted or left alone."""
