"""One request for every permission that an API asks for: what it is, and what it is answered."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from strandline.authorization.acls import CLUSTER_NAME, Operation, ResourceType
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    initialize_share_group_state,
    inspect,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_share_group_state,
    write_txn_markers,
)
from strandline.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from strandline.records.batch import ATTRIBUTES_AT, TRANSACTIONAL_BIT, set_crc
from tests.node.messages import batch

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ID = ResourceType.TRANSACTIONAL_ID
READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
SHOW, SET = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS

Permission = tuple[Operation, ResourceType]

NAMES = {TOPIC: "orders", GROUP: "g", ID: "tx", CLUSTER: CLUSTER_NAME}
"""The resource of each type that the requests below are about."""
NEW = "new"
"""A topic that there is not."""
TOKEN_ID = "of-zoe"


@dataclass(frozen=True)
class Case:
    """A request that needs `permission`, once it has what is `given`."""

    api: ApiKey
    version: int
    make: Callable[[UUID], Any]
    """From the id of the topic `orders`."""
    permission: Permission
    given: tuple[Permission, ...] = ()
    name: str | None = None
    """Of the resource, where it is not the one of `NAMES`."""

    def __str__(self) -> str:
        operation, kind = self.permission
        return f"{self.api.name}.{self.version} {operation.word} {kind.word}"

    @property
    def resource(self) -> str:
        return self.name or NAMES[self.permission[1]]


def _produce(topic_id: UUID, *, transactional: bool = False) -> produce.ProduceRequest:
    records = bytearray(batch(b"v", producer_id=7, epoch=0, sequence=0))
    records[ATTRIBUTES_AT + 1] |= TRANSACTIONAL_BIT
    set_crc(records, 0, len(records))
    return produce.ProduceRequest(
        transactional_id="tx" if transactional else None,
        acks=1,
        timeout_ms=100,
        topic_data=[
            produce.TopicProduceData(
                name="" if topic_id.int else "orders",
                topic_id=topic_id,
                partition_data=[
                    produce.PartitionProduceData(
                        index=0, records=memoryview(records if transactional else batch(b"v"))
                    )
                ],
            )
        ],
    )


def _fetch(version: int, topic_id: UUID, replica_id: int = -1) -> fetch.FetchRequest:
    by_id = version > 12
    topic = fetch.FetchTopic(
        topic="" if by_id else "orders",
        topic_id=topic_id if by_id else UUID(int=0),
        partitions=[fetch.FetchPartition(partition=0, partition_max_bytes=100)],
    )
    request = fetch.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=100, topics=[topic])
    if version > 14:
        request.replica_state = fetch.ReplicaState(replica_id=replica_id, replica_epoch=-1)
    else:
        request.replica_id = replica_id
    return request


def _metadata(*topics: str, operations: bool = False, **more: Any) -> metadata.MetadataRequest:
    asked = [metadata.MetadataRequestTopic(name=name) for name in topics]
    return metadata.MetadataRequest(
        topics=asked or None,
        include_topic_authorized_operations=operations,
        include_cluster_authorized_operations=operations,
        **more,
    )


def _configs(kind: int, name: str) -> describe_configs.DescribeConfigsRequest:
    return describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                resource_type=kind, resource_name=name, configuration_keys=None
            )
        ]
    )


def _alter(kind: int, name: str, setting: str, value: str) -> alter_configs.AlterConfigsRequest:
    config = alter_configs.AlterableConfig(name=setting, value=value)
    return alter_configs.AlterConfigsRequest(
        validate_only=True,
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[config]
            )
        ],
    )


def _incremental(kind: int, name: str, setting: str, value: str) -> Any:
    config = incremental_alter_configs.AlterableConfig(
        name=setting, config_operation=0, value=value
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        validate_only=True,
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[config]
            )
        ],
    )


def _offset_fetch(version: int, topic_id: UUID) -> offset_fetch.OffsetFetchRequest:
    if version < 8:
        return offset_fetch.OffsetFetchRequest(
            group_id="g",
            topics=[offset_fetch.OffsetFetchRequestTopic(name="orders", partition_indexes=[0])],
        )
    topic = offset_fetch.OffsetFetchRequestTopics(
        name="orders", topic_id=topic_id, partition_indexes=[0]
    )
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=[topic])]
    )


def _offset_commit(topic_id: UUID) -> offset_commit.OffsetCommitRequest:
    item = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topic = offset_commit.OffsetCommitRequestTopic(
        name="orders", topic_id=topic_id, partitions=[item]
    )
    return offset_commit.OffsetCommitRequest(group_id="g", topics=[topic])


def _txn_offset_commit(_: UUID) -> txn_offset_commit.TxnOffsetCommitRequest:
    item = txn_offset_commit.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic(name="orders", partitions=[item])
    return txn_offset_commit.TxnOffsetCommitRequest(
        transactional_id="tx", group_id="g", producer_id=1, topics=[topic]
    )


def _add_partitions(version: int) -> add_partitions_to_txn.AddPartitionsToTxnRequest:
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name="orders", partitions=[0])]
    if version < 4:
        return add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=1,
            v3_and_below_topics=topics,
        )
    transaction = add_partitions_to_txn.AddPartitionsToTxnTransaction(
        transactional_id="tx", producer_id=1, topics=topics
    )
    return add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[transaction])


def _markers(_: UUID) -> write_txn_markers.WriteTxnMarkersRequest:
    topic = write_txn_markers.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
    marker = write_txn_markers.WritableTxnMarker(producer_id=1, topics=[topic])
    return write_txn_markers.WriteTxnMarkersRequest(markers=[marker])


def _elect(_: UUID) -> elect_leaders.ElectLeadersRequest:
    topic = elect_leaders.TopicPartitions(topic="orders", partitions=[0])
    return elect_leaders.ElectLeadersRequest(topic_partitions=[topic])


def _acl_filter(**more: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": 1,
        "resource_name_filter": "nothing",
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
        **more,
    }


def _create_acl(_: UUID) -> create_acls.CreateAclsRequest:
    creation = create_acls.AclCreation(
        resource_type=2,
        resource_name="orders",
        principal="User:zoe",
        host="*",
        operation=3,
        permission_type=3,
    )
    return create_acls.CreateAclsRequest(creations=[creation])


def _list_offsets(_: UUID) -> list_offsets.ListOffsetsRequest:
    item = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = list_offsets.ListOffsetsTopic(name="orders", partitions=[item])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


def _epochs(_: UUID) -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    item = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="orders", partitions=[item])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])


def _delete_records(_: UUID) -> delete_records.DeleteRecordsRequest:
    item = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    topic = delete_records.DeleteRecordsTopic(name="orders", partitions=[item])
    return delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=100)


def _create_topic(_: UUID) -> create_topics.CreateTopicsRequest:
    topic = create_topics.CreatableTopic(name=NEW, num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[topic], validate_only=True)


def _delete_topic(version: int, topic_id: UUID) -> delete_topics.DeleteTopicsRequest:
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=["orders"])
    named = delete_topics.DeleteTopicState(topic_id=topic_id) if topic_id.int else None
    return delete_topics.DeleteTopicsRequest(
        topics=[named or delete_topics.DeleteTopicState(name="orders")]
    )


def _alter_partition(_: UUID) -> alter_partition.AlterPartitionRequest:
    return alter_partition.AlterPartitionRequest(broker_id=9)


def _find(key_type: int, key: str, version: int) -> find_coordinator.FindCoordinatorRequest:
    if version < 4:
        return find_coordinator.FindCoordinatorRequest(key=key, key_type=key_type)
    return find_coordinator.FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])


def _join(_: UUID) -> join_group.JoinGroupRequest:
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=b"")
    return join_group.JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, protocol_type="consumer", protocols=[protocol]
    )


def _group_heartbeat(_: UUID) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        group_id="k",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"],
        topic_partitions=[],
    )


_LOGS_TO_MOVE = alter_replica_log_dirs.AlterReplicaLogDirTopic(name="orders", partitions=[0])


def _share_heartbeat(_: UUID) -> share_group_heartbeat.ShareGroupHeartbeatRequest:
    return share_group_heartbeat.ShareGroupHeartbeatRequest(
        group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=["orders"]
    )


def _share_fetch(topic_id: UUID) -> share_fetch.ShareFetchRequest:
    topic = share_fetch.FetchTopic(
        topic_id=topic_id, partitions=[share_fetch.FetchPartition(partition_index=0)]
    )
    return share_fetch.ShareFetchRequest(
        group_id="s", member_id="m", max_records=1, batch_size=1, topics=[topic]
    )


def _share_acknowledge(topic_id: UUID) -> share_acknowledge.ShareAcknowledgeRequest:
    accepted = share_acknowledge.AcknowledgementBatch(
        first_offset=0, last_offset=0, acknowledge_types=[1]
    )
    item = share_acknowledge.AcknowledgePartition(
        partition_index=0, acknowledgement_batches=[accepted]
    )
    topic = share_acknowledge.AcknowledgeTopic(topic_id=topic_id, partitions=[item])
    return share_acknowledge.ShareAcknowledgeRequest(
        group_id="s", member_id="m", share_session_epoch=-1, topics=[topic]
    )


def _share_offsets(_: UUID) -> describe_share_group_offsets.DescribeShareGroupOffsetsRequest:
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
        group_id="s",
        topics=[
            describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(
                topic_name="orders", partitions=[0]
            )
        ],
    )
    return describe_share_group_offsets.DescribeShareGroupOffsetsRequest(groups=[group])


def _alter_share_offsets(_: UUID) -> alter_share_group_offsets.AlterShareGroupOffsetsRequest:
    topic = alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
        topic_name="orders",
        partitions=[
            alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(partition_index=0)
        ],
    )
    return alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id="s", topics=[topic])


def _delete_share_offsets(_: UUID) -> delete_share_group_offsets.DeleteShareGroupOffsetsRequest:
    topic = delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(topic_name="orders")
    return delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id="s", topics=[topic])


def _share_state(request: Any, topic: Any, item: Any) -> Callable[[UUID], Any]:
    def make(topic_id: UUID) -> Any:
        return request(
            group_id="s", topics=[topic(topic_id=topic_id, partitions=[item(partition=0)])]
        )

    return make


def _leave(version: int) -> leave_group.LeaveGroupRequest:
    if version < 3:
        return leave_group.LeaveGroupRequest(group_id="g", member_id="m")
    members = [leave_group.MemberIdentity(member_id="m")]
    return leave_group.LeaveGroupRequest(group_id="g", members=members)


_NO_ID = UUID(int=0)
_KEY = ApiKey


def _made(make: Callable[..., Any], *arguments: object) -> Callable[[UUID], Any]:
    """A request that does not tell the id of the topic."""
    return lambda _: make(*arguments)


def _produce_in(version: int, topic_id: UUID) -> produce.ProduceRequest:
    return _produce(topic_id if version > 12 else _NO_ID)


def _fetch_as_broker(version: int, topic_id: UUID) -> fetch.FetchRequest:
    return _fetch(version, topic_id, 1)


def _offset_fetch_in(version: int, topic_id: UUID) -> offset_fetch.OffsetFetchRequest:
    return _offset_fetch(version, topic_id if version > 9 else _NO_ID)


def _inspect(subject: str) -> inspect.InspectRequest:
    return inspect.InspectRequest(subject=subject)


CASES = [
    *(
        Case(
            _KEY.PRODUCE,
            version,
            partial(_produce_in, version),
            (WRITE, TOPIC),
        )
        for version in (3, 9, 13)
    ),
    Case(
        _KEY.PRODUCE,
        9,
        lambda _: _produce(_NO_ID, transactional=True),
        (WRITE, ID),
        ((WRITE, TOPIC),),
    ),
    *(
        Case(
            _KEY.FETCH,
            version,
            partial(_fetch, version),
            (READ, TOPIC),
        )
        for version in (4, 12, 18)
    ),
    *(
        Case(
            _KEY.FETCH,
            version,
            partial(_fetch_as_broker, version),
            (ACTION, CLUSTER),
        )
        for version in (12, 17)
    ),
    *(Case(_KEY.LIST_OFFSETS, version, _list_offsets, (DESCRIBE, TOPIC)) for version in (1, 11)),
    *(
        Case(_KEY.METADATA, version, lambda _: _metadata("orders"), (DESCRIBE, TOPIC))
        for version in (0, 7, 13)
    ),
    Case(
        _KEY.METADATA,
        13,
        lambda at: metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(topic_id=at, name=None)]
        ),
        (DESCRIBE, TOPIC),
    ),
    Case(_KEY.METADATA, 9, lambda _: _metadata(NEW), (CREATE, TOPIC), ((DESCRIBE, TOPIC),), NEW),
    *(
        Case(_KEY.OFFSET_COMMIT, version, _offset_commit, (READ, each), ((READ, other),))
        for version in (2, 8, 10)
        for each, other in ((TOPIC, GROUP), (GROUP, TOPIC))
    ),
    *(
        Case(
            _KEY.OFFSET_FETCH,
            version,
            partial(_offset_fetch_in, version),
            (DESCRIBE, each),
            ((DESCRIBE, other),),
        )
        for version in (1, 2, 7, 8, 10)
        for each, other in ((TOPIC, GROUP), (GROUP, TOPIC))
    ),
    *(
        Case(_KEY.FIND_COORDINATOR, version, _made(_find, 0, "g", version), (DESCRIBE, GROUP))
        for version in (0, 3, 6)
    ),
    *(
        Case(_KEY.FIND_COORDINATOR, version, _made(_find, 1, "tx", version), (DESCRIBE, ID))
        for version in (1, 6)
    ),
    *(Case(_KEY.JOIN_GROUP, version, _join, (READ, GROUP)) for version in (4, 6, 9)),
    Case(
        _KEY.SYNC_GROUP,
        5,
        lambda _: sync_group.SyncGroupRequest(
            group_id="g", member_id="m", protocol_type="consumer", protocol_name="range"
        ),
        (READ, GROUP),
    ),
    Case(
        _KEY.HEARTBEAT,
        4,
        lambda _: heartbeat.HeartbeatRequest(group_id="g", member_id="m"),
        (READ, GROUP),
    ),
    *(
        Case(
            _KEY.LEAVE_GROUP,
            version,
            _made(_leave, version),
            (READ, GROUP),
        )
        for version in (2, 5)
    ),
    *(
        Case(
            _KEY.DESCRIBE_GROUPS,
            version,
            lambda _: describe_groups.DescribeGroupsRequest(groups=["g"]),
            (DESCRIBE, GROUP),
        )
        for version in (0, 5, 6)
    ),
    Case(_KEY.LIST_GROUPS, 5, lambda _: list_groups.ListGroupsRequest(), (DESCRIBE, GROUP)),
    Case(_KEY.LIST_GROUPS, 0, lambda _: list_groups.ListGroupsRequest(), (DESCRIBE, CLUSTER)),
    Case(_KEY.CREATE_TOPICS, 7, _create_topic, (CREATE, TOPIC), (), NEW),
    Case(_KEY.CREATE_TOPICS, 7, _create_topic, (SHOW, TOPIC), ((CREATE, CLUSTER),), NEW),
    *(
        Case(_KEY.DELETE_TOPICS, version, partial(_delete_topic, version), (DELETE, TOPIC))
        for version in (1, 6)
    ),
    Case(_KEY.DELETE_TOPICS, 6, lambda _: _delete_topic(6, _NO_ID), (DELETE, TOPIC)),
    Case(_KEY.DELETE_RECORDS, 2, _delete_records, (DELETE, TOPIC)),
    Case(
        _KEY.INIT_PRODUCER_ID,
        4,
        lambda _: init_producer_id.InitProducerIdRequest(
            transactional_id="tx", transaction_timeout_ms=1000
        ),
        (WRITE, ID),
    ),
    Case(
        _KEY.INIT_PRODUCER_ID,
        4,
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id=None),
        (Operation.IDEMPOTENT_WRITE, CLUSTER),
    ),
    Case(
        _KEY.INIT_PRODUCER_ID,
        0,
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id=None),
        (WRITE, TOPIC),
        name="another",
    ),
    Case(_KEY.OFFSET_FOR_LEADER_EPOCH, 4, _epochs, (DESCRIBE, TOPIC)),
    Case(_KEY.OFFSET_FOR_LEADER_EPOCH, 2, _epochs, (ACTION, CLUSTER)),
    Case(
        _KEY.ADD_PARTITIONS_TO_TXN, 3, lambda _: _add_partitions(3), (WRITE, ID), ((WRITE, TOPIC),)
    ),
    Case(
        _KEY.ADD_PARTITIONS_TO_TXN, 0, lambda _: _add_partitions(0), (WRITE, TOPIC), ((WRITE, ID),)
    ),
    Case(_KEY.ADD_PARTITIONS_TO_TXN, 5, lambda _: _add_partitions(5), (ACTION, CLUSTER)),
    *(
        Case(
            _KEY.ADD_OFFSETS_TO_TXN,
            4,
            lambda _: AddOffsetsToTxnRequest(transactional_id="tx", producer_id=1, group_id="g"),
            needed,
            (given,),
        )
        for needed, given in (((WRITE, ID), (READ, GROUP)), ((READ, GROUP), (WRITE, ID)))
    ),
    Case(
        _KEY.END_TXN,
        5,
        lambda _: end_txn.EndTxnRequest(transactional_id="tx", producer_id=1),
        (WRITE, ID),
    ),
    Case(_KEY.WRITE_TXN_MARKERS, 2, _markers, (ACTION, CLUSTER)),
    Case(_KEY.WRITE_TXN_MARKERS, 1, _markers, (ALTER, CLUSTER)),
    *(
        Case(
            _KEY.TXN_OFFSET_COMMIT,
            3,
            _txn_offset_commit,
            needed,
            tuple({(WRITE, ID), (READ, GROUP), (READ, TOPIC)} - {needed}),
        )
        for needed in ((WRITE, ID), (READ, GROUP), (READ, TOPIC))
    ),
    Case(
        _KEY.DESCRIBE_ACLS,
        3,
        lambda _: describe_acls.DescribeAclsRequest(**_acl_filter()),
        (DESCRIBE, CLUSTER),
    ),
    Case(
        _KEY.DESCRIBE_CLIENT_QUOTAS,
        1,
        lambda _: describe_client_quotas.DescribeClientQuotasRequest(),
        (SHOW, CLUSTER),
    ),
    Case(
        _KEY.ALTER_CLIENT_QUOTAS,
        1,
        lambda _: alter_client_quotas.AlterClientQuotasRequest(
            entries=[
                alter_client_quotas.EntryData(
                    entity=[alter_client_quotas.EntityData(entity_type="user", entity_name="u")]
                )
            ]
        ),
        (SET, CLUSTER),
    ),
    Case(_KEY.CREATE_ACLS, 3, _create_acl, (ALTER, CLUSTER)),
    Case(
        _KEY.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None),
        (DESCRIBE, CLUSTER),
    ),
    Case(
        _KEY.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        lambda _: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            upsertions=[
                alter_user_scram_credentials.ScramCredentialUpsertion(
                    name="u", mechanism=1, iterations=4096, salt=b"s", salted_password=b"p"
                )
            ]
        ),
        (ALTER, CLUSTER),
    ),
    Case(
        _KEY.DELETE_ACLS,
        1,
        lambda _: delete_acls.DeleteAclsRequest(
            filters=[delete_acls.DeleteAclsFilter(**_acl_filter())]
        ),
        (ALTER, CLUSTER),
    ),
    Case(_KEY.DESCRIBE_CONFIGS, 4, lambda _: _configs(2, "orders"), (SHOW, TOPIC)),
    Case(_KEY.DESCRIBE_CONFIGS, 1, lambda _: _configs(4, "1"), (SHOW, CLUSTER)),
    Case(_KEY.DESCRIBE_CONFIGS, 4, lambda _: _configs(8, "1"), (SHOW, CLUSTER)),
    Case(_KEY.DESCRIBE_CONFIGS, 4, lambda _: _configs(32, "g"), (SHOW, GROUP)),
    *(
        Case(api, version, _made(make, *arguments), (SET, kind))
        for api, version, make in (
            (_KEY.ALTER_CONFIGS, 2, _alter),
            (_KEY.INCREMENTAL_ALTER_CONFIGS, 1, _incremental),
        )
        for kind, arguments in (
            (TOPIC, (2, "orders", "retention.ms", "1")),
            (CLUSTER, (4, "", "log.cleaner.backoff.ms", "1")),
            (GROUP, (32, "g", "consumer.session.timeout.ms", "45000")),
        )
    ),
    *(
        Case(
            _KEY.DESCRIBE_LOG_DIRS,
            version,
            lambda _: describe_log_dirs.DescribeLogDirsRequest(topics=None),
            (DESCRIBE, CLUSTER),
        )
        for version in (3, 5)
    ),
    Case(
        _KEY.ALTER_REPLICA_LOG_DIRS,
        2,
        lambda _: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            dirs=[
                alter_replica_log_dirs.AlterReplicaLogDir(
                    path="/nowhere",
                    topics=[
                        alter_replica_log_dirs.AlterReplicaLogDirTopic(
                            name="orders", partitions=[0]
                        )
                    ],
                )
            ]
        ),
        (ALTER, CLUSTER),
    ),
    Case(
        _KEY.CREATE_PARTITIONS,
        3,
        lambda _: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="orders", count=2)],
            validate_only=True,
        ),
        (ALTER, TOPIC),
    ),
    Case(
        _KEY.DELETE_GROUPS,
        2,
        lambda _: delete_groups.DeleteGroupsRequest(groups_names=["g"]),
        (DELETE, GROUP),
    ),
    *(Case(_KEY.ELECT_LEADERS, version, _elect, (ALTER, CLUSTER)) for version in (0, 2)),
    Case(
        _KEY.ALTER_PARTITION_REASSIGNMENTS,
        1,
        lambda _: alter_partition_reassignments.AlterPartitionReassignmentsRequest(),
        (ALTER, CLUSTER),
    ),
    Case(
        _KEY.LIST_PARTITION_REASSIGNMENTS,
        0,
        lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        (DESCRIBE, CLUSTER),
    ),
    *(
        Case(
            _KEY.OFFSET_DELETE,
            0,
            lambda _: offset_delete.OffsetDeleteRequest(
                group_id="g",
                topics=[
                    offset_delete.OffsetDeleteRequestTopic(
                        name="orders",
                        partitions=[offset_delete.OffsetDeleteRequestPartition(partition_index=0)],
                    )
                ],
            ),
            needed,
            (given,),
        )
        for needed, given in (
            ((DELETE, GROUP), (READ, TOPIC)),
            ((READ, TOPIC), (DELETE, GROUP)),
        )
    ),
    Case(_KEY.ALTER_PARTITION, 3, _alter_partition, (ACTION, CLUSTER)),
    Case(
        _KEY.UPDATE_FEATURES,
        2,
        lambda _: update_features.UpdateFeaturesRequest(validate_only=True),
        (ALTER, CLUSTER),
    ),
    Case(
        _KEY.DESCRIBE_CLUSTER,
        2,
        lambda _: describe_cluster.DescribeClusterRequest(
            include_cluster_authorized_operations=True
        ),
        (DESCRIBE, CLUSTER),
    ),
    Case(_KEY.METADATA, 8, lambda _: _metadata(operations=True), (DESCRIBE, CLUSTER)),
    Case(
        _KEY.DESCRIBE_PRODUCERS,
        0,
        lambda _: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name="orders", partition_indexes=[0])]
        ),
        (READ, TOPIC),
    ),
    Case(
        _KEY.UNREGISTER_BROKER,
        0,
        lambda _: unregister_broker.UnregisterBrokerRequest(broker_id=9),
        (ALTER, CLUSTER),
    ),
    Case(
        _KEY.DESCRIBE_TRANSACTIONS,
        0,
        lambda _: describe_transactions.DescribeTransactionsRequest(transactional_ids=["tx"]),
        (DESCRIBE, ID),
    ),
    Case(
        _KEY.DESCRIBE_TRANSACTIONS,
        0,
        lambda _: describe_transactions.DescribeTransactionsRequest(transactional_ids=["open"]),
        (DESCRIBE, TOPIC),
        ((DESCRIBE, ID),),
    ),
    Case(
        _KEY.LIST_TRANSACTIONS,
        2,
        lambda _: list_transactions.ListTransactionsRequest(),
        (DESCRIBE, ID),
        name="open",
    ),
    *(
        Case(_KEY.CONSUMER_GROUP_HEARTBEAT, 1, _group_heartbeat, needed, (given,), name)
        for needed, given, name in (
            ((READ, GROUP), (DESCRIBE, TOPIC), "k"),
            ((DESCRIBE, TOPIC), (READ, GROUP), None),
        )
    ),
    *(
        Case(
            _KEY.CONSUMER_GROUP_DESCRIBE,
            1,
            lambda _: consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=["k"]),
            needed,
            (given,),
            name,
        )
        for needed, given, name in (
            ((DESCRIBE, GROUP), (DESCRIBE, TOPIC), "k"),
            ((DESCRIBE, TOPIC), (DESCRIBE, GROUP), None),
        )
    ),
    Case(
        _KEY.FIND_COORDINATOR,
        6,
        lambda at: _find(2, f"s:{base64.urlsafe_b64encode(at.bytes).decode()[:22]}:0", 6),
        (ACTION, CLUSTER),
    ),
    *(
        Case(api, version, make, (operation, each), ((operation_of_other, other),), name)
        for api, version, make, of_group, of_topic in (
            (_KEY.SHARE_GROUP_HEARTBEAT, 1, _share_heartbeat, READ, DESCRIBE),
            (
                _KEY.SHARE_GROUP_DESCRIBE,
                1,
                lambda _: share_group_describe.ShareGroupDescribeRequest(group_ids=["s"]),
                DESCRIBE,
                DESCRIBE,
            ),
            (_KEY.SHARE_FETCH, 2, _share_fetch, READ, READ),
            (_KEY.SHARE_ACKNOWLEDGE, 2, _share_acknowledge, READ, READ),
            (_KEY.DESCRIBE_SHARE_GROUP_OFFSETS, 1, _share_offsets, DESCRIBE, DESCRIBE),
            (_KEY.ALTER_SHARE_GROUP_OFFSETS, 0, _alter_share_offsets, READ, READ),
            (_KEY.DELETE_SHARE_GROUP_OFFSETS, 0, _delete_share_offsets, DELETE, READ),
        )
        for operation, each, operation_of_other, other, name in (
            (of_group, GROUP, of_topic, TOPIC, "s"),
            (of_topic, TOPIC, of_group, GROUP, None),
        )
    ),
    *(
        Case(api, 0, _share_state(*made), (ACTION, CLUSTER))
        for api, *made in (
            (
                _KEY.INITIALIZE_SHARE_GROUP_STATE,
                initialize_share_group_state.InitializeShareGroupStateRequest,
                initialize_share_group_state.InitializeStateData,
                initialize_share_group_state.PartitionData,
            ),
            (
                _KEY.READ_SHARE_GROUP_STATE,
                read_share_group_state.ReadShareGroupStateRequest,
                read_share_group_state.ReadStateData,
                read_share_group_state.PartitionData,
            ),
            (
                _KEY.WRITE_SHARE_GROUP_STATE,
                write_share_group_state.WriteShareGroupStateRequest,
                write_share_group_state.WriteStateData,
                write_share_group_state.PartitionData,
            ),
            (
                _KEY.DELETE_SHARE_GROUP_STATE,
                delete_share_group_state.DeleteShareGroupStateRequest,
                delete_share_group_state.DeleteStateData,
                delete_share_group_state.PartitionData,
            ),
            (
                _KEY.READ_SHARE_GROUP_STATE_SUMMARY,
                read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
                read_share_group_state_summary.ReadStateSummaryData,
                read_share_group_state_summary.PartitionData,
            ),
        )
    ),
    Case(
        _KEY.LIST_CONFIG_RESOURCES,
        1,
        lambda _: list_config_resources.ListConfigResourcesRequest(),
        (SHOW, CLUSTER),
    ),
    Case(
        _KEY.DESCRIBE_TOPIC_PARTITIONS,
        0,
        lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name="orders")]
        ),
        (DESCRIBE, TOPIC),
    ),
    Case(
        _KEY.CREATE_DELEGATION_TOKEN,
        3,
        lambda _: create_delegation_token.CreateDelegationTokenRequest(
            owner_principal_type="User", owner_principal_name="zoe"
        ),
        (Operation.CREATE_TOKENS, ResourceType.USER),
        name="User:zoe",
    ),
    *(
        Case(
            _KEY.DESCRIBE_DELEGATION_TOKEN,
            version,
            lambda _: describe_delegation_token.DescribeDelegationTokenRequest(owners=None),
            (operation, kind),
            name=name,
        )
        for version, operation, kind, name in (
            (3, DESCRIBE, ResourceType.DELEGATION_TOKEN, TOKEN_ID),
            (1, Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:zoe"),
        )
    ),
    Case(_KEY.INSPECT, 0, lambda _: inspect.InspectRequest(subject="why"), (DESCRIBE, CLUSTER)),
    *(
        Case(
            _KEY.INSPECT,
            0,
            _made(_inspect, subject),
            (ALTER, CLUSTER),
        )
        for subject in ("compact", "faults", "ledger")
    ),
]
