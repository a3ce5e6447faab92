"""How much of what `strandline produce` has sent is acknowledged. Knows no command line.

Theory: a producer tells how many records were delivered since the last flush, but not which, and
tells nothing of a flush that is interrupted. Each record has a delivery, which knows its outcome.
Deliveries are kept until they have one, so memory is bounded by what the producer holds: they are
looked through when there are twice as many as were left over the last time.
"""

from __future__ import annotations

from typing import Final

from strandline.client.delivery import Batch, Delivery

_LOOKED_THROUGH_FROM: Final = 10_000


class Acknowledged:
    """See the module. `records`, and the bytes of their values, as of the last `update`."""

    def __init__(self) -> None:
        self.records = self.value_bytes = 0
        self._open: list[Delivery] = []
        self._sizes: list[int] = []
        """Of the same records. Pairs of both would take more time than all of the rest here."""
        self._full = _LOOKED_THROUGH_FROM

    def expect(self, delivery: Delivery, value_bytes: int) -> None:
        """A record was given to the producer."""
        self._open.append(delivery)
        self._sizes.append(value_bytes)
        if len(self._open) >= self._full:
            self.update()
            self._full = max(_LOOKED_THROUGH_FROM, 2 * len(self._open))

    def update(self) -> None:
        """Count what has been acknowledged since, and forget what has failed."""
        records, value_bytes = self.records, self.value_bytes
        still_open: list[Delivery] = []
        sizes: list[int] = []
        last: Batch | None = None
        is_done = is_written = False
        # Not strict: `expect` may have been interrupted between its lists.
        for delivery, size in zip(self._open, self._sizes, strict=False):
            batch = delivery.batch
            if batch is not last:  # records that follow each other are mostly of one batch
                last = batch
                is_done = batch.is_done
                is_written = is_done and batch.error is None
            if is_written:
                records += 1
                value_bytes += size
            elif not is_done:
                still_open.append(delivery)
                sizes.append(size)
        self.records, self.value_bytes = records, value_bytes
        self._open, self._sizes = still_open, sizes
