"""Requested offsets that no longer exist: with `failOnDataLoss` the query fails, else it warns.

Loss is never silent: without the option each loss is one warning on the stderr of the process that
met it, which Spark shows with its own.
"""

from __future__ import annotations

import logging

from strandline.errors import StrandlineError

_log = logging.getLogger(__name__)


class DataLost(StrandlineError):
    """Records that a query asks for are gone. The sentence says which and why."""


class Losses:
    """Takes what is found to be lost. `repeated` sentences are told once."""

    def __init__(self, *, fails: bool) -> None:
        self._fails = fails
        self._reported: set[str] = set()

    def report(self, sentence: str, cause: Exception | None = None) -> None:
        """Raise `DataLost`, or warn and let the query go on behind the loss."""
        if self._fails:
            raise DataLost(
                f"{sentence} The query stops, because going on would lose them silently; "
                "failOnDataLoss=false goes on behind them."
            ) from cause
        if sentence not in self._reported:
            self._reported.add(sentence)
            _log.warning("%s The query goes on behind them: failOnDataLoss is false.", sentence)
