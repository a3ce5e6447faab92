"""What a test cluster looks like at one moment: plain values, and a table for people.

Cluster of 3 brokers, controller 1
broker  address          state
1       127.0.0.1:40001  running, controller
...
partition  leader  epoch  in sync  broker  role      epoch  start  high watermark  end
orders-0   1       0      1,2,3    1       leader    0      0      12              12
                                   2       follower  0      0      11              12
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from strandline.types import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """One broker of the cluster. `state` is `running`, `paused` or `down`."""

    broker_id: int
    address: str
    state: str
    rack: str | None
    is_registered: bool
    """Whether the cluster takes it for alive: for a while this outlives a broker that is not."""
    is_controller: bool
    is_cut_off: bool
    """Whether it cannot reach the metadata."""
    data: tuple[str, ...]
    """Its log directories."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """One replica as its broker has it. `role` is `leader` or `follower`."""

    broker_id: int
    role: str
    leader_epoch: int
    log_start: int
    high_watermark: int
    log_end: int


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """One partition as the metadata has it, and its replicas on brokers that are not down."""

    topic: str
    partition: int
    leader: int | None
    leader_epoch: int
    assigned: tuple[int, ...]
    in_sync: tuple[int, ...]
    replicas: tuple[ReplicaStatus, ...]

    @property
    def name(self) -> str:
        return str(TopicPartition(self.topic, self.partition))

    def replica(self, broker_id: int) -> ReplicaStatus | None:
        """The replica on that broker, if that is not down and has one."""
        return next((each for each in self.replicas if each.broker_id == broker_id), None)


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The whole cluster. `str` gives the table that is in the module's description."""

    controller: int | None
    brokers: tuple[BrokerStatus, ...]
    partitions: tuple[PartitionStatus, ...]

    def partition(self, topic: str, partition: int = 0) -> PartitionStatus:
        """One partition. Raises `KeyError`."""
        for each in self.partitions:
            if (each.topic, each.partition) == (topic, partition):
                return each
        raise KeyError(f"{topic}-{partition}")

    def __str__(self) -> str:
        lines = [f"Cluster of {len(self.brokers)} brokers, controller {_or_dash(self.controller)}"]
        lines += _table(
            ("broker", "address", "state"),
            ([each.broker_id, each.address, _state(each)] for each in self.brokers),
        )
        if self.partitions:
            lines += _table(_PARTITION_HEADS, _partition_rows(self.partitions))
        return "\n".join(lines)


_PARTITION_HEADS = (
    *("partition", "leader", "epoch", "in sync"),
    *("broker", "role", "epoch", "start", "high watermark", "end"),
)


def _state(broker: BrokerStatus) -> str:
    words = [broker.state]
    if broker.state == "down" and broker.is_registered:
        words.append("not noticed yet")
    if broker.state != "down" and not broker.is_registered:
        words.append("not registered")
    if broker.is_cut_off:
        words.append("cut off from the metadata")
    if broker.is_controller:
        words.append("controller")
    return ", ".join(words)


def _partition_rows(partitions: Iterable[PartitionStatus]) -> Iterable[Sequence[object]]:
    for each in partitions:
        head: Sequence[object] = (
            each.name,
            _or_dash(each.leader),
            each.leader_epoch,
            ",".join(map(str, each.in_sync)),
        )
        for broker_id in each.assigned:
            replica = each.replica(broker_id)
            if replica is None:
                yield (*head, broker_id, "unknown", "", "", "", "")
            else:
                yield (
                    *head,
                    broker_id,
                    replica.role,
                    replica.leader_epoch,
                    replica.log_start,
                    replica.high_watermark,
                    replica.log_end,
                )
            head = ("",) * len(head)


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    cells = [heads, *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(heads))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)
