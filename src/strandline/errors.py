"""The one error tree of the project, and Kafka's numbered error codes.

    StrandlineError
    ├── ProtocolError           an answer with a Kafka error code; says whether a retry may help
    │   ├── AuthenticationFailed    one of two sides does not trust the other; no retry helps
    │   ├── TransactionFailed   a transaction cannot be committed: abort it, and try it again
    │   └── ProducerFailed      a transactional producer may not go on: close it
    ├── MalformedFrame          bytes that do not follow the protocol: one connection closes
    ├── CorruptRecords          the bytes of a record batch are damaged
    │   └── RecordsTooLarge     they decompress to more than is accepted
    ├── InvalidSetting          a setting's name or value is refused; names the setting
    ├── BadScript               a scenario or plan of the simulator cannot be understood (in `sim`)
    ├── TableError              a table refuses a batch, or is none (in `lakehouse.tables`, a tree)
    ├── Unreadable, BadSchema   a value or schema that cannot be used (in `schemas`, a tree)
    ├── StorageError            a disk operation failed; the log directory is suspect
    │   └── UnknownFormat       a newer release wrote the files: the start ends, nothing is changed
    └── InvariantViolated       a bug of ours: the partition it happened in goes offline

This file knows no other part. The codes and which of them are retriable are those of Kafka 4.3
(`org.apache.kafka.common.protocol.Errors`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """Kafka's error codes by their protocol names.

    A number that is newer than this list counts as UNKNOWN_SERVER_ERROR, as in Kafka: a broker that
    says more than we know is no reason to fail.
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @classmethod
    def _missing_(cls, value: object) -> ErrorCode | None:
        return cls.UNKNOWN_SERVER_ERROR if isinstance(value, int) else None


RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

INDEFINITE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    }
)
"""Codes after which a write may or may not have happened (replication specification, I-41)."""


class StrandlineError(Exception):
    """The root of every error that this package raises on purpose."""


class ProtocolError(StrandlineError):
    """A request is refused with a Kafka error code.

    `message` is a full sentence for the person who reads it; protocols that carry one send it.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message

    @property
    def sentence(self) -> str:
        """What to say of it: the message, or the code's name if there is none."""
        return self.message or self.code.name

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later without a change."""
        return self.code in RETRIABLE

    @property
    def definite(self) -> bool:
        """Whether the refused operation certainly had no effect."""
        return self.code not in INDEFINITE


class AuthenticationFailed(ProtocolError):
    """A client could not authenticate, or a broker could not prove who it is.

    Nothing was asked on the connection, and asking again changes nothing. Failures of TLS, for
    which Kafka has no code, have that of a broken connection.
    """

    @property
    def retriable(self) -> bool:
        return False

    @property
    def definite(self) -> bool:
        return True


class TransactionFailed(ProtocolError):
    """A transaction cannot be committed. Abort it; then what it was to do can be done again.

    The producer is as good as before once the transaction is aborted.
    """


class ProducerFailed(ProtocolError):
    """A transactional producer may not go on, and nothing that it does will succeed: close it.

    PRODUCER_FENCED: another producer with its `transactional.id` has begun, or a transaction was
    open for longer than `transaction.timeout.ms`. What it had not committed will be aborted.
    """


class MalformedFrame(StrandlineError):
    """The bytes of a request or response do not follow the protocol. Closes one connection."""


class CorruptRecords(StrandlineError):
    """The bytes of a record batch are damaged or do not follow the record format."""


class RecordsTooLarge(CorruptRecords):
    """The records of a batch decompress to more than the reader accepts; they may be sound."""


class InvalidSetting(StrandlineError):
    """A setting is unknown or its value is not allowed; the sentence names both."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name


class CannotBeHad(InvalidSetting):
    """A setting asks for what it may ask for, and what cannot be had now: another has it."""


class CannotListen(CannotBeHad):
    """No socket can listen at an address: it is taken, or not this machine's."""


class StorageError(StrandlineError):
    """A disk operation failed. Retriable for clients, who see KAFKA_STORAGE_ERROR."""


class UnknownFormat(StorageError):
    """A newer release has written what this one is to read. Nothing was changed, nothing may be."""

    def __init__(self, what: str, found: int, known: int) -> None:
        super().__init__(
            f"{what} has format {found}; this release reads formats up to {known}. A newer release "
            "has written it: start that one again. Nothing was changed."
        )


class InvariantViolated(StrandlineError):
    """A check of our own failed: this is a bug, and going on could damage data.

    `invariant` is its number in the replication specification (`I-40`), if it has one.
    """

    def __init__(self, message: str, *, invariant: str | None = None) -> None:
        super().__init__(message)
        self.invariant = invariant
