"""Reads in the end what a group has stored, whether or not a member has fetched it since (I-39).

`client offsets o1 group=g`

Most groups have members that fetch offsets once, before any are committed. So nothing would be said
of what their coordinators keep.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Final

from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Outcome
from strandline.sim.clients.coordinator_client import CoordinatorClient
from strandline.sim.clients.group_watch import GroupWatch
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.types import TopicPartition

_LAST: Final = 2**62
"""In place of a generation or tenure: behind all that there were."""


class OffsetsReader(CoordinatorClient):
    """See the module. It begins when all members have ended."""

    kind: ClassVar[str] = "offsets"

    def __init__(
        self, world: ClientWorld, spec: ClientSpec, options: ClientOptions, watch: GroupWatch
    ) -> None:
        super().__init__(world, spec, options)
        self._group = options.text("group")
        self._watch = watch

    def start(self) -> None:
        """See `SimClient`."""
        self.finish()

    def finishing(self) -> None:
        """See `SimClient`."""
        self.step()

    def maybe_done(self) -> None:
        """See `SimClient`."""
        if self.now_us > self.give_up_us:
            self.found("I-50", f"It could not be found out what group {self._group} has stored")
            self.done()

    def step(self) -> None:
        """See `CoordinatorClient`."""
        floors = {
            at: self._watch.floor(self._group, at, _LAST)
            for at in self._watch.committed_partitions(self._group)
        }
        if floors:
            question = self.offsets_question(self._group, floors)
            self.ask(self._group, [question], partial(self._told, floors))
        else:
            self.done()

    def _told(self, floors: Mapping[TopicPartition, int], was_true: bool, outcome: Outcome) -> None:
        offsets = self.offsets_in(outcome)
        if offsets is None or not was_true:
            self.look_elsewhere(self._group)
            return
        for at, floor in floors.items():
            offset = offsets.get(at, -1)
            self.counters["offset read in the end"] += 1
            if offset >= 0 or not self.may_have_expired:
                self._watch.fetched(self._group, at, offset, floor=floor, generation=_LAST)
        self.done()
