"""The shape of the status document: its parts, their fields, and what each field means.

These classes are the one description of it: documents are made of them, and docs/status.md is
written from them. Names are Kafka's where Kafka has one. Times end in `_ms`: `wall` times are
milliseconds since 1970 in UTC, `ago` and `wait` are durations. A field is null where a thing is not
known or does not apply. New fields may be added to a version; a field that goes, or means something
else, makes another version.
"""
# ruff: noqa: RUF009 - `fact` makes the field itself, and no default

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.node.status.broker_document import (
    AuthenticationCount,
    Certificate,
    Controller,
    ErrorCount,
    EventLoop,
    Handles,
    Limits,
    LiveBroker,
    LogDirectory,
    Requests,
    TopicTraffic,
    Totals,
)
from strandline.node.status.facts import fact

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """An entry of the leader epoch cache."""

    epoch: int = fact("a leader epoch")
    start_offset: int = fact("the offset of its first record here")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerView:
    """What the leader knows of one follower. Only followers' fetches tell it."""

    broker: int = fact("the follower")
    alive: bool = fact("whether it is registered")
    in_sync: bool = fact("whether it is in the in-sync set in force")
    counted: bool = fact("whether the high watermark waits for it")
    log_start_offset: int | None = fact("where its log starts; null before its first fetch")
    log_end_offset: int | None = fact("where its log ends; null before its first fetch")
    lag: int | None = fact("records that it lacks")
    caught_up_ago_ms: int | None = fact("since when it is not known to have had everything")
    fetched_ago_ms: int | None = fact("since its last fetch in this leader epoch")
    broker_epoch: int | None = fact("the registration under which it fetches")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderView:
    """What a leader knows beside its log."""

    in_sync: list[int] = fact("the in-sync set in force")
    change: str | None = fact("a change of it under way: `expanding`, `shrinking`, `withdrawing`")
    proposed: list[int] = fact("the in-sync set that this leader wants")
    maximal: list[int] = fact("every replica for which the high watermark waits")
    min_in_sync: int = fact("in-sync replicas that acks=all needs")
    start_offset: int = fact("where its log ended when this leader epoch began")
    end_known: bool = fact("whether it knows all that is committed (KIP-207)")
    low_watermark: int | None = fact(
        "the first offset that is left on every replica that may lead; null until all were heard of"
    )
    followers: list[FollowerView] = fact("its view of each follower")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log of a replica on its disk."""

    directory: str = fact("where it is")
    size_bytes: int = fact("bytes of its segments")
    segments: int = fact("number of segments")
    recovery_point: int = fact("everything below it is synced")
    log_start_saved: int = fact("where it would start after a crash")
    failure: str | None = fact("why it takes no more records")
    producers: int = fact("producers that it remembers")
    open_transaction_offset: int | None = fact("the first record of an undecided transaction")
    open_transaction_producer: int | None = fact(
        "the id of its producer; null if only its marker is not replicated yet"
    )
    newest_timestamp_ms: int | None = fact("the largest timestamp of the active segment")
    cleanup_policy: list[str] = fact("`cleanup.policy`")
    retention_ms: int = fact("`retention.ms`; -1 keeps for ever")
    retention_bytes: int = fact("`retention.bytes`; -1 has no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What the next round of retention would do; `strandline explain` tells it by segment."""

    segments: int = fact("segments that it would remove")
    size_bytes: int = fact("bytes of them")
    changes_wall_ms: int | None = fact("when time alone lets the oldest that stays go")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How far a compacted log is with it; `strandline explain` tells more."""

    running_since_wall_ms: int | None = fact("when the round under way began")
    bytes_to_read: int | None = fact("how much it reads")
    last_began_wall_ms: int | None = fact("when the last round began")
    last_ended_wall_ms: int | None = fact("when it ended")
    last_problem: str | None = fact("what went wrong in it")
    uncleanable: str | None = fact("why the log is left alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A partition that is hosted here."""

    topic: str = fact("the topic")
    partition: int = fact("the partition's number")
    topic_id: str = fact("the topic's id")
    role: str = fact("`leader`, `follower`, or `none` while there is no leader to follow")
    leader: int | None = fact("who leads, as far as this broker knows")
    leader_epoch: int = fact("the leader epoch that this replica is in")
    log_start_offset: int = fact("the first offset that can be read")
    high_watermark: int = fact("everything below it is committed")
    last_stable_offset: int = fact("up to where `read_committed` consumers read")
    log_end_offset: int = fact("the offset of the next record")
    epochs: list[EpochStart] = fact("the leader epoch cache")
    waiting_produces: int = fact("produces with acks=all that wait for the high watermark")
    waiting_fetches: int = fact("fetches that wait for more to read")
    leading: LeaderView | None = fact("of the leader only")
    retention: Retention | None = fact("if a single partition was asked for")
    compaction: Compaction | None = fact("of compacted topics")
    log: Log = fact("its log on disk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as the metadata has it, hosted here or not."""

    topic: str = fact("the topic")
    partition: int = fact("the partition's number")
    replicas: list[int] = fact("where it is to be, the preferred leader first")
    in_sync: list[int] = fact("the committed in-sync set")
    leader: int | None = fact("id of the leader; null if there is none")
    leader_epoch: int = fact("counts the leaders")
    partition_epoch: int = fact("counts the changes of its state")
    eligible: list[int] = fact("eligible leader replicas (KIP-966)")
    last_known_eligible: list[int] = fact("were complete before they restarted uncleanly")
    adding: list[int] = fact("replicas that a reassignment adds")
    removing: list[int] = fact("replicas that a reassignment removes")
    recovering: bool = fact("whether it was led after an unclean election, and still is")
    unavailable: str | None = fact("why the replica that should be here cannot be used")
    delayed: bool = fact("whether that ends as soon as there is room; else the disk has failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of an in-sync set, a leader, the controller or a broker's registration."""

    wall_ms: int = fact("when this broker heard of it")
    kind: str = fact("`in_sync`, `leader`, `controller` or `broker`")
    topic: str | None = fact("the topic, of the first two kinds")
    partition: int | None = fact("the partition")
    epoch: int | None = fact("the leader epoch, or that of the controller")
    before: list[int] = fact("the in-sync set, leader, controller or broker before")
    after: list[int] = fact("and after")
    reason: str = fact("why")
    unclean: bool = fact("whether it was an unclean election")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A request that waits in this broker."""

    api: str = fact("what was asked")
    client_id: str = fact("who asked")
    client_host: str = fact("from where")
    partitions: list[str] = fact("what it waits for, at most ten")
    waits_for: str = fact("what would end the wait")
    deadline_wait_ms: int = fact("how much longer it waits at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPosition:
    """Where a group is in one partition."""

    topic: str = fact("the topic")
    partition: int = fact("the partition")
    offset: int = fact("the committed offset")
    log_end_offset: int | None = fact("the high watermark, if this broker hosts the partition")
    lag: int | None = fact("records behind it")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group."""

    member_id: str = fact("its id")
    instance_id: str | None = fact("of a static member")
    client_id: str = fact("its client's name")
    client_host: str = fact("where it is")
    session_timeout_ms: int = fact("silence after which it counts as gone")
    partitions: list[str] = fact("what it is assigned")
    protocol: str = fact("the group protocol that it speaks: `classic` or `consumer`")
    epoch: int | None = fact("how far it is, in a group of the consumer protocol")
    target_partitions: list[str] = fact("what it is to own, in a group of the consumer protocol")
    revoking_partitions: list[str] = fact("what it still has to give up")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group that this broker coordinates."""

    group: str = fact("its id")
    type: str = fact("its group protocol: `classic` or `consumer`")
    state: str = fact("Kafka's name of its state")
    state_since_wall_ms: int = fact("since when")
    generation: int = fact("counts the completed rebalances; of a consumer group its epoch")
    assignment_epoch: int | None = fact("the epoch that the target assignment is for")
    protocol: str | None = fact("how its partitions are assigned")
    rebalance_reason: str = fact("why the last rebalance began")
    coordinator_partition: int = fact("the partition of `__consumer_offsets` in which it lives")
    members: list[GroupMember] = fact("who is in it")
    positions: list[CommittedPosition] = fact("committed offsets with their lag")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A transaction that this broker coordinates and that has not ended everywhere."""

    transactional_id: str = fact("its producer's `transactional.id`")
    state: str = fact("`Ongoing`, `PrepareCommit` or `PrepareAbort`")
    since_wall_ms: int = fact("since when it is open")
    timeout_ms: int = fact("after so long the coordinator aborts it")
    producer_id: int = fact("the producer's id")
    producer_epoch: int = fact("and its epoch")
    coordinator_partition: int = fact("the partition of `__transaction_state` in which it lives")
    partitions: list[str] = fact("`TOPIC/PARTITION` of all that is part of it")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """A kind of refusal about one thing."""

    error: str = fact("Kafka's name of the error")
    api: str = fact("what was asked")
    about: str = fact("the partition, topic or group")
    count: int = fact("how often since the broker started")
    first_wall_ms: int = fact("for the first time")
    last_wall_ms: int = fact("for the last time")
    client_id: str = fact("who was refused last")
    client_host: str = fact("from where")
    message: str | None = fact("the sentence that went with it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One broker at one moment."""

    version: int = fact("of this document: 1")
    software: str = fact("the version of Strandline")
    kernels_missing: list[str] = fact("compiled kernels in whose place it runs slower Python code")
    broker: int = fact("who speaks")
    broker_epoch: int = fact("its newest registration; -1 before the first")
    registered: bool = fact("whether the metadata show this very process")
    leaving: bool = fact("whether it is about to stop")
    wall_ms: int = fact("when")
    cluster_id: str | None = fact("of the cluster")
    metadata_version: int = fact("the last transaction of the metadata store that it knows")
    controller: Controller = fact("who decides")
    brokers: list[LiveBroker] = fact("who is registered")
    totals: Totals = fact("sums over the whole broker")
    log_directories: list[LogDirectory] = fact("its disks")
    limits: Limits = fact("what bounds it")
    handles: Handles | None = fact("open files and sockets")
    event_loop: EventLoop | None = fact("how long its rounds take; null of a loop that others made")
    requests: list[Requests] = fact("what was answered")
    errors: list[ErrorCount] = fact("what was refused")
    authentications: list[AuthenticationCount] = fact(
        "who came in and who did not, of SASL and TLS"
    )
    certificates: list[Certificate] = fact("of listeners with TLS")
    traffic: list[TopicTraffic] = fact("bytes and records by topic")
    partitions: list[Partition] = fact("the metadata of the topics asked for")
    replicas: list[Replica] = fact("what is hosted here of them")
    changes: list[Change] = fact("the newest changes about them, the oldest first")
    parked: list[Parked] = fact("requests that wait, at most 1000")
    groups: list[Group] = fact("groups that are coordinated here")
    transactions: list[OpenTransaction] = fact("open transactions that are coordinated here")
    refusals: list[RefusalCount] = fact("what was refused, the most recent last")
