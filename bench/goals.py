"""What a goal is: a bound on something that was measured, and what it is measured against."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on one metric of the subject: `at_least` or `at_most`, one of the two.

    What is bounded is the ratio to a broker of another kind (`against`), the ratio to the subject
    itself under another workload (`baseline`), or, with neither, the figure itself.
    """

    title: str
    workload: str
    metric: str
    against: str | None = None
    baseline: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    kinds: tuple[str, ...] = ("strandline",)
    """The subjects that the goal is about."""

    def is_met_by(self, measured: float) -> bool:
        """Whether a ratio or figure is on the right side."""
        if self.at_least is not None:
            return measured >= self.at_least
        return self.at_most is not None and measured <= self.at_most

    @property
    def is_ratio(self) -> bool:
        """Else the bound is one on the figure itself."""
        return self.against is not None or self.baseline is not None

    @property
    def bound(self) -> str:
        """The bound as the report writes it."""
        unit = "x" if self.is_ratio else ""
        if self.at_least is not None:
            return f">= {self.at_least:g}{unit}"
        return f"<= {self.at_most:g}{unit}"
