"""Rules about consumers: offsets that are not there, and nothing to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from typing import Final

from strandline.errors import ErrorCode
from strandline.node.purgatory import Tells
from strandline.node.why.refusals import About
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence
from strandline.types import TopicId


def out_of_range(scene: Scene) -> Iterator[Finding]:
    """Offsets that the log does not have."""
    for refusal in scene.refusals(ErrorCode.OFFSET_OUT_OF_RANGE):
        at = refusal.about.topic_partition
        replica = None if at is None else scene.node.replicas.find(at)
        if at is None or replica is None:
            continue
        log, config = replica.log, replica.log.config
        yield Finding(
            str(at),
            f"the log has the offsets {log.log_start_offset} to {log.log_end_offset}, and another "
            "one was asked for",
            refusal.first.wall_ms,
            (
                *refusal_evidence(refusal, scene.now),
                f"cleanup.policy={','.join(sorted(config.cleanup_policies))}, "
                f"retention.ms={config.retention_ms}, retention.bytes={config.retention_bytes}",
                f"{log.log_start_offset} offsets were removed by retention or DeleteRecords",
            ),
        )


def open_transaction(scene: Scene) -> Iterator[Finding]:
    """Consumers with read_committed stop at an undecided transaction."""
    for replica in scene.hosted():
        log = replica.log
        if replica.leader is None or log.last_stable_offset >= log.high_watermark:
            continue
        earliest = log.producers.transactions.earliest_open
        entry = None if earliest is None else log.producers.active.get(earliest[1])
        yield Finding(
            str(replica.topic_partition),
            f"a transaction{'' if earliest is None else f' of producer {earliest[1]}'} that began "
            f"at offset {log.last_stable_offset} is not decided",
            None if entry is None or entry.last_timestamp < 0 else entry.last_timestamp,
            (
                f"consumers with isolation.level=read_committed read up to "
                f"{log.last_stable_offset}, others up to {log.high_watermark}",
            ),
        )


def nothing_to_read(scene: Scene) -> Iterator[Finding]:
    """Fetches that wait: at the end of the log, or for fetch.min.bytes."""
    for replica in scene.hosted():
        waits = [
            entry.operation.wait()
            for entry in replica.waiters
            if isinstance(entry.operation, Tells)
        ]
        if not waits:
            continue
        log = replica.log
        newest_ms = log.active.max_timestamp
        yield Finding(
            str(replica.topic_partition),
            f"{len(waits)} fetches wait at the end of what they may read, offset "
            f"{log.high_watermark}: nothing more has been produced",
            newest_ms if newest_ms >= 0 else None,
            tuple(
                f"{wait.request.client_id or 'a client without a name'} at "
                f"{wait.request.connection.client_host} waits for {wait.sentence} of "
                f"{', '.join(wait.partitions)}"
                for wait in waits[:10]
            ),
        )


def unknown_topic(scene: Scene) -> Iterator[Finding]:
    """Topics and partitions that do not exist, or did not when a client asked for them."""
    codes = (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    )
    seen: set[str] = set()
    for refusal in scene.refusals(*codes):
        about = str(refusal.about)
        if _is_known(scene, refusal.about):
            yield Finding(
                about,
                "it was not known then, and is known now",
                refusal.first.wall_ms,
                refusal_evidence(refusal, scene.now),
                is_over=True,
            )
        elif about not in seen:
            seen.add(about)
            yield _missing(scene, refusal.about.topic, about, refusal.first.wall_ms,
                           refusal_evidence(refusal, scene.now))  # fmt: skip
    if scene.topic is None or seen:
        return
    if scene.topic not in scene.image.topics:
        yield _missing(scene, scene.topic, f"topic {scene.topic}", None, ())
    elif scene.partition is not None and not any(scene.partitions()):
        yield _missing(scene, scene.topic, f"{scene.topic}-{scene.partition}", None, ())


def _is_known(scene: Scene, about: About) -> bool:
    """Whether there is by now what was refused as unknown. A topic may be named by its id."""
    if about.topic is None:
        return False
    topic = scene.image.topics.get(about.topic)
    if topic is None:
        with suppress(ValueError):
            topic = scene.image.topic_by_id(TopicId(about.topic))
    return topic is not None and (about.partition is None or about.partition in topic.partitions)


def _missing(
    scene: Scene, topic: str | None, about: str, since: int | None, evidence: tuple[str, ...]
) -> Finding:
    known = None if topic is None else scene.image.topics.get(topic)
    if known is not None:
        cause = f"the topic has the partitions 0 to {len(known.partitions) - 1}"
        return Finding(about, cause, since, evidence)
    near = get_close_matches(topic or "", scene.image.topics, n=1, cutoff=0.7)
    creates = scene.node.settings.broker.auto_create_topics_enable
    return Finding(
        about,
        "there is no such topic" + (f"; did you mean '{near[0]}'?" if near else ""),
        since,
        (*evidence, f"auto.create.topics.enable={str(creates).lower()}"),
    )


UNKNOWN_TOPIC: Final = Rule(
    "unknown-topic",
    "A topic or partition is unknown",
    Scope.PARTITION,
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ),
    "It does not exist, was deleted, or was made anew under the same name, which gives it "
    "another id (KIP-516).",
    "`strandline topics create`, or auto.create.topics.enable. Clients that know an old id ask "
    "again by themselves.",
    ("auto.create.topics.enable",),
    unknown_topic,
)
RULES: Final = (
    Rule(
        "offset-out-of-range",
        "A consumer asks for an offset that the log does not have",
        Scope.PARTITION,
        (ErrorCode.OFFSET_OUT_OF_RANGE,),
        "The records were removed by retention or DeleteRecords before the consumer read them; or "
        "the log ends below the offset, because the partition lost its end in an unclean election "
        "or the topic was made anew.",
        "The consumer begins anew where auto.offset.reset says; `strandline groups reset` moves a "
        "group. Longer retention keeps it from happening again.",
        ("retention.ms", "retention.bytes", "cleanup.policy"),
        out_of_range,
    ),
    Rule(
        "open-transaction",
        "A consumer with read_committed gets nothing behind an open transaction",
        Scope.PARTITION,
        (),
        "Such consumers read up to the last stable offset, which is the beginning of the oldest "
        "transaction that is neither committed nor aborted.",
        "It ends with the transaction: its producer commits or aborts it, or its coordinator does "
        "after transaction.timeout.ms.",
        (),
        open_transaction,
    ),
    Rule(
        "nothing-to-read",
        "A consumer gets nothing: it has read everything",
        Scope.PARTITION,
        (),
        "A fetch that finds less than fetch.min.bytes waits, up to fetch.max.wait.ms, and is "
        "answered with what there is.",
        "Produce something. A smaller fetch.min.bytes lets the consumer have less, sooner.",
        (),
        nothing_to_read,
    ),
    UNKNOWN_TOPIC,
)
