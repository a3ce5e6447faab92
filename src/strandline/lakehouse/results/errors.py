"""What can go wrong with the rows of a query."""

from __future__ import annotations

from strandline.errors import StrandlineError


class UnfitRows(StrandlineError):
    """Rows of a query do not fit the table. The sentence names the column."""
