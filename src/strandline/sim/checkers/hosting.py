"""Which logs and replicas one process has, and the model of each.

A log is known from the moment at which its process has loaded or made it; a replica comes with its
role. A replica goes when it is moved away, deleted, or its disk fails; the log of the last kind is
still on that disk, and is expected there by the next process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.marks import LEADER, NO_ROLE, mark_without_role
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.rules import Rules
from strandline.types import TopicId

if TYPE_CHECKING:
    from strandline.node.replica import Replica
    from strandline.sim.machine import Machine
    from strandline.storage.log import Log

Hosted: TypeAlias = tuple[LogModel, PartitionModel]


class Hosting:
    """See the module. One for each life of a broker.

    - `seen`: the replicas with a role.
    - `by_log`, `by_directory`: every log, with a role or without.
    - `unsettled`: replicas that were touched since a turn ended.
    - `unread`: the log directories that its start could not read.
    - `acted_us`: when the process handled its last event; `busy_until_us`: when it last handled
      the first one after a gap (`lag_rules.GAP_US`), as one that was paused does.
    - `wall_ms`: what its wall clock showed when it was looked at last; `acted_at_ms`: that or what
      it shows now, whichever is later. A clock may be set right while a disk holds up the turn in
      which it was read.
    """

    __slots__ = (
        "_rules",
        "acted_at_ms",
        "acted_us",
        "busy_until_us",
        "by_directory",
        "by_log",
        "machine",
        "seen",
        "unread",
        "unsettled",
        "wall_ms",
    )

    def __init__(self, machine: Machine, rules: Rules) -> None:
        self.machine = machine
        self.seen: dict[Replica, Hosted] = {}
        self.by_log: dict[Log, Hosted] = {}
        self.by_directory: dict[str, Hosted] = {}
        self.unsettled: dict[Replica, None] = {}
        directories = machine.node.replicas.logs.directories
        self.unread = {each.path for each in directories if each.offline_reason is not None}
        self.acted_us = self.busy_until_us = machine.world.schedule.now_us
        self.wall_ms = self.acted_at_ms = machine.now.wall_ms
        self._rules = rules

    def note_time(self) -> int:
        """What the wall clock shows."""
        now_ms = self.machine.now.wall_ms
        self.acted_at_ms = now_ms if now_ms > self.wall_ms else self.wall_ms
        self.wall_ms = now_ms
        return now_ms

    def take_in(self, log: Log, topic_id: TopicId | None = None) -> Hosted:
        """A log that was not known yet, or not as that of this topic: a crash may have come between
        making it and writing down whose it is."""
        rules, broker = self._rules, self.machine.broker_id
        partition = rules.partitions.of(log.topic_partition, topic_id or log.topic_id)
        model = LogModel(broker, log, partition.batches, rules.findings)
        # First: what lies below the log start is read with other eyes.
        model.mark = mark_without_role(log)
        model.read_anew()
        model.growth.begin(log.log_end_offset, self.machine.world.schedule.now_us)
        partition.models[broker] = model
        rules.replica.check_end(model)
        rules.replica.check_epoch_table(model)
        hosted = self.by_log[log] = self.by_directory[log.directory] = (model, partition)
        return hosted

    def has_moved(self, hosted: Hosted) -> bool:
        """Whether the log lies in another directory than it did; it is known from then on."""
        model = hosted[0]
        if model.directory == model.log.directory:
            return False
        model.directory = model.log.directory
        self.by_directory[model.directory] = hosted
        return True

    def enter(self, replica: Replica) -> Hosted:
        """A replica that was not there before this event."""
        hosted = self.by_log.get(replica.log)
        if hosted is None or hosted[1].topic_id != replica.topic_id:
            hosted = self.take_in(replica.log, replica.topic_id)
        model = hosted[0]
        model.replica = replica
        model.is_live = True
        model.mark = (*model.mark[:LEADER], *NO_ROLE)
        self.seen[replica] = hosted
        return hosted

    def drop_missing(self) -> None:
        """Replicas are not there any more."""
        present = set(self.machine.node.replicas)
        for replica in [each for each in self.seen if each not in present]:
            model, partition = self.seen.pop(replica)
            self.unsettled.pop(replica, None)
            model.replica = None
            if replica.log.closed:
                model.is_live = False
                self.by_log.pop(replica.log, None)
                partition.forget(model)
