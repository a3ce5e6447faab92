"""Asks again and again where partitions end: the answers must never go back (I-38, KIP-207).

`client ends e1 topic=t partition=0 every=500ms`

ListOffsets names topics. An answer counts only if the same broker has the same topic id for the
name afterwards as it was meant to have before.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Final

from strandline.client.channel import RequestFailed
from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.sim.clients.client import SimClient, place_of
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.connection import Connection, Outcome
from strandline.sim.clients.offsets import LATEST, list_offsets, only_partition
from strandline.sim.clients.world import ClientWorld
from strandline.sim.history.operations import EndSeen
from strandline.sim.plan import ClientSpec
from strandline.types import LeaderEpoch, TopicId, TopicPartition

EPOCHS_SINCE: Final = 4
"""Older versions cannot say which leader they mean: one that was deposed may answer."""


class EndsWatcher(SimClient):
    """See the module."""

    kind: ClassVar[str] = "ends"

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options)
        self._every_us = options.time_us("every", "500ms")
        self._isolation = ("uncommitted", "committed").index(
            options.one_of("isolation", ("uncommitted", "committed"))
        )
        self._version = max(EPOCHS_SINCE, self.cluster.versions.of(ApiKey.LIST_OFFSETS))
        self._partitions = options.partitions()
        self.cluster.topics = [options.text("topic")]

    def start(self) -> None:
        """See `SimClient`."""
        self.cluster.stale()
        for at in self._partitions:
            self.after(self.random.randrange(self._every_us), partial(self._ask, at))

    def maybe_done(self) -> None:
        """See `SimClient`."""
        if not self.outstanding:
            self.done()

    def _ask(self, at: TopicPartition) -> None:
        if self.is_finishing:
            return
        self.cluster.keep_fresh()
        leader = self.cluster.leader(at)
        view = self.cluster.view(at.topic)
        connection = None if leader is None else self.cluster.connection(leader.broker_id)
        if leader is None or view is None or connection is None:
            self._later(at)
            return
        request = list_offsets(at, LATEST, LeaderEpoch(leader.epoch), self._isolation)
        then = partial(self._told, at, view.topic_id, connection)
        self.cluster.ask(connection, ApiKey.LIST_OFFSETS, request, then, version=self._version)

    def _told(
        self,
        at: TopicPartition,
        topic_id: TopicId,
        connection: Connection,
        outcome: Outcome,
    ) -> None:
        answer = None if isinstance(outcome, RequestFailed) else only_partition(outcome)
        if answer is None or answer.error_code != ErrorCode.NONE:
            if answer is not None:
                self.counters[f"ends {ErrorCode(answer.error_code).name}"] += 1
            self.cluster.stale()
            self._later(at)
            return
        confirm = partial(self._confirmed, at, topic_id, answer)
        self.cluster.ask_topic_id(connection, at.topic, confirm)

    def _confirmed(
        self, at: TopicPartition, meant: TopicId, answer: Any, found: TopicId | None
    ) -> None:
        if found == meant:
            self.counters["end seen"] += 1
            place = place_of(at, meant)
            self.world.history.append(EndSeen(self.name, place, answer.offset))
        else:
            self.cluster.stale()
        self._later(at)

    def _later(self, at: TopicPartition) -> None:
        self.after(self.about(self._every_us), partial(self._ask, at))
