"""Moved to `strandline.sim.mutants.mutant`."""

from strandline.sim.mutants.mutant import Mutant, SwitchOn, patch, together

__all__ = ["Mutant", "SwitchOn", "patch", "together"]
