"""A client without permissions, in clusters with an authorizer: it must be denied (I-58).

`client intruder intruder1 topic=t every=300ms`

Its principal is that of no super user and of no ACL. Each request is well formed and would be
served if it were anyone else's: it writes, reads, deletes, changes settings, commits offsets, and
looks around. Any part of an answer that is not a refusal is a finding; what got into a log would
besides be read as a value that no client has sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, Final

from strandline.authorization.acls import Operation, Permission, ResourceType
from strandline.errors import ErrorCode, MalformedFrame
from strandline.protocol.apis import KNOWN, ApiKey
from strandline.protocol.framing import parse_response_header, request_frame
from strandline.protocol.messages import (
    create_acls,
    create_topics,
    delete_records,
    delete_topics,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
)
from strandline.protocol.messages import incremental_alter_configs as configs
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from strandline.protocol.schema import decode_response
from strandline.records.builder import build_batch
from strandline.records.record import Record
from strandline.sim.clients.client_options import ClientOptions
from strandline.sim.clients.tries import Try, TryingClient
from strandline.sim.clients.world import ClientWorld
from strandline.sim.plan import ClientSpec
from strandline.sim.principals import INTRUDER
from strandline.types import NO_OFFSET, BrokerId

_SERVED: Final = ErrorCode.NONE
_STOLEN: Final = "stolen"


class _Attempt(Try):
    """One request, every part of whose answer is to be a refusal."""

    def __init__(self, owner: Intruder, what: str, target: BrokerId) -> None:
        key, version, request, _ = ATTEMPTS[what]
        chunks = request_frame(KNOWN[key], version, 1, INTRUDER, request(owner.topic))
        data = b"".join(chunks)  # type: ignore[arg-type]  # it sends no ranges of files
        super().__init__(owner, what, data)
        self._intruder = owner
        self._target = target

    def received(self, frame: bytes) -> None:
        """See `Peer`."""
        key, version, _, outcomes = ATTEMPTS[self.what]
        if self.wire is not None and not self.wire.is_damaged:
            intruder = self._intruder
            try:
                _, position = parse_response_header(memoryview(frame), KNOWN[key], version)
                answer = decode_response(key, version, frame, position)
            except MalformedFrame as error:
                intruder.found("I-47", f"{intruder.name} got a malformed answer: {error}")
            else:
                if _SERVED in map(ErrorCode, outcomes(answer)):
                    intruder.served(self.what, self._target)
        self.end("denied")


class Intruder(TryingClient):
    """See the module."""

    kind: ClassVar[str] = INTRUDER

    def __init__(self, world: ClientWorld, spec: ClientSpec, options: ClientOptions) -> None:
        super().__init__(world, spec, options, every="300ms")
        self.topic = options.text("topic", "t")
        self.repertoire = list(ATTEMPTS)
        """The request to send, drawn each time."""

    def act(self) -> None:
        """See `TryingClient`."""
        what = self.random.choice(self.repertoire)
        # Much is for the leader or the controller only: whichever broker that is, it is asked.
        for number in range(self.world.options.brokers):
            target = BrokerId(number + 1)
            self.begin(_Attempt(self, what, target), target)

    def served(self, what: str, target: BrokerId) -> None:
        """Something was not refused."""
        self.found("I-58", f"Broker {target} let {self.name} {what}.")


def _of_items(*path: str) -> Callable[[Any], Iterator[int]]:
    """The codes of all items that lie below these lists."""

    def codes(answer: Any) -> Iterator[int]:
        items: Iterable[Any] = [answer]
        for name in path:
            items = [inner for item in items for inner in getattr(item, name)]
        for item in items:
            yield item.error_code

    return codes


def _of_sight(name: str) -> Callable[[Any], Iterator[int]]:
    """Served if the list has anything."""
    return lambda answer: iter([_SERVED] if getattr(answer, name) else [])


def _produce(topic: str) -> ProduceRequest:
    records = memoryview(build_batch([Record(NO_OFFSET, 0, None, _STOLEN.encode())]))
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=records)]
    )
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=[data])


def _fetch(topic: str) -> FetchRequest:
    partition = FetchPartition(partition=0, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_bytes=1_000_000, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def _claim(topic: str) -> FetchRequest:
    """As a follower, whose fetch would confirm records, and throw the true follower out."""
    request = _fetch(topic)
    request.replica_id = 1
    return request


def _list_offsets(topic: str) -> list_offsets.ListOffsetsRequest:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    asked = list_offsets.ListOffsetsTopic(name=topic, partitions=[partition])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[asked])


def _delete_records(topic: str) -> delete_records.DeleteRecordsRequest:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=-1)
    asked = delete_records.DeleteRecordsTopic(name=topic, partitions=[partition])
    return delete_records.DeleteRecordsRequest(topics=[asked], timeout_ms=1000)


def _alter(topic: str) -> configs.IncrementalAlterConfigsRequest:
    change = configs.AlterableConfig(name="retention.ms", config_operation=0, value="1")
    resource = configs.AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    return configs.IncrementalAlterConfigsRequest(resources=[resource])


def _create(_: str) -> create_topics.CreateTopicsRequest:
    topic = create_topics.CreatableTopic(name=_STOLEN, num_partitions=1, replication_factor=1)
    return create_topics.CreateTopicsRequest(topics=[topic])


def _delete(topic: str) -> delete_topics.DeleteTopicsRequest:
    return delete_topics.DeleteTopicsRequest(topic_names=[topic])


def _commit(topic: str) -> offset_commit.OffsetCommitRequest:
    item = offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    asked = offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[item])
    return offset_commit.OffsetCommitRequest(group_id=INTRUDER, topics=[asked])


def _look(_: str) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(topics=None)


def _groups(_: str) -> list_groups.ListGroupsRequest:
    return list_groups.ListGroupsRequest()


def _allow(topic: str) -> create_acls.CreateAclsRequest:
    """Itself."""
    creation = create_acls.AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=topic,
        principal="User:*",
        host="*",
        operation=Operation.ALL,
        permission_type=Permission.ALLOW,
    )
    return create_acls.CreateAclsRequest(creations=[creation])


_Asked = tuple[ApiKey, int, Callable[[str], Any], Callable[[Any], Iterable[int]]]
"""What is asked in which version, and the codes of what it was answered."""

_PARTITIONS: Final = _of_items("topics", "partitions")

ATTEMPTS: Final[dict[str, _Asked]] = {
    "write": (ApiKey.PRODUCE, 9, _produce, _of_items("responses", "partition_responses")),
    "read": (ApiKey.FETCH, 12, _fetch, _of_items("responses", "partitions")),
    "claim to be a follower": (ApiKey.FETCH, 11, _claim, _of_items("responses", "partitions")),
    "see an offset": (ApiKey.LIST_OFFSETS, 7, _list_offsets, _PARTITIONS),
    "delete records": (
        ApiKey.DELETE_RECORDS,
        2,
        _delete_records,
        _of_items("topics", "partitions"),
    ),
    "change a setting": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _alter, _of_items("responses")),
    "create a topic": (ApiKey.CREATE_TOPICS, 5, _create, _of_items("topics")),
    "delete a topic": (ApiKey.DELETE_TOPICS, 5, _delete, _of_items("responses")),
    "commit an offset": (ApiKey.OFFSET_COMMIT, 8, _commit, _PARTITIONS),
    "see topics": (ApiKey.METADATA, 9, _look, _of_sight("topics")),
    "see groups": (ApiKey.LIST_GROUPS, 4, _groups, _of_sight("groups")),
    "write an ACL": (ApiKey.CREATE_ACLS, 3, _allow, _of_items("results")),
}
