"""Producer ids for idempotent producers, handed out from blocks that the cluster grants."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from strandline.cluster.controller import ProducerIdBlock, allocate_producer_ids
from strandline.errors import ProtocolError
from strandline.node.controller import Controller
from strandline.types import BrokerId, Instant, ProducerId

Answer = Callable[[ProducerId | ProtocolError, Instant], None]


class ProducerIds:
    """A block of ids and who waits for the next one. An id is given once, ever."""

    def __init__(self, controller: Controller, broker_id: BrokerId) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._next = 0
        self._end = 0
        self._waiting: deque[Answer] = deque()

    def take(self, answer: Answer, now: Instant) -> None:
        """Give `answer` a fresh id, at once if the block has one left."""
        if self._next < self._end:
            self._give(answer, now)
            return
        self._waiting.append(answer)
        if len(self._waiting) == 1:
            self._allocate(now)

    def _allocate(self, now: Instant) -> None:
        self._controller.carry_out(
            partial(allocate_producer_ids, broker_id=self._broker_id),
            done=self._allocated,
            failed=self._refused,
            now=now,
        )

    def _allocated(self, blocks: tuple[ProducerIdBlock, ...], now: Instant) -> None:
        self._next = blocks[0].first
        self._end = blocks[0].first + blocks[0].size
        while self._waiting and self._next < self._end:
            self._give(self._waiting.popleft(), now)
        if self._waiting:
            self._allocate(now)

    def _refused(self, error: ProtocolError, now: Instant) -> None:
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            answer(error, now)

    def _give(self, answer: Answer, now: Instant) -> None:
        taken = ProducerId(self._next)
        self._next += 1
        answer(taken, now)
