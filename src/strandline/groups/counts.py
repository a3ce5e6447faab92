"""How often names occur, kept while they come and go.

Counters themselves keep names that are gone, and subtracting one from another looks at all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def add(counts: Counter[str], names: Iterable[str], sign: int) -> None:
    """Count names that have come (`sign` 1) or gone (-1); none with a count of 0 stays."""
    for name in names:
        counts[name] += sign
        if not counts[name]:
            del counts[name]
