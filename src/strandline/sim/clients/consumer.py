"""Consumers of assigned partitions.

`client consumer c1 topic=t partition=0,1 from=earliest isolation=committed rack=a`

With `to-end=yes` a consumer finds out where its logs end, reads up to there, and is done: that is
how everything is read when all is over (`workload`).
"""

from __future__ import annotations

from typing import ClassVar

from strandline.sim.clients.client import NO_TOPIC_US, PATIENCE_US
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.fetch_position import FetchPosition
from strandline.sim.clients.reader import Reader
from strandline.sim.clients.subscription_state import ANCHORS
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.sim.scenarios.script import BadScript


class Consumer(Reader):
    """See the module."""

    kind: ClassVar[str] = "consumer"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self.needs_end = options.flag("to-end")
        start = _start(options)
        for at in options.partitions():
            self.add_position(at, start)
        self.cluster.topics = [options.text("topic")]

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
            return not all(self._is_through(position) for position in self.positions.values())
        return not self.is_finishing

    def maybe_done(self) -> None:
        """See `SimClient`: what was asked is waited for."""
        if not self.may_read and not self.outstanding:
            self.done()

    def _is_through(self, position: FetchPosition) -> bool:
        is_late = self.now_us >= self.give_up_us - PATIENCE_US + NO_TOPIC_US
        if is_late and self.cluster.view(position.at.topic) is None:
            return True
        return (
            position.end is not None
            and position.offset is not None
            and position.offset >= position.end
        )

    def _give_up(self) -> None:
        for position in self.positions.values():
            if not self._is_through(position):
                self.found(
                    "I-50",
                    f"{self.name} could not read to the end: it stands at {position.offset} of "
                    f"{position.end}",
                    position.at,
                )
        self.done()


def _start(options: ClientOptions) -> int:
    """`from=earliest`, `from=latest` or `from=17`."""
    text = options.text("from", "earliest")
    if text in ANCHORS:
        return ANCHORS[text]
    if not text.isdecimal():
        raise BadScript(f"from={text} is neither earliest nor latest nor an offset.")
    return int(text)
