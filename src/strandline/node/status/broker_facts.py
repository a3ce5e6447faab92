"""What the status document says of the broker as a whole: cluster, sums, requests, waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from strandline.cluster.image import ClusterImage
from strandline.node.authentication.authentication import Attempts
from strandline.node.controller_loop import ControllerLoop
from strandline.node.hosted_replica import Traffic
from strandline.node.log_moves import LogMoves
from strandline.node.metadata import Metadata
from strandline.node.purgatory import Purgatory, Tells
from strandline.node.replicas import Replicas
from strandline.node.settings import Settings
from strandline.node.status import broker_document, document
from strandline.node.status.history import EVENTS_MAX, Event, History, Kind
from strandline.node.status.replica_facts import lag_of
from strandline.node.telemetry import Telemetry
from strandline.node.why.refusals import ENTRIES_MAX, Refusals
from strandline.types import Instant, TopicPartition

CHANGES_MAX: Final = 200
PARKED_MAX: Final = 1000

Chosen = Callable[[TopicPartition], bool]


def controller(
    metadata: Metadata, loop: ControllerLoop, history: History
) -> broker_document.Controller:
    """Who decides, as far as this broker knows."""
    image = metadata.image
    last = history.last(Kind.CONTROLLER)
    return broker_document.Controller(
        broker=image.controller,
        epoch=None if image.controller_epoch is None else image.controller_epoch.value,
        since_wall_ms=None if last is None else last.wall_ms,
        here=loop.is_controller,
        changes=metadata.undecided,
    )


def live_brokers(image: ClusterImage) -> list[broker_document.LiveBroker]:
    """Who is registered."""
    return [
        broker_document.LiveBroker(
            broker=broker_id,
            broker_epoch=broker.epoch,
            session=f"{broker.session:#x}",
            endpoints=[str(each) for each in broker.endpoints],
            rack=broker.rack,
            shutting_down=broker.is_shutting_down,
        )
        for broker_id, broker in sorted(image.brokers.items())
    ]


def totals(
    image: ClusterImage, replicas: Replicas, history: History, purgatory: Purgatory
) -> broker_document.Totals:
    """Sums over all partitions."""
    leading = under_replicated = under_min = behind = size_bytes = 0
    for replica in replicas:
        size_bytes += replica.log.size_bytes
        leader = replica.leader
        if leader is None:
            continue
        leading += 1
        under_replicated += len(leader.in_sync.members) < len(leader.replicas)
        under_min += not leader.has_min_in_sync
        end = replica.log.log_end_offset
        behind += sum(lag_of(each, end) or 0 for each in leader.progress.values())
    states = [state for topic in image.topics.values() for state in topic.partitions.values()]
    return broker_document.Totals(
        partitions=len(replicas),
        leading=leading,
        under_replicated=under_replicated,
        under_min_in_sync=under_min,
        without_leader=sum(state.leader not in image.brokers for state in states),
        offline_replicas=len(replicas.offline),
        delayed_replicas=len(replicas.delayed),
        size_bytes=size_bytes,
        records_behind=behind,
        connections_parked=len(purgatory),
        in_sync_shrinks=history.shrinks,
        in_sync_expands=history.expands,
        leader_elections=history.elections,
        unclean_leader_elections=history.unclean_elections,
    )


def directories(replicas: Replicas, moves: LogMoves) -> list[broker_document.LogDirectory]:
    """The log directories."""
    files = replicas.logs.files
    return [
        broker_document.LogDirectory(
            path=directory.path,
            offline_reason=directory.offline_reason,
            logs=len(directory.logs),
            moves=[
                broker_document.LogMove(
                    topic=move.topic_partition.topic,
                    partition=move.topic_partition.partition,
                    lag=max(0, move.copy.lag),
                    size_bytes=move.log.size_bytes,
                    since_wall_ms=move.began_ms,
                    problem=move.problem,
                )
                for at in sorted(directory.futures)
                if (move := moves.find(at)) is not None and move.directory is directory
            ],
            total_bytes=files.total_bytes(directory.path),
            free_bytes=files.free_bytes(directory.path),
        )
        for directory in replicas.logs.directories
    ]


def limits(settings: Settings) -> broker_document.Limits:
    """What bounds this broker."""
    broker = settings.broker
    return broker_document.Limits(
        in_flight_per_connection=settings.in_flight_max,
        request_bytes=broker.socket_request_max_bytes,
        fetch_bytes=broker.fetch_max_bytes,
        fetch_sessions=broker.max_incremental_fetch_session_cache_slots,
        replica_lag_ms=broker.replica_lag_time_max_ms,
        session_timeout_ms=broker.zookeeper_session_timeout_ms,
        history=EVENTS_MAX,
        refusals=ENTRIES_MAX,
    )


def requests(telemetry: Telemetry) -> list[broker_document.Requests]:
    """What was answered."""
    return [
        broker_document.Requests(
            api=api, count=meter.count, total_ms=meter.total_ms, buckets=list(meter.buckets)
        )
        for api, meter in sorted(telemetry.settled_meters().apis.items())
    ]


def errors(refused: Refusals) -> list[broker_document.ErrorCount]:
    """What was refused, by API and code."""
    return [
        broker_document.ErrorCount(api=api, error=code.name, count=count)
        for (api, code), count in sorted(refused.counts.items())
    ]


def authentications(attempts: Mapping[Attempts, int]) -> list[broker_document.AuthenticationCount]:
    """Attempts to come in, by listener and mechanism."""
    return [
        broker_document.AuthenticationCount(
            listener=each.listener, mechanism=each.mechanism, failed=each.failed, count=count
        )
        for each, count in sorted(attempts.items())
    ]


def traffic(replicas: Replicas) -> list[broker_document.TopicTraffic]:
    """Bytes and records by topic."""
    sums: dict[str, Traffic] = defaultdict(Traffic)
    for replica in replicas:
        found, total = replica.traffic, sums[replica.topic_partition.topic]
        total.records_in += found.records_in
        total.bytes_in += found.bytes_in
        total.bytes_out += found.bytes_out
        total.replication_in += found.replication_in
        total.replication_out += found.replication_out
    return [
        broker_document.TopicTraffic(
            topic=topic,
            records_in=total.records_in,
            bytes_in=total.bytes_in,
            bytes_out=total.bytes_out,
            replication_bytes_in=total.replication_in,
            replication_bytes_out=total.replication_out,
        )
        for topic, total in sorted(sums.items())
    ]


def changes(history: History, chosen: Chosen) -> list[document.Change]:
    """The newest changes of what was asked for; those of brokers and controller always count."""
    found = [event for event in history if event.partition is None or chosen(event.partition)]
    return [change_facts(event) for event in found[-CHANGES_MAX:]]


def change_facts(event: Event) -> document.Change:
    """One change."""
    at = event.partition
    return document.Change(
        wall_ms=event.wall_ms,
        kind=event.kind.value,
        topic=None if at is None else at.topic,
        partition=None if at is None else at.partition,
        epoch=None if event.leader_epoch < 0 else event.leader_epoch,
        before=list(event.before),
        after=list(event.after),
        reason=event.reason,
        unclean=event.is_unclean,
    )


def parked(purgatory: Purgatory, now: Instant) -> list[document.Parked]:
    """The requests that wait, those that came first."""
    found: list[document.Parked] = []
    for entry in islice(purgatory, PARKED_MAX):
        if not isinstance(entry.operation, Tells):
            continue
        wait = entry.operation.wait()
        found.append(
            document.Parked(
                api=wait.request.api_key.name,
                client_id=wait.request.client_id or "",
                client_host=wait.request.connection.client_host,
                partitions=list(wait.partitions),
                waits_for=wait.sentence,
                deadline_wait_ms=max(0, entry.timer.at_ms - now.monotonic_ms),
            )
        )
    return found


def refusals(refused: Refusals, chosen: Chosen) -> list[document.RefusalCount]:
    """What was refused about what was asked for, and about anything that is no partition."""
    found: list[document.RefusalCount] = []
    for each in refused:
        at = each.about.topic_partition
        if at is not None and not chosen(at):
            continue
        found.append(
            document.RefusalCount(
                error=each.code.name,
                api=each.api,
                about=str(each.about),
                count=each.count,
                first_wall_ms=each.first.wall_ms,
                last_wall_ms=each.last.wall_ms,
                client_id=each.client_id,
                client_host=each.client_host,
                message=each.message,
            )
        )
    return found
