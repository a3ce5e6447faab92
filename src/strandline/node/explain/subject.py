"""The subject `explain`: what retention or compaction thinks of the replicas of a topic here.

    {"topic": "orders", "partition": 0, "what": "retention" | "compaction"}
    {..., "what": "compaction", "dry_run": true}     begins dry runs; the answer has their tokens
    {..., "token": -1}                               what came of one of them

This file knows how the facts are put together. The facts come from `storage`, where the rules are.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.background import Background
from strandline.node.dry_runs import TooManyDryRuns
from strandline.node.explain.compact import compaction_state
from strandline.node.explain.hosted import hosted
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import (
    allow_only,
    flag,
    optional_integer,
    text,
)
from strandline.node.parts import NodeParts
from strandline.node.replica import Replica
from strandline.storage.compaction.dry_run import DryRun
from strandline.storage.compaction.facts import compaction_facts
from strandline.storage.retention_facts import retention_facts
from strandline.types import Instant

VERSION: Final = 1


def explain(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """See the module. Replicas of all roles; `is_leader` tells which they are."""
    allow_only(arguments, ("topic", "partition", "what", "dry_run", "token"))
    topic, what = text(arguments, "topic"), text(arguments, "what")
    document: dict[str, object] = {"version": VERSION, "broker": node.broker_id, "topic": topic}
    token = optional_integer(arguments, "token")
    if token is not None:
        return {**document, **_outcome(node.background, token)}
    if what not in ("retention", "compaction"):
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, "The argument 'what' must be 'retention' or 'compaction'."
        )
    image, partitions = node.metadata.image, list[JsonObject]()
    for replica in hosted(node.replicas, image, topic, optional_integer(arguments, "partition")):
        if what == "retention":
            partitions.append(retention_document(replica, now))
            continue
        found = compaction_document(node, replica, now)
        if flag(arguments, "dry_run"):
            found["token"] = _begin(node.background, replica, now)
        partitions.append(found)
    return {**document, "what": what, "now_ms": now.wall_ms, "partitions": partitions}


def retention_document(replica: Replica, now: Instant) -> dict[str, object]:
    """What retention thinks of one replica."""
    facts = retention_facts(replica.log, now.wall_ms)
    return {**_whose(replica), **facts.to_json()}


def compaction_document(node: NodeParts, replica: Replica, now: Instant) -> dict[str, object]:
    """What compaction thinks of one replica, and what it does and did."""
    directory = node.replicas.logs.directory_of(replica.topic_partition)
    offsets = {} if directory is None else directory.cleaner_offsets
    checkpoint = offsets.get(replica.topic_partition)
    facts = compaction_facts(replica.log, checkpoint, now.wall_ms)
    return {
        **_whose(replica),
        "log_start_offset": replica.log.log_start_offset,
        "high_watermark": replica.log.high_watermark,
        "last_stable_offset": replica.log.last_stable_offset,
        "log_end_offset": replica.log.log_end_offset,
        **facts.to_json(),
        **compaction_state(node.background.cleaning, replica),
    }


def _whose(replica: Replica) -> dict[str, object]:
    return {
        "partition": replica.topic_partition.partition,
        "is_leader": replica.is_leading,
        "directory": replica.log.directory,
    }


def _begin(background: Background, replica: Replica, now: Instant) -> int | None:
    """Begin a dry run; None when there is nothing that a round could do."""
    plan = background.cleaning.plan(replica, now)
    if plan is None:
        return None
    try:
        return background.dry_runs.begin(plan)
    except TooManyDryRuns as error:
        raise ProtocolError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, str(error)) from error


def _outcome(background: Background, token: int) -> dict[str, object]:
    try:
        outcome = background.dry_runs.outcome(token)
    except KeyError:
        raise ProtocolError(
            ErrorCode.INVALID_REQUEST, f"There is no dry run {token} (any more)."
        ) from None
    if outcome is None:
        return {"state": "running"}
    if isinstance(outcome, DryRun):
        return {"state": "done", "dry_run": outcome.to_json()}
    return {"state": "failed", "problem": str(outcome)}
