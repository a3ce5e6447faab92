"""FindCoordinator: which broker leads the partition in which a group, or a transaction, lives."""

from __future__ import annotations

from typing import Final

from strandline.cluster.controller import Refusal
from strandline.cluster.features import SHARE_VERSION, knows_transactions, level_of
from strandline.cluster.topic_names import (
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from strandline.errors import ErrorCode
from strandline.node.group_access import GroupAccess
from strandline.node.metadata import Metadata
from strandline.node.request import Request
from strandline.node.sharing.access import ShareAccess
from strandline.node.topic_creation import TopicCreation
from strandline.node.transaction_access import TransactionAccess
from strandline.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.types import Instant

_GROUP_KEY: Final = 0
_TRANSACTION_KEY: Final = 1
_SHARE_KEY: Final = 2
_MANY_KEYS_SINCE: Final = 4
_TOPICS: Final = {
    _GROUP_KEY: CONSUMER_OFFSETS,
    _TRANSACTION_KEY: TRANSACTION_STATE,
    _SHARE_KEY: SHARE_GROUP_STATE,
}
_HELD: Final = {
    _GROUP_KEY: "group",
    _TRANSACTION_KEY: "transaction",
    _SHARE_KEY: "share partition",
}


class FindCoordinatorHandler:
    """Answers FindCoordinator, versions 0 to 6; creates the topics of coordinators when asked."""

    def __init__(
        self,
        metadata: Metadata,
        creation: TopicCreation,
        groups: GroupAccess,
        transactions: TransactionAccess,
        sharing: ShareAccess,
    ) -> None:
        self._metadata = metadata
        self._creation = creation
        self._groups = groups
        self._transactions = transactions
        self._sharing = sharing

    def handle(self, request: Request[FindCoordinatorRequest], now: Instant) -> None:
        """Tell which broker coordinates each group, or each transactional id."""
        body = request.body
        topic = _TOPICS.get(body.key_type)
        if topic is None or topic in self._metadata.image.topics:
            self._reply(request)
            return

        def created(refused: dict[str, Refusal], at: Instant) -> None:
            del at
            self._reply(request, refused.get(topic))

        self._creation.ensure([topic], created, now)

    def _reply(
        self,
        request: Request[FindCoordinatorRequest],
        refusal: Refusal | None = None,
    ) -> None:
        """`refusal` tells why the topic of the coordinator could not be made."""
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

    def _partition_for(self, key_type: int, key: str) -> int:
        if key_type == _GROUP_KEY:
            return self._groups.host.partition_for(key)
        if key_type == _SHARE_KEY:
            return self._sharing.host.coordinator.partition_for_name(key)
        return self._transactions.host.partition_for(key)

    def _find(self, key_type: int, key: str, listener: str, refusal: Refusal | None) -> Coordinator:
        answer = Coordinator(key=key, node_id=-1, port=-1, error_message=None)
        if key_type not in _TOPICS:
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = f"There is no coordinator for keys of type {key_type}."
            return answer
        image = self._metadata.image
        if key_type == _SHARE_KEY and not (level_of(image, SHARE_VERSION) and key.count(":") > 1):
            answer.error_code = ErrorCode.INVALID_REQUEST
            answer.error_message = "A share partition is GROUP:TOPIC_ID:PARTITION."
            return answer
        if key_type == _TRANSACTION_KEY and not knows_transactions(image):
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer.error_message = (
                "A broker of a release without transactions is running in this cluster."
            )
            return answer
        topic = image.topics.get(_TOPICS[key_type])
        partition = topic and topic.partitions.get(self._partition_for(key_type, key))
        broker = image.brokers.get(partition.leader) if partition else None
        if broker is None:
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if partition is not None:
                answer.error_message = (
                    f"The partition that holds the {_HELD[key_type]} has no leader."
                )
            elif refusal is not None:
                answer.error_message = (
                    f"The topic {_TOPICS[key_type]} could not be made: {refusal.message}"
                )
            else:
                answer.error_message = f"The topic {_TOPICS[key_type]} is not ready yet."
            return answer
        endpoint = broker.endpoint(listener)
        if endpoint is None:
            answer.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            answer.error_message = (
                f"The broker that holds the {_HELD[key_type]} has no listener {listener}."
            )
            return answer
        answer.node_id, answer.host, answer.port = broker.broker_id, endpoint.host, endpoint.port
        return answer
