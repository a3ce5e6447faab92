"""`python -m tests.sim.modelcheck`, in the root of a checkout."""

from __future__ import annotations

from tests.sim.modelcheck.command import modelcheck

if __name__ == "__main__":
    modelcheck(prog_name="python -m tests.sim.modelcheck")
