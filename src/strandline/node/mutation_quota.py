"""Whether a request may create and delete partitions now (KIP-599).

Source: `kafka.server.ControllerMutationQuotaManager`.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.errors import ErrorCode, ProtocolError
from strandline.quotas.bucket import Bucket


class Mutations:
    """What one request takes of its client's bucket. A decision that is made again, since the
    metadata had changed, takes nothing again."""

    def __init__(
        self,
        bucket: Bucket,
        rate: float,
        now_ms: int,
        throttle: Callable[[int], None],
        *,
        strict: bool,
    ) -> None:
        """`rate` is partitions a second; `throttle` makes the client wait so many milliseconds."""
        self._bucket = bucket
        self._rate = rate
        self._now_ms = now_ms
        self._throttle = throttle
        self._strict = strict
        self._decided: dict[str, ProtocolError | None] = {}

    def take(self, topic: str, count: int) -> None:
        """Partitions of a topic are to be made or removed. Raises THROTTLING_QUOTA_EXCEEDED if what
        was done before is too much already, for a client that knows it."""
        if topic not in self._decided:
            self._decided[topic] = self._decide(count)
        refused = self._decided[topic]
        if refused is not None:
            raise refused

    def _decide(self, count: int) -> ProtocolError | None:
        wait_ms = self._bucket.throttle_ms(self._rate, self._now_ms)
        if wait_ms > 0:
            self._throttle(wait_ms)
            if self._strict:
                return ProtocolError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
        self._bucket.take(count, self._rate, self._now_ms)
        if not self._strict:
            self._throttle(self._bucket.throttle_ms(self._rate, self._now_ms))
        return None
