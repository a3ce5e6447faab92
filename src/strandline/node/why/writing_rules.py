"""Rules about what producers send: each refusal with the sentence that went with it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from strandline.errors import ErrorCode
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence


def refused(scene: Scene, *, codes: tuple[ErrorCode, ...], cause: str) -> Iterator[Finding]:
    """Refusals whose own sentence says what there is to say."""
    for refusal in scene.refusals(*codes):
        yield Finding(
            str(refusal.about),
            refusal.message or cause,
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
        )


def refusal_rule(
    name: str,
    title: str,
    codes: tuple[ErrorCode, ...],
    cause: str,
    remedy: str,
    settings: tuple[str, ...] = (),
    scope: Scope = Scope.PARTITION,
) -> Rule:
    """A rule whose findings are the refusals with these codes."""
    examine = partial(refused, codes=codes, cause=cause)
    return Rule(name, title, scope, codes, cause, remedy, settings, examine)


RULES: Final = (
    refusal_rule(
        "invalid-record",
        "Records are refused as invalid",
        (ErrorCode.INVALID_RECORD,),
        "A record breaks a rule of the topic: a record without a key on a compacted topic, a batch "
        "whose count and offsets disagree, or more than one batch for a partition.",
        "Send records that keep the rule that is named; keys are needed where cleanup.policy has "
        "compact.",
        ("cleanup.policy",),
    ),
    refusal_rule(
        "timestamp-refused",
        "Records are refused because of their timestamps",
        (ErrorCode.INVALID_TIMESTAMP,),
        "The timestamp of a record is further from the broker's clock than the topic accepts.",
        "Correct the producer's clock, raise the limits of the topic, or let the broker set the "
        "time with message.timestamp.type=LogAppendTime.",
        (
            "message.timestamp.before.max.ms",
            "message.timestamp.after.max.ms",
            "message.timestamp.type",
        ),
    ),
    refusal_rule(
        "damaged-batch",
        "A batch is refused as damaged",
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        "The bytes of a batch do not match its checksum or its header, its magic is not 2, or its "
        "codec cannot be used in that version.",
        "The producer sends a new batch. If it happens again, look at its library and the network.",
    ),
    refusal_rule(
        "too-large",
        "A batch is too large",
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE),
        "The batch is larger than max.message.bytes of the topic, or than one of its segments.",
        "Raise max.message.bytes, or lower the producer's batch.size and max.request.size.",
        ("max.message.bytes", "segment.bytes"),
    ),
    refusal_rule(
        "policy-violation",
        "Something is forbidden by the topic's policy",
        (ErrorCode.POLICY_VIOLATION,),
        "Records of a topic that is only compacted cannot be deleted by offset.",
        "Add delete to cleanup.policy, or write tombstones.",
        ("cleanup.policy",),
    ),
    refusal_rule(
        "out-of-sequence",
        "An idempotent producer is refused: records are missing, or it is not known",
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID),
        "The batch does not follow the last one that this log has of the producer: one between was "
        "lost, or the broker forgot the producer after producer.id.expiration.ms.",
        "The producer must take a new id, as its library does after a fatal error; records that "
        "were not acknowledged are to be sent again.",
        ("producer.id.expiration.ms",),
    ),
    refusal_rule(
        "producer-fenced",
        "A producer is fenced by a newer one with its id",
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED),
        "Another producer with the same transactional id began later, and has a later epoch.",
        "Let only one producer have a transactional id at a time.",
    ),
    refusal_rule(
        "bad-request",
        "A request is refused because of what it asks",
        (
            ErrorCode.INVALID_REQUEST,
            ErrorCode.INVALID_REQUIRED_ACKS,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.TOPIC_DELETION_DISABLED,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ),
        "The request cannot be carried out as it is; the sentence says what is wrong with it.",
        "Send another request.",
        scope=Scope.CLUSTER,
    ),
)
