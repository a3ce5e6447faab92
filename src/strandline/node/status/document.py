"""The shape of the status document: its parts, their fields, and what each field means.

These classes are the one description of it: documents are made of them, and docs/status.md is
written from them. Names are Kafka's where Kafka has one. Times end in `_ms`: `wall` times are
milliseconds since 1970 in UTC, `ago` and `wait` are durations. A field is null where a thing is not
known or does not apply. New fields may be added to a version; a field that goes, or means something
else, makes another version.
"""
# ruff: noqa: RUF009 - `told` makes the field itself, and no default

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any, Final, get_args, get_origin, get_type_hints

VERSION: Final = 1


def told(meaning: str) -> Any:
    """A field of the document, with what it means."""
    return field(metadata={"meaning": meaning})


def as_json(value: Any) -> Any:
    """A document as plain objects. Thousands of parts go through here for one question, so what is
    to be done with each field is found out once per class."""
    return {
        name: getattr(value, name) if convert is None else convert(getattr(value, name))
        for name, convert in _plan(value.__class__)
    }


@cache
def _plan(declared: Any) -> tuple[tuple[str, Callable[[Any], Any] | None], ...]:
    """How each field becomes plain; None for one that is."""
    hints = get_type_hints(declared)
    return tuple((each.name, _converter(hints[each.name])) for each in fields(declared))


def _converter(hint: Any) -> Callable[[Any], Any] | None:
    inner = get_args(hint)
    if is_dataclass(hint):
        return as_json
    if not any(map(is_dataclass, inner)):
        return None
    if get_origin(hint) is list:
        return lambda parts: [as_json(part) for part in parts]
    return lambda part: None if part is None else as_json(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """One broker that is registered."""

    broker: int = told("its id")
    broker_epoch: int = told("names this registration; each later one has a larger epoch")
    session: str = told("the session of the metadata store that keeps it registered")
    endpoints: list[str] = told("its listeners")
    rack: str | None = told("its rack")
    shutting_down: bool = told("whether it has announced that it is about to stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Who decides for the cluster."""

    broker: int | None = told("id of the controller; null while there is none")
    epoch: int | None = told("counts the terms of controllers")
    since_wall_ms: int | None = told("when this broker heard of it; null if before its start")
    here: bool = told("whether it is this broker, and acts as such")
    changes: int = told("metadata writes of this broker whose outcome is not known yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over this broker, whatever part of it was asked for."""

    partitions: int = told("partitions hosted here")
    leading: int = told("of them led here")
    under_replicated: int = told("led here with fewer in-sync replicas than replicas")
    under_min_in_sync: int = told("led here with fewer in-sync replicas than acks=all needs")
    without_leader: int = told("partitions of the whole cluster without a leader")
    offline_replicas: int = told("partitions that should be here, whose disk fails")
    size_bytes: int = told("bytes of all logs here")
    records_behind: int = told("records that followed logs here are behind, as last heard")
    connections_parked: int = told("requests that wait in this broker")
    in_sync_shrinks: int = told("times an in-sync set shrank that this broker led")
    in_sync_expands: int = told("times such a set grew")
    leader_elections: int = told("elections that this broker heard of since it started")
    unclean_leader_elections: int = told("of them unclean")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochStart:
    """An entry of the leader epoch cache."""

    epoch: int = told("a leader epoch")
    start_offset: int = told("the offset of its first record here")


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerView:
    """What the leader knows of one follower. Only followers' fetches tell it."""

    broker: int = told("the follower")
    alive: bool = told("whether it is registered")
    in_sync: bool = told("whether it is in the in-sync set in force")
    counted: bool = told("whether the high watermark waits for it")
    log_start_offset: int | None = told("where its log starts; null before its first fetch")
    log_end_offset: int | None = told("where its log ends; null before its first fetch")
    lag: int | None = told("records that it lacks")
    caught_up_ago_ms: int | None = told("since when it is not known to have had everything")
    fetched_ago_ms: int | None = told("since its last fetch in this leader epoch")
    broker_epoch: int | None = told("the registration under which it fetches")


@dataclass(frozen=True, slots=True, kw_only=True)
class Leading:
    """What a leader knows beside its log."""

    in_sync: list[int] = told("the in-sync set in force")
    change: str | None = told("a change of it under way: `expanding`, `shrinking`, `withdrawing`")
    proposed: list[int] = told("the in-sync set that this leader wants")
    maximal: list[int] = told("every replica for which the high watermark waits")
    min_in_sync: int = told("in-sync replicas that acks=all needs")
    start_offset: int = told("where its log ended when this leader epoch began")
    end_known: bool = told("whether it knows all that is committed (KIP-207)")
    low_watermark: int | None = told(
        "the first offset that is left on every replica that may lead; null until all were heard of"
    )
    followers: list[FollowerView] = told("its view of each follower")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The log of a replica on its disk."""

    directory: str = told("where it is")
    size_bytes: int = told("bytes of its segments")
    segments: int = told("number of segments")
    recovery_point: int = told("everything below it is synced")
    log_start_saved: int = told("where it would start after a crash")
    failure: str | None = told("why it takes no more records")
    producers: int = told("producers that it remembers")
    open_transaction_offset: int | None = told("the first record of an undecided transaction")
    newest_timestamp_ms: int | None = told("the largest timestamp of the active segment")
    cleanup_policy: list[str] = told("`cleanup.policy`")
    retention_ms: int = told("`retention.ms`; -1 keeps for ever")
    retention_bytes: int = told("`retention.bytes`; -1 has no limit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What the next round of retention would do; `strandline explain` tells it by segment."""

    segments: int = told("segments that it would remove")
    size_bytes: int = told("bytes of them")
    changes_wall_ms: int | None = told("when time alone lets the oldest that stays go")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """How far a compacted log is with it; `strandline explain` tells more."""

    running_since_wall_ms: int | None = told("when the round under way began")
    bytes_to_read: int | None = told("how much it reads")
    last_began_wall_ms: int | None = told("when the last round began")
    last_ended_wall_ms: int | None = told("when it ended")
    last_problem: str | None = told("what went wrong in it")
    uncleanable: str | None = told("why the log is left alone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """A partition that is hosted here."""

    topic: str = told("the topic")
    partition: int = told("the partition's number")
    topic_id: str = told("the topic's id")
    role: str = told("`leader`, `follower`, or `none` while there is no leader to follow")
    leader: int | None = told("who leads, as far as this broker knows")
    leader_epoch: int = told("the leader epoch that this replica is in")
    log_start_offset: int = told("the first offset that can be read")
    high_watermark: int = told("everything below it is committed")
    last_stable_offset: int = told("up to where `read_committed` consumers read")
    log_end_offset: int = told("the offset of the next record")
    epochs: list[EpochStart] = told("the leader epoch cache")
    waiting_produces: int = told("produces with acks=all that wait for the high watermark")
    waiting_fetches: int = told("fetches that wait for more to read")
    leading: Leading | None = told("of the leader only")
    retention: Retention | None = told("if a single partition was asked for")
    compaction: Compaction | None = told("of compacted topics")
    log: Log = told("its log on disk")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition as the metadata has it, hosted here or not."""

    topic: str = told("the topic")
    partition: int = told("the partition's number")
    replicas: list[int] = told("where it is to be, the preferred leader first")
    in_sync: list[int] = told("the committed in-sync set")
    leader: int | None = told("id of the leader; null if there is none")
    leader_epoch: int = told("counts the leaders")
    partition_epoch: int = told("counts the changes of its state")
    eligible: list[int] = told("eligible leader replicas (KIP-966)")
    last_known_eligible: list[int] = told("were complete before they restarted uncleanly")
    adding: list[int] = told("replicas that a reassignment adds")
    removing: list[int] = told("replicas that a reassignment removes")
    recovering: bool = told("whether it was led after an unclean election, and still is")
    unavailable: str | None = told("why the replica that should be here cannot be used")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of an in-sync set, a leader, the controller or a broker's registration."""

    wall_ms: int = told("when this broker heard of it")
    kind: str = told("`in_sync`, `leader`, `controller` or `broker`")
    topic: str | None = told("the topic, of the first two kinds")
    partition: int | None = told("the partition")
    epoch: int | None = told("the leader epoch, or that of the controller")
    before: list[int] = told("the in-sync set, leader, controller or broker before")
    after: list[int] = told("and after")
    reason: str = told("why")
    unclean: bool = told("whether it was an unclean election")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A request that waits in this broker."""

    api: str = told("what was asked")
    client_id: str = told("who asked")
    client_host: str = told("from where")
    partitions: list[str] = told("what it waits for, at most ten")
    waits_for: str = told("what would end the wait")
    deadline_wait_ms: int = told("how much longer it waits at most")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedPosition:
    """Where a group is in one partition."""

    topic: str = told("the topic")
    partition: int = told("the partition")
    offset: int = told("the committed offset")
    log_end_offset: int | None = told("the high watermark, if this broker hosts the partition")
    lag: int | None = told("records behind it")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a group."""

    member_id: str = told("its id")
    instance_id: str | None = told("of a static member")
    client_id: str = told("its client's name")
    client_host: str = told("where it is")
    session_timeout_ms: int = told("silence after which it counts as gone")
    partitions: list[str] = told("what it is assigned")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group that this broker coordinates."""

    group: str = told("its id")
    state: str = told("Kafka's name of its state")
    state_since_wall_ms: int = told("since when")
    generation: int = told("counts the completed rebalances")
    protocol: str | None = told("how its partitions are assigned")
    rebalance_reason: str = told("why the last rebalance began")
    coordinator_partition: int = told("the partition of `__consumer_offsets` in which it lives")
    members: list[GroupMember] = told("who is in it")
    positions: list[CommittedPosition] = told("committed offsets with their lag")


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalCount:
    """A kind of refusal about one thing."""

    error: str = told("Kafka's name of the error")
    api: str = told("what was asked")
    about: str = told("the partition, topic or group")
    count: int = told("how often since the broker started")
    first_wall_ms: int = told("for the first time")
    last_wall_ms: int = told("for the last time")
    client_id: str = told("who was refused last")
    client_host: str = told("from where")
    message: str | None = told("the sentence that went with it")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """An entry of `log.dirs`."""

    path: str = told("where it is")
    offline_reason: str | None = told("why it is not used any more")
    logs: int = told("partitions in it")
    total_bytes: int = told("size of its file system")
    free_bytes: int = told("room that is left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Answers of one API."""

    api: str = told("the API; FETCH_FOLLOWER are fetches of brokers that took the fast path")
    count: int = told("answers since the start")
    total_ms: int = told("sum of their times inside the broker; not measured of FETCH_FOLLOWER")
    buckets: list[int] = told(
        "how many took at most 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000 ms, "
        "and longer"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """Bytes and records of the partitions of one topic on this broker since it took them up."""

    topic: str = told("the topic")
    records_in: int = told("records that clients wrote")
    bytes_in: int = told("bytes of their batches")
    bytes_out: int = told("bytes sent to consumers")
    replication_bytes_in: int = told("bytes fetched from leaders")
    replication_bytes_out: int = told("bytes sent to followers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCount:
    """Refusals of one API with one code."""

    api: str = told("what was asked")
    error: str = told("Kafka's name of the error")
    count: int = told("how often since the broker started")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Settings that bound what this broker does."""

    in_flight_per_connection: int = told("requests of one connection in work")
    request_bytes: int = told("`socket.request.max.bytes`")
    fetch_bytes: int = told("`fetch.max.bytes`")
    fetch_sessions: int = told("`max.incremental.fetch.session.cache.slots`")
    replica_lag_ms: int = told("`replica.lag.time.max.ms`")
    session_timeout_ms: int = told("`zookeeper.session.timeout.ms`")
    history: int = told("changes that are remembered")
    refusals: int = told("kinds of refusals that are remembered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles:
    """Open files and sockets of the process, which all its brokers share."""

    limit: int = told("what the operating system allows it (`ulimit -n`)")
    files: int = told("open log and index files")
    files_max: int = told("so many may be open now; the longest idle are closed first")
    sockets: int = told("connections and links to other brokers")
    sockets_max: int = told("so many may be open; connections beyond that are refused")
    opened: int = told("how often a file was opened")
    refused_files: int = told("how often there was no handle for a file, and another was closed")
    refused_connections: int = told("connections that were refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One broker at one moment."""

    version: int = told("of this document: 1")
    software: str = told("the version of Strandline")
    kernels_missing: list[str] = told("compiled kernels in whose place it runs slower Python code")
    broker: int = told("who speaks")
    broker_epoch: int = told("its newest registration; -1 before the first")
    registered: bool = told("whether the metadata show this very process")
    leaving: bool = told("whether it is about to stop")
    wall_ms: int = told("when")
    cluster_id: str | None = told("of the cluster")
    metadata_version: int = told("the last transaction of the metadata store that it knows")
    controller: Controller = told("who decides")
    brokers: list[LiveBroker] = told("who is registered")
    totals: Totals = told("sums over the whole broker")
    log_directories: list[LogDirectory] = told("its disks")
    limits: Limits = told("what bounds it")
    handles: Handles | None = told("open files and sockets")
    requests: list[Requests] = told("what was answered")
    errors: list[ErrorCount] = told("what was refused")
    traffic: list[TopicTraffic] = told("bytes and records by topic")
    partitions: list[Partition] = told("the metadata of the topics asked for")
    replicas: list[Replica] = told("what is hosted here of them")
    changes: list[Change] = told("the newest changes about them, the oldest first")
    parked: list[Parked] = told("requests that wait, at most 1000")
    groups: list[Group] = told("groups that are coordinated here")
    refusals: list[RefusalCount] = told("what was refused, the most recent last")
