"""Error codes in responses as errors with a sentence.

Brokers send a sentence with some refusals and only a number with most. This file knows what to say
about a number; it must not know requests.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, ProtocolError

_SENTENCES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "There is no {what}",
    ErrorCode.UNKNOWN_TOPIC_ID: "There is no {what} any more",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The name of {what} is not allowed",
    ErrorCode.TOPIC_ALREADY_EXISTS: "There already is a {what}",
    ErrorCode.OFFSET_OUT_OF_RANGE: "The offset lies outside {what}",
    ErrorCode.LEADER_NOT_AVAILABLE: "No broker leads {what} at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "The broker that was asked does not lead {what}",
    ErrorCode.MESSAGE_TOO_LARGE: "A batch for {what} is larger than max.message.bytes allows",
    ErrorCode.RECORD_LIST_TOO_LARGE: "A batch for {what} is larger than a segment",
    ErrorCode.CORRUPT_MESSAGE: "A batch for {what} arrived damaged, or lacks keys it must have",
    ErrorCode.INVALID_RECORD: "A record for {what} is not acceptable there",
    ErrorCode.INVALID_TIMESTAMP: "A record's timestamp is outside what {what} accepts",
    ErrorCode.NOT_ENOUGH_REPLICAS: "Fewer replicas of {what} are in sync than it demands",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "Records of {what} were written, but to fewer replicas than it demands"
    ),
    ErrorCode.REQUEST_TIMED_OUT: "The broker gave up waiting for {what}",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "There is no coordinator for {what} at the moment",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The coordinator of {what} is still starting",
    ErrorCode.NOT_COORDINATOR: "The broker that was asked does not coordinate {what}",
    ErrorCode.INVALID_GROUP_ID: "The name of {what} is not allowed",
    ErrorCode.GROUP_ID_NOT_FOUND: "There is no {what}",
    ErrorCode.NON_EMPTY_GROUP: "There are still consumers in {what}",
    ErrorCode.UNKNOWN_MEMBER_ID: "There are consumers in {what}; only they may commit offsets",
    ErrorCode.ILLEGAL_GENERATION: "There are consumers in {what}; only they may commit offsets",
    ErrorCode.REBALANCE_IN_PROGRESS: "The consumers of {what} are being assigned anew",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Consumers of the group are subscribed to {what}",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "The note for the offset of {what} is too long",
    ErrorCode.NOT_CONTROLLER: "The broker that was asked is not the controller",
    ErrorCode.INVALID_CONFIG: "A setting of {what} is not allowed",
    ErrorCode.INVALID_PARTITIONS: "The number of partitions of {what} is not allowed",
    ErrorCode.INVALID_REPLICATION_FACTOR: "The replication factor of {what} is not possible",
    ErrorCode.TOPIC_DELETION_DISABLED: "Topics cannot be deleted: delete.topic.enable is false",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Access to {what} is not allowed",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Access to {what} is not allowed",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "This operation on the cluster is not allowed",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "The brokers have no delegation tokens: delegation.token.secret.key is not set"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "Requests about tokens are taken from clients that have authenticated with SASL or a "
        "certificate, and not by a token"
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "There is no token with that secret",
    ErrorCode.DELEGATION_TOKEN_EXPIRED: "The token has expired",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: (
        "Only the owner of a token and its renewers may do that"
    ),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: (
        "Tokens of another user need CreateTokens on it"
    ),
    ErrorCode.INVALID_PRINCIPAL_TYPE: "Renewers are users: User:NAME",
    ErrorCode.UNSUPPORTED_VERSION: "{what} does not support this request",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "The codec cannot be used with {what}",
    ErrorCode.KAFKA_STORAGE_ERROR: "The disk of {what} failed",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "Records of {what} were lost, so the next do not fit",
    ErrorCode.UNKNOWN_PRODUCER_ID: "The broker has forgotten this producer of {what}",
    ErrorCode.POLICY_VIOLATION: "A policy of the cluster forbids this for {what}",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "A quota does not allow this for {what} now",
}


def refusal(number: int, message: str | None, what: str) -> ProtocolError:
    """The error for a code in a response; `what` names the thing that it is about.

    The broker's own sentence wins if it sent one. A code that is newer than this client counts as
    UNKNOWN_SERVER_ERROR.
    """
    code = ErrorCode(number)
    if code != number:
        message = message or f"The broker answered with the unknown error {number} about {what}"
    if not message:
        sentence = _SENTENCES.get(code)
        message = (
            f"The broker answered {code.name} about {what}"
            if sentence is None
            else sentence.format(what=what)
        )
        message = message[0].upper() + message[1:]
    return ProtocolError(code, message if message.endswith((".", "!", "?")) else f"{message}.")


def check(number: int, message: str | None, what: str) -> None:
    """Raise `refusal` unless the code is NONE."""
    if number != ErrorCode.NONE:
        raise refusal(number, message, what)
