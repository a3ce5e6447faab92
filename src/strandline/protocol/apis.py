"""The table of APIs: key, name, known versions, and the message classes behind them.

Which of these a node serves, and to which clients, is the node's decision; this is what can be
read and written at all: every version that Kafka 4.3 declares stable. Modules of messages are
imported when their class is first asked for, so that a broker pays only for what its clients use.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.versions import VersionRange


class ApiKey(IntEnum):
    """Kafka's API keys, as far as they are known here, and behind them our own."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    INSPECT = 21000


class Api:
    """One API. `flexible_from` is its first version with compact encodings, None if it has none."""

    def __init__(self, key: ApiKey, versions: VersionRange, flexible_from: int | None) -> None:
        self.key = key
        self.versions = versions
        self.flexible_from = flexible_from
        self.module = key.name.lower()
        self.name = "".join(word.capitalize() for word in key.name.split("_"))

    @cached_property
    def request_class(self) -> type:
        """The class of its requests."""
        return self._class("Request")

    @cached_property
    def response_class(self) -> type:
        """The class of its responses."""
        return self._class("Response")

    def is_flexible(self, version: int) -> bool:
        """Whether a version has compact encodings; also said of versions not known here."""
        return self.flexible_from is not None and version >= self.flexible_from

    def request_header_version(self, version: int) -> int:
        """The request header's version: 2 has tagged fields behind the client id."""
        return 2 if self.is_flexible(version) else 1

    def response_header_version(self, version: int) -> int:
        """The response header's version: 1 has tagged fields behind the correlation id.

        ApiVersions always answers with 0, since its client cannot know yet what the broker speaks
        (KIP-511).
        """
        return 1 if self.is_flexible(version) and self.key is not ApiKey.API_VERSIONS else 0

    @property
    def advertised_versions(self) -> VersionRange:
        """What an ApiVersions response says. Produce is shown from 0 although 0 to 2 are refused:

        librdkafka takes brokers that do not show it for ones it cannot speak to (KAFKA-18659).
        """
        if self.key is ApiKey.PRODUCE:
            return VersionRange(0, self.versions.highest)
        return self.versions

    def _class(self, kind: str) -> type:
        module = import_module(f"strandline.protocol.messages.{self.module}")
        found: type = getattr(module, self.name + kind)
        return found


def _table(*rows: tuple[ApiKey, int, int, int | None]) -> Mapping[int, Api]:
    known = {
        int(key): Api(key, VersionRange(lowest, highest), flexible_from)
        for key, lowest, highest, flexible_from in rows
    }
    return MappingProxyType(known)


KNOWN: Final = _table(
    # API, lowest version, highest version, first flexible version
    (ApiKey.PRODUCE, 3, 13, 9),
    (ApiKey.FETCH, 4, 18, 12),
    (ApiKey.LIST_OFFSETS, 1, 11, 6),
    (ApiKey.METADATA, 0, 13, 9),
    (ApiKey.OFFSET_COMMIT, 2, 10, 8),
    (ApiKey.OFFSET_FETCH, 1, 10, 6),
    (ApiKey.FIND_COORDINATOR, 0, 6, 3),
    (ApiKey.JOIN_GROUP, 0, 9, 6),
    (ApiKey.HEARTBEAT, 0, 4, 4),
    (ApiKey.LEAVE_GROUP, 0, 5, 4),
    (ApiKey.SYNC_GROUP, 0, 5, 4),
    (ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
    (ApiKey.LIST_GROUPS, 0, 5, 3),
    (ApiKey.SASL_HANDSHAKE, 0, 1, None),
    (ApiKey.API_VERSIONS, 0, 4, 3),
    (ApiKey.CREATE_TOPICS, 2, 7, 5),
    (ApiKey.DELETE_TOPICS, 1, 6, 4),
    (ApiKey.DELETE_RECORDS, 0, 2, 2),
    (ApiKey.INIT_PRODUCER_ID, 0, 5, 2),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 0, 5, 3),
    (ApiKey.ADD_OFFSETS_TO_TXN, 0, 4, 3),
    (ApiKey.END_TXN, 0, 5, 3),
    (ApiKey.WRITE_TXN_MARKERS, 1, 2, 1),
    (ApiKey.TXN_OFFSET_COMMIT, 0, 5, 3),
    (ApiKey.DESCRIBE_ACLS, 1, 3, 2),
    (ApiKey.CREATE_ACLS, 1, 3, 2),
    (ApiKey.DELETE_ACLS, 1, 3, 2),
    (ApiKey.DESCRIBE_CONFIGS, 1, 4, 4),
    (ApiKey.ALTER_CONFIGS, 0, 2, 2),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, 1, 2, 2),
    (ApiKey.DESCRIBE_LOG_DIRS, 1, 5, 2),
    (ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
    (ApiKey.CREATE_PARTITIONS, 0, 3, 2),
    (ApiKey.CREATE_DELEGATION_TOKEN, 1, 3, 2),
    (ApiKey.RENEW_DELEGATION_TOKEN, 1, 2, 2),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, 1, 2, 2),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, 1, 3, 2),
    (ApiKey.DELETE_GROUPS, 0, 2, 2),
    (ApiKey.ELECT_LEADERS, 0, 2, 2),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
    (ApiKey.OFFSET_DELETE, 0, 0, None),
    (ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, 1, 1),
    (ApiKey.ALTER_CLIENT_QUOTAS, 0, 1, 1),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, 0, 0),
    (ApiKey.ALTER_PARTITION, 2, 3, 0),
    (ApiKey.UPDATE_FEATURES, 0, 2, 0),
    (ApiKey.DESCRIBE_CLUSTER, 0, 2, 0),
    (ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
    (ApiKey.UNREGISTER_BROKER, 0, 0, 0),
    (ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
    (ApiKey.LIST_TRANSACTIONS, 0, 2, 0),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
    (ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    (ApiKey.SHARE_GROUP_HEARTBEAT, 1, 1, 0),
    (ApiKey.SHARE_GROUP_DESCRIBE, 1, 1, 0),
    (ApiKey.SHARE_FETCH, 1, 2, 0),
    (ApiKey.SHARE_ACKNOWLEDGE, 1, 2, 0),
    (ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, 0),
    (ApiKey.READ_SHARE_GROUP_STATE, 0, 0, 0),
    (ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, 0),
    (ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, 0),
    (ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, 0),
    (ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 0, 1, 0),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, 0, 0),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, 0, 0),
    (ApiKey.INSPECT, 0, 0, 0),
)

PRIVATE: Final = frozenset({ApiKey.INSPECT})
"""Not Kafka's: brokers do not advertise them, and clients of ours ask without that."""


def find_api(api_key: int) -> Api | None:
    """The API of a key, or None."""
    return KNOWN.get(api_key)


def api_of(api_key: int) -> Api:
    """The API of a key. Raises ProtocolError (UNSUPPORTED_VERSION) if it is not known."""
    api = KNOWN.get(api_key)
    if api is None:
        raise ProtocolError(ErrorCode.UNSUPPORTED_VERSION, f"There is no API with key {api_key}.")
    return api
