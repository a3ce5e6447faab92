"""Produce requests that take long are appended in slices, so that others are served in between.

What one batch decompresses to is limited, but a request may hold hundreds of such batches. After
`SLICE_NS` the rest of its partitions therefore waits for a later turn, and its connection is not
read meanwhile: requests take effect in their order. In each turn one slice of one request is done,
of each connection in its turn.

What waits keeps records of its own, since the frame belongs to the driver again. Where those take
`KEPT_BYTES_MAX` already, the rest of a request is refused instead.

This file knows time and order; what is appended, and how, is `produce`'s business.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.client_quotas import ClientQuotas
from strandline.node.connection import Connection
from strandline.node.outbox import Outbox
from strandline.node.request import Request
from strandline.node.slices import Slices
from strandline.node.timers import Timers
from strandline.protocol.messages.produce import ProduceRequest
from strandline.types import Instant

log = logging.getLogger(__name__)

SLICE_NS: Final = 5_000_000
KEPT_BYTES_MAX: Final = 128 * 1024 * 1024


class _Work:
    """One request whose batches are being appended."""

    __slots__ = ("kept_bytes", "request", "slices")

    def __init__(self, request: Request[ProduceRequest], slices: Slices) -> None:
        self.request = request
        self.slices = slices
        self.kept_bytes = 0


class ProduceSlices:
    """See the module. Without a stopwatch, as in the simulator, a slice never ends."""

    def __init__(self, timers: Timers, outbox: Outbox, quotas: ClientQuotas) -> None:
        self._timers = timers
        self._outbox = outbox
        self._quotas = quotas
        self._queues: dict[Connection, deque[_Work]] = {}
        """What is under way, in order of the next slices."""
        self._current: _Work | None = None
        self._end_ns: int | None = None
        self._kept_bytes = 0

    def begin(self, request: Request[ProduceRequest], slices: Slices, now: Instant) -> None:
        """Do the first slice now, unless other work of the connection is before it."""
        next(slices)
        work = _Work(request, slices)
        connection = request.connection
        queue = self._queues.get(connection)
        if queue is not None:
            self._keep(work)
            queue.append(work)
        elif not self._is_done(work, now):
            if not self._queues:
                self._timers.in_another_turn(self._go_on, now)
            self._queues[connection] = deque([work])
            connection.is_busy = True

    def is_over(self) -> bool:
        """Whether the slice under way is to end with a `yield`, unless there is a `refusal`."""
        stopwatch = self._quotas.stopwatch
        return self._end_ns is not None and stopwatch is not None and stopwatch() >= self._end_ns

    def refusal(self) -> ProtocolError | None:
        """Why the rest of the request under way cannot wait; else its records are kept."""
        work = self._current
        if work is not None and not work.kept_bytes:
            if self._kept_bytes >= KEPT_BYTES_MAX:
                return ProtocolError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    "Too many requests wait for their batches to be looked into.",
                )
            self._keep(work)
        return None

    def _keep(self, work: _Work) -> None:
        work.kept_bytes = keep_records(work.request.body)
        self._kept_bytes += work.kept_bytes

    def _is_done(self, work: _Work, now: Instant) -> bool:
        """Do one slice; whether it was the last."""
        stopwatch = self._quotas.stopwatch
        self._end_ns = None if stopwatch is None else stopwatch() + SLICE_NS
        self._current = work
        try:
            work.slices.send(now)
        except StopIteration:
            return True
        finally:
            self._current = None
        return False

    def _go_on(self, now: Instant) -> None:
        connection = next(iter(self._queues))
        queue = self._queues.pop(connection)
        work = queue[0]
        request = work.request
        if request.time is not None:
            request.time.goes_on()
        try:
            is_done = self._is_done(work, now)
        except Exception as error:
            # The boundary: one connection pays for a bug of ours, not the broker.
            log.exception("A produce request from %s failed", connection.client_host)
            request.abandon(f"PRODUCE failed: {error}")
            is_done = True
        if request.time is not None:
            request.time.handled()
        if is_done:
            queue.popleft()
            self._kept_bytes -= work.kept_bytes
        if queue:
            self._queues[connection] = queue
        else:
            connection.is_busy = False
            self._outbox.go_on(connection)
        if self._queues:
            self._timers.in_another_turn(self._go_on, now)


def keep_records(body: ProduceRequest) -> int:
    """Give a request records of its own: its frame belongs to the driver. Returns their bytes."""
    kept = 0
    for topic in body.topic_data:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(data.records))
                kept += len(data.records)
    return kept
