"""Consumers of assigned partitions.

`client consumer c1 topic=t partition=0,1 from=earliest isolation=committed rack=a`

With `to-end=yes` a consumer finds out where its logs end, reads up to there, and is done: that is
how everything is read when all is over (`crew`).
"""

from __future__ import annotations

from typing import ClassVar

from strandline.client.backoff import ExponentialBackoff
from strandline.sim.clients.client import NO_TOPIC_US, PATIENCE_US
from strandline.sim.clients.reader import Reader
from strandline.sim.clients.seats import Seat
from strandline.sim.clients.standing import ANCHORS
from strandline.sim.clients.wishes import Wishes
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.sim.scenarios.script import BadScript


class Consumer(Reader):
    """See the module."""

    kind: ClassVar[str] = "consumer"

    def __init__(self, world: ClientWorld, spec: ClientSpec, wishes: Wishes) -> None:
        super().__init__(world, spec, wishes)
        self.needs_end = wishes.flag("to-end")
        start = _start(wishes)
        for at in wishes.partitions():
            self.seats[at] = Seat(at, ExponentialBackoff(self.random), start)
        self.cluster.topics = [wishes.text("topic")]

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        if self.needs_end:
            self.finish()
            self.after(PATIENCE_US, self._give_up)

    @property
    def may_read(self) -> bool:
        """See `Reader`."""
        if self.needs_end:
            return not all(self._is_through(seat) for seat in self.seats.values())
        return not self.is_finishing

    def maybe_done(self) -> None:
        """See `SimClient`: what was asked is waited for."""
        if not self.may_read and not self.outstanding:
            self.done()

    def _is_through(self, seat: Seat) -> bool:
        is_late = self.now_us >= self.give_up_us - PATIENCE_US + NO_TOPIC_US
        if is_late and self.cluster.view(seat.at.topic) is None:
            return True
        return seat.end is not None and seat.position is not None and seat.position >= seat.end

    def _give_up(self) -> None:
        for seat in self.seats.values():
            if not self._is_through(seat):
                self.found(
                    "I-50",
                    f"{self.name} could not read to the end: it stands at {seat.position} of "
                    f"{seat.end}",
                    seat.at,
                )
        self.done()


def _start(wishes: Wishes) -> int:
    """`from=earliest`, `from=latest` or `from=17`."""
    text = wishes.text("from", "earliest")
    if text in ANCHORS:
        return ANCHORS[text]
    if not text.isdecimal():
        raise BadScript(f"from={text} is neither earliest nor latest nor an offset.")
    return int(text)
