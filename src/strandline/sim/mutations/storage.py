"""Rules of logs and disks."""

from __future__ import annotations

from typing import Final

from strandline.sim.mutations.mutant import Mutant, patch
from strandline.storage.recovery import Recovery

STORAGE_MUTANTS: Final = (
    Mutant(
        "recovery-trusts-everything",
        "After an unclean shutdown every batch from the recovery point on is read and checked; "
        "what follows a bad one goes (spec 1.9).",
        ("I-02", "I-46", "I-47"),
        patch(Recovery, _first_to_recover=lambda self: None),
    ),
)
