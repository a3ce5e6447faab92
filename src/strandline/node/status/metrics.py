"""The status document as metrics for Prometheus: pure text from pure values.

Names follow Prometheus; meanings are those of Kafka's JMX metrics where there is one, so that
alerts and boards need another name and no other thought. What Kafka gives as a rate is a counter
here: Prometheus makes rates itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from strandline.node.status.meters import BUCKETS_MS

Json = Mapping[str, Any]
Sample = tuple[Mapping[str, object], float]
"""Labels and a value."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: how it is called, what it means, and where the document has it."""

    name: str
    kind: str
    meaning: str
    kafka: str
    samples: Callable[[Json], Iterable[Sample]]


def exposition(document: Json) -> str:
    """The document of one broker in the text format of Prometheus, version 0.0.4."""
    return "".join(f"{line}\n" for metric in METRICS for line in _lines(metric, document))


def merged(documents: Iterable[Json]) -> str:
    """The documents of several brokers in one text: each metric once, then all of its samples."""
    known = list(documents)
    return "".join(
        f"{line}\n"
        for metric in METRICS
        for at, document in enumerate(known)
        for line in _lines(metric, document, with_head=at == 0)
    )


def _lines(metric: Metric, document: Json, *, with_head: bool = True) -> Iterator[str]:
    if with_head:
        yield f"# HELP {metric.name} {metric.meaning}"
        yield f"# TYPE {metric.name} {metric.kind}"
    for labels, value in metric.samples(document):
        suffix = str(labels.get(SUFFIX, ""))
        shown = {"broker": document["broker"]}
        shown |= {name: text for name, text in labels.items() if name != SUFFIX}
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in shown.items())
        yield f"{metric.name}{suffix}{{{inside}}} {_number(value)}"


SUFFIX: Final = "\0"
"""A label that is none: what is put behind the metric's name (histograms have three)."""


def _escaped(text: object) -> str:
    return str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _total(name: str) -> Callable[[Json], Iterable[Sample]]:
    return lambda document: [({}, document["totals"][name])]


def _active_controller(document: Json) -> Iterable[Sample]:
    return [({}, float(document["controller"]["here"]))]


def _registered(document: Json) -> Iterable[Sample]:
    return [({}, float(document["registered"]))]


def _handles(name: str) -> Callable[[Json], Iterable[Sample]]:
    return lambda document: [({}, document["handles"][name])] if document["handles"] else []


def _delayed_replicas(document: Json) -> Iterable[Sample]:
    # Brokers before 0.2 do not say it.
    found = document["totals"].get("delayed_replicas")
    return [] if found is None else [({}, found)]


def _offline_directories(document: Json) -> Iterable[Sample]:
    offline = [each for each in document["log_directories"] if each["offline_reason"] is not None]
    return [({}, len(offline))]


def _low_watermarks(document: Json) -> Iterable[Sample]:
    for each in document["replicas"]:
        leading = each["leading"]
        if leading is not None and leading["low_watermark"] is not None:
            yield _at(each), leading["low_watermark"]


def _of_log(name: str) -> Callable[[Json], Iterable[Sample]]:
    return lambda document: [(_at(each), each[name]) for each in document["replicas"]]


def _log_sizes(document: Json) -> Iterable[Sample]:
    return [(_at(each), each["log"]["size_bytes"]) for each in document["replicas"]]


def _follower_lag(document: Json) -> Iterable[Sample]:
    for each in document["replicas"]:
        for follower in (each["leading"] or {"followers": ()})["followers"]:
            if follower["lag"] is not None:
                yield {**_at(each), "follower": follower["broker"]}, follower["lag"]


def _group_lag(document: Json) -> Iterable[Sample]:
    for group in document["groups"]:
        for position in group["positions"]:
            if position["lag"] is not None:
                yield {"group": group["group"], **_at(position)}, position["lag"]


def _traffic(name: str) -> Callable[[Json], Iterable[Sample]]:
    return lambda document: [({"topic": each["topic"]}, each[name]) for each in document["traffic"]]


def _requests(document: Json) -> Iterable[Sample]:
    return [({"request": each["api"]}, each["count"]) for each in document["requests"]]


def _errors(document: Json) -> Iterable[Sample]:
    return [
        ({"request": each["api"], "error": each["error"]}, each["count"])
        for each in document["errors"]
    ]


def _authentications(document: Json) -> Iterable[Sample]:
    for each in document["authentications"]:
        result = "failed" if each["failed"] else "successful"
        of = {"listener": each["listener"], "mechanism": each["mechanism"], "result": result}
        yield of, each["count"]


def _certificates(document: Json) -> Iterable[Sample]:
    # Brokers before 0.2 do not say it.
    return [
        ({"listener": each["listener"]}, each["expires_wall_ms"] / 1000)
        for each in document.get("certificates", ())
    ]


def _request_seconds(document: Json) -> Iterable[Sample]:
    for each in document["requests"]:
        if any(each["buckets"]):
            yield from _histogram({"request": each["api"]}, each["buckets"], each["total_ms"])


def _round_seconds(document: Json) -> Iterable[Sample]:
    loop = document.get("event_loop")  # brokers before 0.2 do not say it
    return _histogram({}, loop["buckets"], loop["busy_ms"]) if loop else []


def _histogram(label: Json, buckets: Sequence[int], total_ms: int) -> Iterator[Sample]:
    below = 0
    for bound_ms, count in zip(BUCKETS_MS, buckets, strict=False):
        below += count
        yield {SUFFIX: "_bucket", **label, "le": bound_ms / 1000}, below
    measured = sum(buckets)
    yield {SUFFIX: "_bucket", **label, "le": "+Inf"}, measured
    yield {SUFFIX: "_sum", **label}, total_ms / 1000
    yield {SUFFIX: "_count", **label}, measured


def _at(each: Json) -> dict[str, object]:
    return {"topic": each["topic"], "partition": each["partition"]}


# This is read as a table.
# fmt: off
METRICS: Final[tuple[Metric, ...]] = (
    Metric("strandline_partitions", "gauge", "partitions hosted by the broker",
           "ReplicaManager PartitionCount", _total("partitions")),
    Metric("strandline_leader_partitions", "gauge", "partitions led by the broker",
           "ReplicaManager LeaderCount", _total("leading")),
    Metric("strandline_under_replicated_partitions", "gauge",
           "partitions led here that have fewer in-sync replicas than replicas",
           "ReplicaManager UnderReplicatedPartitions", _total("under_replicated")),
    Metric("strandline_under_min_isr_partitions", "gauge",
           "partitions led here that have fewer in-sync replicas than acks=all needs",
           "ReplicaManager UnderMinIsrPartitionCount", _total("under_min_in_sync")),
    Metric("strandline_offline_partitions", "gauge",
           "partitions of the whole cluster without a leader, as this broker knows",
           "KafkaController OfflinePartitionsCount", _total("without_leader")),
    Metric("strandline_offline_replicas", "gauge", "replicas here whose disk failed",
           "ReplicaManager OfflineReplicaCount", _total("offline_replicas")),
    Metric("strandline_delayed_replicas", "gauge",
           "replicas here that can be used as soon as there is room", "",
           _delayed_replicas),
    Metric("strandline_offline_log_directories", "gauge", "log directories that failed",
           "LogManager OfflineLogDirectoryCount", _offline_directories),
    Metric("strandline_handles_limit", "gauge",
           "open files and sockets that the process may have", "", _handles("limit")),
    Metric("strandline_open_log_files", "gauge", "log and index files that are open", "",
           _handles("files")),
    Metric("strandline_open_sockets", "gauge", "connections and links of the process", "",
           _handles("sockets")),
    Metric("strandline_log_files_opened_total", "counter", "times a log or index file was opened",
           "", _handles("opened")),
    Metric("strandline_connections_refused_total", "counter",
           "connections refused because the process may have no more open files", "",
           _handles("refused_connections")),
    Metric("strandline_event_loop_round_seconds", "histogram",
           "time of what the process did between two looks at its sockets",
           "SocketServer NetworkProcessorAvgIdlePercent", _round_seconds),
    Metric("strandline_active_controller", "gauge", "1 if the broker is the controller",
           "KafkaController ActiveControllerCount", _active_controller),
    Metric("strandline_registered", "gauge", "1 if the metadata show this process", "",
           _registered),
    Metric("strandline_isr_shrinks_total", "counter", "times an in-sync set led here shrank",
           "ReplicaManager IsrShrinksPerSec", _total("in_sync_shrinks")),
    Metric("strandline_isr_expands_total", "counter", "times an in-sync set led here grew",
           "ReplicaManager IsrExpandsPerSec", _total("in_sync_expands")),
    Metric("strandline_leader_elections_total", "counter",
           "elections that the broker heard of",
           "ControllerStats LeaderElectionRateAndTimeMs", _total("leader_elections")),
    Metric("strandline_unclean_leader_elections_total", "counter",
           "unclean elections that the broker heard of",
           "ControllerStats UncleanLeaderElectionsPerSec", _total("unclean_leader_elections")),
    Metric("strandline_parked_requests", "gauge", "requests that wait in the broker",
           "DelayedOperationPurgatory PurgatorySize", _total("connections_parked")),
    Metric("strandline_requests_total", "counter", "answers by API",
           "RequestMetrics RequestsPerSec", _requests),
    Metric("strandline_errors_total", "counter", "refusals by API and error",
           "RequestMetrics ErrorsPerSec", _errors),
    Metric("strandline_authentications_total", "counter",
           "attempts to come in by a listener with SASL, and TLS handshakes that failed",
           "failed-authentication-total, successful-authentication-total", _authentications),
    Metric("strandline_certificate_expires_seconds", "gauge",
           "when the certificate of a listener expires, in seconds since 1970", "",
           _certificates),
    Metric("strandline_request_seconds", "histogram",
           "time from a request to its answer inside the broker",
           "RequestMetrics TotalTimeMs", _request_seconds),
    Metric("strandline_messages_in_total", "counter", "records that clients wrote, by topic",
           "BrokerTopicMetrics MessagesInPerSec", _traffic("records_in")),
    Metric("strandline_bytes_in_total", "counter", "bytes that clients wrote, by topic",
           "BrokerTopicMetrics BytesInPerSec", _traffic("bytes_in")),
    Metric("strandline_bytes_out_total", "counter", "bytes sent to consumers, by topic",
           "BrokerTopicMetrics BytesOutPerSec", _traffic("bytes_out")),
    Metric("strandline_replication_bytes_in_total", "counter", "bytes fetched from leaders",
           "BrokerTopicMetrics ReplicationBytesInPerSec", _traffic("replication_bytes_in")),
    Metric("strandline_replication_bytes_out_total", "counter", "bytes sent to followers",
           "BrokerTopicMetrics ReplicationBytesOutPerSec", _traffic("replication_bytes_out")),
    Metric("strandline_log_start_offset", "gauge", "the first offset of a replica",
           "Log LogStartOffset", _of_log("log_start_offset")),
    Metric("strandline_log_end_offset", "gauge", "the offset of a replica's next record",
           "Log LogEndOffset", _of_log("log_end_offset")),
    Metric("strandline_low_watermark", "gauge",
           "the first offset that is left on every replica that may lead, of led partitions", "",
           _low_watermarks),
    Metric("strandline_high_watermark", "gauge", "everything below it is committed", "",
           _of_log("high_watermark")),
    Metric("strandline_last_stable_offset", "gauge",
           "up to where read_committed consumers read", "Partition LastStableOffsetLag",
           _of_log("last_stable_offset")),
    Metric("strandline_log_size_bytes", "gauge", "bytes of a replica's log", "Log Size",
           _log_sizes),
    Metric("strandline_follower_lag_records", "gauge",
           "records that a follower lacks, as its leader last heard",
           "FetcherLagMetrics ConsumerLag", _follower_lag),
    Metric("strandline_group_lag_records", "gauge",
           "records behind a group's committed offset, as its coordinator sees it", "",
           _group_lag),
)
# fmt: on
