"""The subject `compact`: compact replicas of a topic now, and how far that is.

    {"topic": "orders", "partition": 0, "begin": true}     have them compacted
    {"topic": "orders", "partition": 0}                    how far it is

Any client may ask: AlterConfigs lets it have the same with `min.cleanable.dirty.ratio`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from strandline.config.broker import BrokerConfig
from strandline.errors import ErrorCode, ProtocolError
from strandline.node.explain.hosted import hosted
from strandline.node.inspection import Arguments, JsonObject
from strandline.node.inspection_arguments import allow_only, flag, optional_integer, text
from strandline.node.log_cleaner import LogCleaner
from strandline.node.parts import NodeParts
from strandline.types import Instant

if TYPE_CHECKING:
    from strandline.node.replica import Replica

VERSION: Final = 1


def compact(node: NodeParts, arguments: Arguments, now: Instant) -> JsonObject:
    """See the module. Refusals: POLICY_VIOLATION for what is not compacted, INVALID_CONFIG where
    nothing is, KAFKA_STORAGE_ERROR for a log that failed."""
    allow_only(arguments, ("topic", "partition", "begin"))
    topic, number = text(arguments, "topic"), optional_integer(arguments, "partition")
    replicas = hosted(node.replicas, node.metadata.image, topic, number)
    if flag(arguments, "begin"):
        _check_possible(node.settings.broker, topic, replicas)
        for replica in replicas:
            node.background.cleaning.ask(replica, now)
    return {
        "version": VERSION,
        "broker": node.broker_id,
        "topic": topic,
        "partitions": [
            {
                "partition": replica.topic_partition.partition,
                "is_leader": replica.is_leading,
                **compaction_state(node.background.cleaning, replica),
            }
            for replica in replicas
        ],
    }


def compaction_state(cleaner: LogCleaner, replica: Replica) -> dict[str, object]:
    """What compaction does with a log at the moment, and how its last round ended."""
    log = replica.log
    under_way, last = cleaner.round_of(log), cleaner.last.get(log)
    state = "idle"
    if log in cleaner.asked:
        state = "waiting"
    elif under_way is not None:
        state = "running"
    elif log in cleaner.uncleanable:
        state = "uncleanable"
    return {
        "state": state,
        "problem": cleaner.uncleanable.get(log),
        "round": None
        if under_way is None
        else {
            "began_ms": under_way.began_ms,
            "bytes_to_read": under_way.plan.bytes_to_read,
            **asdict(under_way.stats),
        },
        "last_round": None
        if last is None
        else {
            "began_ms": last.began_ms,
            "ended_ms": last.ended_ms,
            "problem": last.problem,
            **asdict(last.stats),
        },
    }


def _check_possible(broker: BrokerConfig, topic: str, replicas: list[Replica]) -> None:
    if not broker.log_cleaner_enable or broker.log_cleaner_threads < 1:
        raise ProtocolError(
            ErrorCode.INVALID_CONFIG,
            "This broker compacts nothing: log.cleaner.enable and log.cleaner.threads say so.",
        )
    for replica in replicas:
        if not replica.log.config.is_compacted:
            raise ProtocolError(
                ErrorCode.POLICY_VIOLATION,
                f"The topic '{topic}' is not compacted: its cleanup.policy has no 'compact'.",
            )
