"""`strandline consume --group`: printing as a member of a consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import click

from strandline.cli.consume_place import check_start
from strandline.cli.consume_run import ConsumeRun, Source
from strandline.cli.stopping import Stop
from strandline.client.assignors import ASSIGNORS
from strandline.client.cluster import ClusterClient
from strandline.client.group_consumer import GroupConsumer, RebalanceListener
from strandline.client.group_settings import CONSUMER, GroupSettings
from strandline.client.start import Start
from strandline.errors import ErrorCode, ProtocolError
from strandline.types import TopicPartition

_TAKEN_AWAY: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)


@dataclass(frozen=True, slots=True)
class MemberTask:
    """What is to be read, and until when."""

    topic: str
    start: Start | None
    """Where to begin in a partition that this command is given for the first time; None: where the
    group has come to."""
    exits_at_end: bool
    settings: GroupSettings
    client: ClusterClient


def consume_as_member(
    consumer: GroupConsumer,
    task: MemberTask,
    make_run: Callable[[Source], ConsumeRun],
    stop: Stop,
) -> None:
    """Read until it is stopped; what was printed is committed now and then, when partitions go to
    other members, and at the end."""
    member = _Member(consumer, task, make_run(consumer))
    try:
        consumer.subscribe(
            [task.topic],
            RebalanceListener(assigned=member.assigned, revoked=member.revoked, lost=member.lost),
        )
        member.read(stop)
    finally:
        if not stop.is_abandoned:  # else the group finds out by the member's silence
            consumer.close()


class _Member:
    def __init__(self, consumer: GroupConsumer, task: MemberTask, run: ConsumeRun) -> None:
        self._consumer = consumer
        self._task = task
        self._run = run
        self._begun: set[TopicPartition] = set()
        if task.exits_at_end:
            run.ends = {}

    def read(self, stop: Stop) -> None:
        """Print until it is over."""
        interval_s = self._task.settings.auto_commit_interval_ms / 1000
        committed_s = time.monotonic()
        try:
            while not stop.is_set and not self._run.is_full and not self._is_at_end:
                self._run.step()
                if time.monotonic() - committed_s > interval_s:
                    committed_s = time.monotonic()
                    self._commit()
        finally:
            # Whatever ended it: what was printed counts as read.
            if not stop.is_abandoned:
                self._commit()

    @property
    def _is_at_end(self) -> bool:
        """Whether all that the group has given is read. Nothing is all if it will stay nothing:
        cooperative members, and those of the consumer protocol, get partitions only after others
        have given them up."""
        generation = self._consumer.generation
        if generation is None or set(generation.owned) != set(self._consumer.positions):
            return False
        if not generation.owned and (
            self._task.settings.protocol == CONSUMER
            or ASSIGNORS[generation.assignor].is_cooperative
        ):
            return False
        return self._run.is_at_end

    def assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """See `RebalanceListener`."""
        fresh = [at for at in partitions if at not in self._begun]
        if self._task.start is not None and fresh:
            check_start(self._task.client, fresh, self._task.start)
            for at in fresh:
                self._consumer.seek(at, self._task.start)
        self._begun.update(fresh)
        positions = self._consumer.positions
        for at in partitions:
            if at in positions:  # else no broker tells it yet
                self._run.places.begin(at, positions[at])
        if self._run.ends is not None:
            ends = self._consumer.end_offsets()
            self._run.ends.update({at: ends[at] for at in partitions})

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """See `RebalanceListener`."""
        self._commit(partitions)
        self._forget_ends(partitions)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """See `RebalanceListener`."""
        if self._run.take_uncommitted(partitions):
            click.echo(
                "The group has taken this member out. What it printed last others may print too.",
                err=True,
            )
        self._forget_ends(partitions)

    def _forget_ends(self, partitions: Sequence[TopicPartition]) -> None:
        for at in partitions:
            if self._run.ends is not None:
                self._run.ends.pop(at, None)

    def _commit(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        offsets = self._run.take_uncommitted(partitions)
        if not offsets or not self._task.settings.enable_auto_commit:
            return
        try:
            self._consumer.commit(offsets)
        except ProtocolError as error:
            if error.code not in _TAKEN_AWAY:
                raise
            click.echo(f"{error.message} They may print the same records.", err=True)
