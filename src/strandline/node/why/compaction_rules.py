"""The rule about compaction: what keeps a log from it, and what it has removed.

A log that is left alone, which grows without bounds, is told always; the rest if its topic is asked
about, since most compacted logs wait for more to be dirty, and have fewer records than were written
to them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import StorageError
from strandline.node.log_cleaner import LastRound, LogCleaner
from strandline.node.replica import Replica
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene
from strandline.storage.compaction.bounds import CleanableRange
from strandline.storage.compaction.facts import why_bound, why_due

_AS_ASKED: Final = (
    "Nothing: cleanup.policy=compact asks for it. A record that must stay needs a key of its own."
)


def compaction(scene: Scene) -> Iterator[Finding]:
    """Compacted logs of this broker."""
    cleaner = scene.node.background.cleaning
    for replica in scene.hosted():
        if not replica.log.config.is_compacted or replica.log.failure is not None:
            continue
        why_not = cleaner.uncleanable.get(replica.log)
        if why_not is not None:
            topic = replica.topic_partition.topic
            yield _finding(
                replica,
                cleaner,
                f"it is not compacted any more: {why_not}",
                remedy=f"Mend what is named; then `strandline compact {topic}` tries again, and so "
                "does the next start.",
            )
        elif scene.topic is not None:
            yield from _as_ever(scene, cleaner, replica)


def _as_ever(scene: Scene, cleaner: LogCleaner, replica: Replica) -> Iterator[Finding]:
    try:
        found = cleaner.cleanable(replica, scene.now)
    except StorageError as error:
        yield _finding(replica, cleaner, f"it cannot be compacted: {error}")
        return
    if found is None:
        return
    log = replica.log
    if found.first_dirty < log.log_end_offset:
        yield _finding(
            replica, cleaner, _waits_for(scene, cleaner, replica, found), why_bound(log, found)
        )
    if log.log_start_offset < found.first_dirty:
        yield _finding(
            replica,
            cleaner,
            f"below offset {found.first_dirty} it has only the newest record of each key",
            *_tombstones(replica),
            remedy=_AS_ASKED,
        )


def _waits_for(scene: Scene, cleaner: LogCleaner, replica: Replica, found: CleanableRange) -> str:
    """What is between the log and its next round."""
    begin = f"from offset {found.first_dirty} on it is not compacted yet: "
    broker = scene.node.settings.broker
    if not broker.log_cleaner_enable or broker.log_cleaner_threads < 1:
        return begin + "this broker compacts nothing (log.cleaner.enable, log.cleaner.threads)"
    under_way = cleaner.round_of(replica.log)
    if under_way is not None:
        read, all_bytes = under_way.stats.bytes_read, under_way.plan.bytes_to_read
        return begin + f"a round is under way, which has read {read} of {all_bytes} bytes"
    due = found.due(replica.log.config)
    if due.is_now:
        return begin + (
            f"it is due, and waits for a cleaner thread: there are log.cleaner.threads="
            f"{broker.log_cleaner_threads}, which look for work every log.cleaner.backoff.ms="
            f"{broker.log_cleaner_backoff_ms}"
        )
    return begin + why_due(replica.log, found, due).rstrip(".")


def _tombstones(replica: Replica) -> tuple[str, ...]:
    retention_ms = replica.log.config.delete_retention_ms
    return (
        f"a record without a value removes its key, and goes itself after delete.retention.ms="
        f"{retention_ms}",
    )


def _finding(
    replica: Replica,
    cleaner: LogCleaner,
    cause: str,
    *evidence: str,
    remedy: str | None = None,
) -> Finding:
    last = cleaner.last.get(replica.log)
    return Finding(
        str(replica.topic_partition),
        cause,
        None if last is None else last.ended_ms,
        (*evidence, *(() if last is None else (_of_round(last),))),
        remedy,
    )


def _of_round(last: LastRound) -> str:
    if last.problem is not None:
        return f"its last round ended early: {last.problem}"
    stats = last.stats
    return f"its last round kept {stats.records_kept} of {stats.records_read} records"


RULES: Final = (
    Rule(
        "compaction",
        "Compaction has removed records of a topic, or has not come to it",
        Scope.PARTITION,
        (),
        "A cleaner thread compacts the log whose share of uncompacted bytes is the largest, once "
        "that exceeds min.cleanable.dirty.ratio or a record is older than max.compaction.lag.ms. "
        "The active segment, what is not committed and what is younger than min.compaction.lag.ms "
        "is left out. A log that cannot be read as it is, is left alone.",
        "`strandline explain compaction` tells it by segment, and `strandline compact` has it done "
        "now. Smaller segments (segment.bytes, segment.ms) are compacted sooner.",
        (
            "cleanup.policy",
            "min.cleanable.dirty.ratio",
            "max.compaction.lag.ms",
            "min.compaction.lag.ms",
            "delete.retention.ms",
            "log.cleaner.enable",
            "log.cleaner.threads",
        ),
        compaction,
    ),
)
