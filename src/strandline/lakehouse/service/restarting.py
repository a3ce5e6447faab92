"""When a run that failed is begun again: pure arithmetic, without a clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_S: Final = 1.0
MOST_S: Final = 300.0


@dataclass(slots=True)
class Backoff:
    """The pauses before the next attempts of one table: each twice as long as the one before."""

    first_s: float = FIRST_S
    most_s: float = MOST_S
    _failures: int = 0
    """In a row, with no commit between them."""

    def after_failure(self, *, has_committed: bool) -> float:
        """Seconds to wait; a run that committed anything makes the next pause the first again."""
        self._failures = 1 if has_committed else self._failures + 1
        # The exponent has a limit of its own: a float has one, too.
        return min(self.most_s, self.first_s * 2.0 ** min(self._failures - 1, 60))
