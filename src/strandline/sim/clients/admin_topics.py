"""Operations on topics: make, delete, make anew, widen, and change their settings or defaults."""

from __future__ import annotations

from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from strandline.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from strandline.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from strandline.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.sim.clients.admin import (
    TIMEOUT_MS,
    AdminOperation,
    Request,
    Script,
    brokers_named,
    verdict,
)

_GROUP: Final = 32
_TOPIC: Final = 2
_BROKER: Final = 4
_CLUSTER_DEFAULTS: Final = ""
"""In place of a broker's id: all brokers."""
_SET: Final = 0
_RESET: Final = 1
RESET_WORD: Final = "-"
"""In place of a value: as if it was never set."""
_UNDER_DELETION: Final = frozenset({ErrorCode.TOPIC_ALREADY_EXISTS})


def first_topic(answer: Any) -> int:
    """The error of the only topic of a CreateTopics answer."""
    code: int = answer.topics[0].error_code
    return code


def first_response(answer: Any) -> int:
    """The error of the only thing that an answer is about."""
    code: int = answer.responses[0].error_code
    return code


def first_result(answer: Any) -> int:
    """Likewise, where the answer calls it a result."""
    code: int = answer.results[0].error_code
    return code


class CreateTopic(AdminOperation):
    """`create-topic t partitions=2 replication=3 min.insync.replicas=2`, or with the replicas of
    each partition: `assignment=1:2:3,2:3:1`."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        answer = yield self.creation()
        return verdict(first_topic(answer))

    def creation(self, also_again: frozenset[ErrorCode] = frozenset()) -> Request:
        """The request."""
        placed = self.action.options.get("assignment")
        assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=brokers_named(word, ":"))
            for number, word in enumerate(placed.split(",") if placed else ())
        ]
        topic = CreatableTopic(
            name=self.action.word(0),
            num_partitions=-1 if placed else self.action.number("partitions", 1),
            replication_factor=-1 if placed else self.action.number("replication", 3),
            assignments=assignments,
            configs=[
                CreatableTopicConfig(name=name, value=value)
                for name, value in self.settings("partitions", "replication", "assignment").items()
            ],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        return Request(ApiKey.CREATE_TOPICS, request, first_topic, also_again=also_again)


class DeleteTopic(AdminOperation):
    """`delete-topic t`. Of a topic that is not there, the deletion has worked."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        answer = yield deletion(self.action.word(0))
        return verdict(first_response(answer))


class RecreateTopic(CreateTopic):
    """`recreate-topic t partitions=2`: delete it, and make one of the same name at once (F-68)."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        answer = yield deletion(self.action.word(0))
        code = first_response(answer)
        if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            return verdict(code)
        # As long as anything of the old one is left, the name is taken.
        answer = yield self.creation(_UNDER_DELETION)
        return verdict(first_topic(answer))


def deletion(topic: str) -> Request:
    """The request that deletes a topic by its name."""
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=TIMEOUT_MS)
    return Request(ApiKey.DELETE_TOPICS, request, first_response)


class AddPartitions(AdminOperation):
    """`add-partitions t total=4`."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        topic = CreatePartitionsTopic(
            name=self.action.word(0), count=self.action.number("total", 2), assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = yield Request(ApiKey.CREATE_PARTITIONS, request, first_result)
        return verdict(first_result(answer))


class AlterConfig(AdminOperation):
    """`alter-config t min.insync.replicas=1 segment.bytes=-`: sets, or with `-` resets (F-69)."""

    def resource(self) -> tuple[int, str]:
        """The resource of the settings: type and name."""
        return _TOPIC, self.action.word(0)

    def script(self) -> Script:
        """See `AdminOperation`."""
        configs = [
            AlterableConfig(name=name, config_operation=_RESET, value=None)
            if value == RESET_WORD
            else AlterableConfig(name=name, config_operation=_SET, value=value)
            for name, value in self.settings().items()
        ]
        kind, name = self.resource()
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource])
        answer = yield Request(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, first_response)
        return verdict(first_response(answer))


class AlterDefaults(AlterConfig):
    """`alter-defaults min.insync.replicas=1`: the same for the defaults of all brokers."""

    def resource(self) -> tuple[int, str]:
        """See `AlterConfig`."""
        return _BROKER, _CLUSTER_DEFAULTS


class AlterGroup(AlterConfig):
    """`alter-group g share.auto.offset.reset=earliest`: the same for a group."""

    def resource(self) -> tuple[int, str]:
        """See `AlterConfig`."""
        return _GROUP, self.action.word(0)
