"""`python -m tests.sim.mutants`, in the root of a checkout."""

from __future__ import annotations

from tests.sim.mutants.command import mutants

if __name__ == "__main__":
    mutants(prog_name="python -m tests.sim.mutants")
