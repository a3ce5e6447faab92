"""What the leader of a partition knows about one follower: the remote replica state.

This file knows how a fetch moves it. It must not know the in-sync set. Theory: the offset that a
follower asks for is its log end offset, so its fetches are its acknowledgements. "Caught up" is
a matter of time, not of records: a follower is as current as the moment at which it had
everything that the leader had (KAFKA-1546), which stays true under a steady load where its fetches
never reach the leader's end. There is no remote high watermark.
"""

from __future__ import annotations

from typing import Final

from strandline.types import NO_OFFSET, BrokerId, Offset

NEVER_MS: Final = -(2**62)
"""Long before any time: monotonic clocks may start at 0, so 0 would be a time like any other."""

NO_BROKER_EPOCH: Final = -1
"""The follower's registration is unknown, or it does not send one (KIP-903)."""


class Progress:
    """One follower as its leader sees it; moved only by `Leader`.

    - `log_end_offset`: where its log ends, at least (I-15); -1 before its first fetch.
    - `log_start_offset`: where its log starts; -1 before its first fetch.
    - `last_fetch_ms`, `last_fetch_leader_end`: its last fetch, and the leader's log end then.
    - `last_caught_up_ms`: the latest time at which it is known to have had the whole log.
    - `broker_epoch`: the registration under which it last fetched.
    - `has_fetched`: whether it did so in this leader epoch.
    - `is_counted`: whether the high watermark must wait for it: it is in the maximal in-sync set.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "has_fetched",
        "is_counted",
        "last_caught_up_ms",
        "last_fetch_leader_end",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_fetch_leader_end = NO_OFFSET
        self.last_caught_up_ms = NEVER_MS
        self.broker_epoch = NO_BROKER_EPOCH
        self.has_fetched = False
        self.is_counted = False

    def begin_epoch(self, former: Progress | None, start_offset: Offset, now_ms: int) -> None:
        """Start over, as a member of the in-sync set, for a new leader epoch.

        A leader that is elected again knows where its members are. A replica that is no member
        counts as unknown, and as never caught up, before it fetches in this epoch.
        """
        self.last_caught_up_ms = now_ms
        if former is None:
            return
        self.log_end_offset = former.log_end_offset
        self.log_start_offset = former.log_start_offset
        self.broker_epoch = former.broker_epoch
        self.last_fetch_leader_end = start_offset
        self.last_fetch_ms = now_ms

    def fetched(
        self,
        offset: Offset,
        log_start_offset: Offset,
        broker_epoch: int,
        leader_end: Offset,
        now_ms: int,
    ) -> bool:
        """Note a fetch from `offset` on; returns whether the follower's log end has changed."""
        if offset >= leader_end:
            if now_ms > self.last_caught_up_ms:
                self.last_caught_up_ms = now_ms
        elif offset >= self.last_fetch_leader_end and self.last_fetch_ms > self.last_caught_up_ms:
            # It has now all that the leader had at its fetch before.
            self.last_caught_up_ms = self.last_fetch_ms
        self.last_fetch_ms = now_ms
        if leader_end > self.last_fetch_leader_end:
            self.last_fetch_leader_end = leader_end
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.has_fetched = True
        if offset == self.log_end_offset:
            return False
        self.log_end_offset = offset
        return True

    def __repr__(self) -> str:
        return (
            f"Progress({self.broker_id}, log_end_offset={self.log_end_offset}, "
            f"last_caught_up_ms={self.last_caught_up_ms}, broker_epoch={self.broker_epoch})"
        )
