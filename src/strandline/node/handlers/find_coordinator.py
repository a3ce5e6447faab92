"""FindCoordinator: which broker leads the partition in which a group lives."""

from __future__ import annotations

from typing import Final

from strandline.cluster.controller import Refusal
from strandline.cluster.topic_names import CONSUMER_OFFSETS
from strandline.errors import ErrorCode
from strandline.node.group_host import GroupHost
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.topic_creation import TopicCreation
from strandline.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.types import Instant

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_MANY_KEYS_SINCE: Final = 4


class FindCoordinatorHandler:
    """Answers FindCoordinator, versions 0 to 6; creates `__consumer_offsets` at its first use."""

    def __init__(self, metadata: Metadata, groups: GroupHost, creation: TopicCreation) -> None:
        self._metadata = metadata
        self._groups = groups
        self._creation = creation

    def handle(self, request: Request[FindCoordinatorRequest], now: Instant) -> None:
        """Tell which broker coordinates each group."""
        body = request.body
        if body.key_type != _GROUP_KEY or CONSUMER_OFFSETS in self._metadata.image.topics:
            self._reply(request)
            return

        def created(refused: dict[str, Refusal], at: Instant) -> None:
            del at
            self._reply(request, refused.get(CONSUMER_OFFSETS))

        self._creation.ensure([CONSUMER_OFFSETS], created, now)

    def _reply(
        self,
        request: Request[FindCoordinatorRequest],
        refusal: Refusal | None = None,
    ) -> None:
        """`refusal` tells why the topic of the groups could not be made."""
        body, listener = request.body, request.connection.listener
        if request.version >= _MANY_KEYS_SINCE:
            request.reply(
                FindCoordinatorResponse(
                    coordinators=[
                        self._find(body.key_type, key, listener, refusal)
                        for key in body.coordinator_keys
                    ]
                )
            )
            return
        found = self._find(body.key_type, body.key, listener, refusal)
        request.reply(
            FindCoordinatorResponse(
                error_code=found.error_code,
                error_message=found.error_message,
                node_id=found.node_id,
                host=found.host,
                port=found.port,
            )
        )

    def _find(self, key_type: int, key: str, listener: str, refusal: Refusal | None) -> Coordinator:
        answer = Coordinator(key=key, node_id=-1, port=-1, error_message=None)
        if key_type == _TRANSACTION_KEY:
            answer.error_code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            answer.error_message = "Transactions are not served by this version of Strandline."
            return answer
        if key_type != _GROUP_KEY:
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = f"There is no coordinator for keys of type {key_type}."
            return answer
        image = self._metadata.image
        topic = image.topics.get(CONSUMER_OFFSETS)
        partition = topic and topic.partitions.get(self._groups.partition_for(key))
        broker = image.brokers.get(partition.leader) if partition else None
        if broker is None:
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if partition is not None:
                answer.error_message = "The partition that holds the group has no leader."
            elif refusal is not None:
                answer.error_message = (
                    f"The topic {CONSUMER_OFFSETS} could not be made: {refusal.message}"
                )
            else:
                answer.error_message = f"The topic {CONSUMER_OFFSETS} is not ready yet."
            return answer
        endpoint = broker.endpoint_for(listener)
        answer.node_id, answer.host, answer.port = broker.broker_id, endpoint.host, endpoint.port
        return answer
