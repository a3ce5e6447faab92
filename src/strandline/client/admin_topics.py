"""Creating, describing, widening, emptying and deleting topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from strandline.client.arguments import a_name, a_number, as_texts, several
from strandline.client.cluster import ClusterClient
from strandline.client.connection import Connection
from strandline.client.metadata import TopicInfo
from strandline.client.offsets import outcome
from strandline.client.refusal import check, refusal
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from strandline.types import BrokerId, Offset, TopicId, TopicPartition

T = TypeVar("T")

BROKER_DEFAULT: Final = -1
"""As many partitions or replicas as the broker gives a topic by default (KIP-464)."""
HIGH_WATERMARK: Final = Offset(-1)
"""For `delete_records`: everything that is there."""
_TOPIC_STATES_SINCE: Final = 6


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic that was made, or with `validate_only` would have been. -1: the broker is too old."""

    name: str
    topic_id: TopicId
    partitions: int
    replication_factor: int


class TopicAdmin:
    """See the module."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    def create(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, object] | None = None,
        assignment: Mapping[int, Sequence[BrokerId]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Make a topic. `assignment` places the replicas by hand and says their numbers itself."""
        factor = a_number(replication_factor, "The replication factor")
        count = a_number(partitions, "The number of partitions")
        topic = CreatableTopic(
            name=a_name(name),
            num_partitions=BROKER_DEFAULT if assignment else count,
            replication_factor=BROKER_DEFAULT if assignment else factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
                for number, brokers in (assignment or {}).items()
            ],
            configs=[
                CreatableTopicConfig(name=each, value=value)
                for each, value in as_texts(configs or {}).items()
            ],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only
        )

        def attempt(connection: Connection) -> CreatedTopic:
            response = connection.call(ApiKey.CREATE_TOPICS, CreateTopicsResponse, request)
            result = one_of(response.topics, name)
            check(result.error_code, result.error_message, f"topic '{name}'")
            return CreatedTopic(
                name, result.topic_id, result.num_partitions, result.replication_factor
            )

        return self._cluster.retry_on_controller(attempt)

    def delete(self, names: Iterable[str]) -> dict[str, ProtocolError | None]:
        """Delete topics with all of their records; the outcome of each. `TypeError` for one name
        that is not in a list."""
        wanted = list(dict.fromkeys(several(names, "Topics")))

        def request(version: int) -> DeleteTopicsRequest:
            if version >= _TOPIC_STATES_SINCE:
                states = [DeleteTopicState(name=each) for each in wanted]
                return DeleteTopicsRequest(topics=states, timeout_ms=self._timeout_ms)
            return DeleteTopicsRequest(topic_names=wanted, timeout_ms=self._timeout_ms)

        def attempt(connection: Connection) -> dict[str, ProtocolError | None]:
            response = connection.call(ApiKey.DELETE_TOPICS, DeleteTopicsResponse, request)
            _check_controller(each.error_code for each in response.responses)
            return {
                each.name or "": outcome(
                    each.error_code, _useful(each.error_message), f"topic '{each.name}'"
                )
                for each in response.responses
            }

        outcomes = self._cluster.retry_on_controller(attempt)
        self._cluster.forget(wanted)
        return outcomes

    def list_all(self) -> list[TopicInfo]:
        """All topics, internal ones included, in the order of their names."""
        view = self._cluster.refresh(None)
        return [view.topics[name] for name in sorted(view.topics)]

    def describe(self, name: str) -> TopicInfo:
        """A topic as it is now. Raises `ProtocolError` if there is none."""
        view = self._cluster.refresh([name])
        found = view.topics.get(name)
        if found is None:
            code = view.refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise refusal(code, None, f"topic '{name}'")
        return found

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> None:
        """Widen a topic to `total` partitions. Keys may go elsewhere from then on."""
        count = a_number(total, "The number of partitions")
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=a_name(name), count=count, assignments=None)],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )

        def attempt(connection: Connection) -> None:
            response = connection.call(ApiKey.CREATE_PARTITIONS, CreatePartitionsResponse, request)
            result = one_of(response.results, name)
            check(result.error_code, _useful(result.error_message), f"topic '{name}'")

        self._cluster.retry_on_controller(attempt)
        self._cluster.forget([name])

    def delete_records(
        self, before: Mapping[TopicPartition, Offset]
    ) -> dict[TopicPartition, Offset]:
        """Delete the records below these offsets; where each log starts afterwards.

        Raises the first refusal; partitions of other leaders may be done by then.
        """
        done: dict[TopicPartition, Offset] = {}

        def attempt() -> None:
            missing = [each for each in before if each not in done]
            for leader, partitions in self._cluster.by_leader(missing).items():
                connection = self._cluster.connection_to(leader)
                asked = {each: before[each] for each in partitions}
                self._delete_on(connection, asked, done)

        self._cluster.retry_on_topics(attempt, {each.topic for each in before})
        return done

    def _delete_on(
        self,
        connection: Connection,
        before: Mapping[TopicPartition, Offset],
        done: dict[TopicPartition, Offset],
    ) -> None:
        topics: dict[str, DeleteRecordsTopic] = {}
        for (name, number), offset in before.items():
            topic = topics.setdefault(name, DeleteRecordsTopic(name=name))
            topic.partitions.append(DeleteRecordsPartition(partition_index=number, offset=offset))
        response = connection.call(
            ApiKey.DELETE_RECORDS,
            DeleteRecordsResponse,
            DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=self._timeout_ms),
        )
        for answers in response.topics:
            for each in answers.partitions:
                partition = TopicPartition(answers.name, each.partition_index)
                check(each.error_code, None, f"partition {partition}")
                done[partition] = Offset(each.low_watermark)

    @property
    def _timeout_ms(self) -> int:
        return self._cluster.settings.request_timeout_ms


def one_of(results: Sequence[T], name: str) -> T:
    """The result for `name` in an answer about one thing."""
    if len(results) != 1:
        raise ProtocolError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"An answer about '{name}' has {len(results)} results."
        )
    return results[0]


def _check_controller(codes: Iterable[int]) -> None:
    """Raise NOT_CONTROLLER if one of the outcomes says so, to ask again elsewhere."""
    if ErrorCode.NOT_CONTROLLER in codes:
        raise refusal(ErrorCode.NOT_CONTROLLER, None, "")


def _useful(message: str | None) -> str | None:
    """Kafka's own stock sentences say less than ours do."""
    return None if message and message.startswith("This server does not host") else message
