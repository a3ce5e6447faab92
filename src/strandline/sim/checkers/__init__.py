"""The invariants of the replication specification as observers of a simulated cluster."""

from strandline.sim.checkers.checkers import Checkers
from strandline.sim.checkers.violations import Violation

__all__ = ["Checkers", "Violation"]
