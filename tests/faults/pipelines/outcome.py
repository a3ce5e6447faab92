"""What came of the kills: a line for each, and a table of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from strandline.lakehouse.verify.report import Report
from tests.faults.pipelines.phases import IN_ORDER
from tests.faults.pipelines.running import Killed
from tests.faults.pipelines.victims import Kill


class Outcome(NamedTuple):
    """One kill after which the table was proven."""

    planned: Kill
    killed: Killed
    acknowledged: int
    """Records, from the kill to when the table had everything that there was then."""
    seconds: float
    """From the kill until then; a killed broker is in sync again by then, too."""
    offsets: int
    """That the proof was about."""
    commits: int

    def line(self) -> str:
        """A line for the user who watches the run."""
        return (
            f"{self.killed.victim} ({self.killed.name}, process {self.killed.pid}) killed, meant "
            f"for {self.planned.moment}, found {self.killed.phase}; recovered in "
            f"{self.seconds:.1f} s while {self.acknowledged:,} records came; "
            f"{self.offsets:,} offsets in {self.commits:,} commits: exactly once"
        )


def offsets_of(report: Report) -> int:
    """That a proof is about."""
    return sum(each.end - each.start for each in report.partitions.values())


def table(outcomes: Sequence[Outcome]) -> str:
    """Kills by victim, and by what the run was doing just then; Markdown."""
    heads = ["victim", "kills", *IN_ORDER, "median recovery", "exactly once"]
    lines = ["| " + " | ".join(heads) + " |", "|---|" + "---:|" * (len(heads) - 1)]
    victims = list(dict.fromkeys(each.killed.victim for each in outcomes))
    for victim in [*sorted(victims), "all"]:
        mine = [each for each in outcomes if victim in ("all", each.killed.victim)]
        phases = Counter(each.killed.phase for each in mine)
        recovery = f"{median(each.seconds for each in mine):.1f} s" if mine else ""
        cells = [victim, len(mine), *(phases[each] for each in IN_ORDER), recovery, len(mine)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    workers = Counter(each.killed.name for each in outcomes if each.killed.victim == "worker")
    if workers:
        lines += ["", "Workers: " + ", ".join(f"{name} {n}" for name, n in sorted(workers.items()))]
    return "\n".join(lines)
