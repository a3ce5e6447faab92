"""The parts of the status document that tell of a broker, and of its process, as a whole.

See `document`, of which these are parts.
"""
# ruff: noqa: RUF009 - `fact` makes the field itself, and no default

from __future__ import annotations

from dataclasses import dataclass

from strandline.node.status.facts import fact


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveBroker:
    """One broker that is registered."""

    broker: int = fact("its id")
    broker_epoch: int = fact("names this registration; each later one has a larger epoch")
    session: str = fact("the session of the metadata store that keeps it registered")
    endpoints: list[str] = fact("its listeners")
    rack: str | None = fact("its rack")
    shutting_down: bool = fact("whether it has announced that it is about to stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """Who decides for the cluster."""

    broker: int | None = fact("id of the controller; null while there is none")
    epoch: int | None = fact("counts the terms of controllers")
    since_wall_ms: int | None = fact("when this broker heard of it; null if before its start")
    here: bool = fact("whether it is this broker, and acts as such")
    changes: int = fact("metadata writes of this broker whose outcome is not known yet")


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over this broker, whatever part of it was asked for."""

    partitions: int = fact("partitions hosted here")
    leading: int = fact("of them led here")
    under_replicated: int = fact("led here with fewer in-sync replicas than replicas")
    under_min_in_sync: int = fact("led here with fewer in-sync replicas than acks=all needs")
    without_leader: int = fact("partitions of the whole cluster without a leader")
    offline_replicas: int = fact("partitions that should be here, whose disk fails")
    delayed_replicas: int = fact(
        "partitions that should be here, and can be used as soon as there is room; those whose log "
        "broke off count as offline, too"
    )
    size_bytes: int = fact("bytes of all logs here")
    records_behind: int = fact("records that followed logs here are behind, as last heard")
    connections_parked: int = fact("requests that wait in this broker")
    in_sync_shrinks: int = fact("times an in-sync set shrank that this broker led")
    in_sync_expands: int = fact("times such a set grew")
    leader_elections: int = fact("elections that this broker heard of since it started")
    unclean_leader_elections: int = fact("of them unclean")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationCount:
    """Attempts of clients, and of other brokers, to come in by one listener."""

    listener: str = fact("its name")
    mechanism: str = fact("of SASL; `TLS` for handshakes; empty if none was named")
    failed: bool = fact("whether they came to nothing")
    count: int = fact("how many since the broker started")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMove:
    """A log that is being copied into this directory from another one of the broker."""

    topic: str = fact("the topic")
    partition: int = fact("the partition's number")
    lag: int = fact("records that the copy lacks")
    size_bytes: int = fact("what is there by now")
    since_wall_ms: int = fact("when it was asked for, or gone on with after a start")
    problem: str | None = fact("why it does not go on")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirectory:
    """An entry of `log.dirs`."""

    path: str = fact("where it is")
    offline_reason: str | None = fact("why it is not used any more")
    logs: int = fact("partitions in it")
    moves: list[LogMove] = fact("logs that move here from another directory")
    total_bytes: int = fact("size of its file system")
    free_bytes: int = fact("room that is left")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Answers of one API."""

    api: str = fact("the API; FETCH_FOLLOWER are fetches of brokers that took the fast path")
    count: int = fact("answers since the start")
    total_ms: int = fact("sum of their times inside the broker; not measured of FETCH_FOLLOWER")
    buckets: list[int] = fact(
        "how many took at most 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000 ms, "
        "and longer"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTraffic:
    """Bytes and records of the partitions of one topic on this broker since it took them up."""

    topic: str = fact("the topic")
    records_in: int = fact("records that clients wrote")
    bytes_in: int = fact("bytes of their batches")
    bytes_out: int = fact("bytes sent to consumers")
    replication_bytes_in: int = fact("bytes fetched from leaders")
    replication_bytes_out: int = fact("bytes sent to followers")


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCount:
    """Refusals of one API with one code."""

    api: str = fact("what was asked")
    error: str = fact("Kafka's name of the error")
    count: int = fact("how often since the broker started")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Settings that bound what this broker does."""

    in_flight_per_connection: int = fact("requests of one connection in work")
    request_bytes: int = fact("`socket.request.max.bytes`")
    fetch_bytes: int = fact("`fetch.max.bytes`")
    fetch_sessions: int = fact("`max.incremental.fetch.session.cache.slots`")
    replica_lag_ms: int = fact("`replica.lag.time.max.ms`")
    session_timeout_ms: int = fact("`zookeeper.session.timeout.ms`")
    history: int = fact("changes that are remembered")
    refusals: int = fact("kinds of refusals that are remembered")


@dataclass(frozen=True, slots=True, kw_only=True)
class Handles:
    """Open files and sockets of the process, which all its brokers share."""

    limit: int = fact("what the operating system allows it (`ulimit -n`)")
    files: int = fact("open log and index files")
    files_max: int = fact("so many may be open now; the longest idle are closed first")
    sockets: int = fact("connections and links to other brokers")
    sockets_max: int = fact("so many may be open; connections beyond that are refused")
    opened: int = fact("how often a file was opened")
    refused_files: int = fact("how often there was no handle for a file, and another was closed")
    refused_connections: int = fact("connections that were refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoop:
    """The event loop of the process, which all its brokers share. A round is what it does between
    two looks at its sockets; a long one is a stall for every client."""

    rounds: int = fact("how many there were")
    busy_ms: int = fact("sum of their times; the rest of the time it waited for something to do")
    buckets: list[int] = fact(
        "rounds that took at most 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, "
        "30000 ms, and longer"
    )
    longest_ms: int = fact("the longest round, rounded up")
    longest_wall_ms: int | None = fact("when that one ended; null before the first")


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What a listener with TLS shows to clients."""

    listener: str = fact("its name")
    subject: str = fact("whose certificate it is")
    kept_in: str = fact("the file that it is in, or the setting that has its text")
    begins_wall_ms: int = fact("from when on it counts; clients refuse it before")
    expires_wall_ms: int = fact("when it expires; then clients refuse it")
