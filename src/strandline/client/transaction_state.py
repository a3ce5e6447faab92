"""The states of a transactional producer, and which partitions are part of its transaction."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, NamedTuple, Protocol

from strandline.client.producer_identity import ProducerIdentity
from strandline.client.transaction_requester import TransactionRequester
from strandline.client.transaction_requests import (
    LAST_BY_CLIENTS,
    add_partitions_request,
    added_partitions_code,
)
from strandline.protocol.apis import ApiKey
from strandline.types import ProducerEpoch, ProducerId, TopicPartition


class State(Enum):
    """See `transaction_manager`. The values end the sentence "The producer..."."""

    UNINITIALIZED = "has not begun"
    INITIALIZING = "gets its producer id"
    READY = "is in no transaction"
    IN_TRANSACTION = "is in a transaction"
    COMMITTING = "commits a transaction"
    ABORTING = "aborts a transaction"
    ABORTABLE = "has to abort its transaction"
    FAILED = "has failed"


class Delegation(NamedTuple):
    """What a producer of another process needs to write in an open transaction."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    version: int
    """Of the protocol of transactions."""


class Batches(Protocol):
    """What the manager asks of the producer's batches."""

    @property
    def has_work(self) -> bool:
        """Whether any batch has no outcome yet."""

    def number_anew(self) -> None:
        """The producer has another id or epoch."""


class JoinedPartitions:
    """The partitions of a transaction of version 1, which join it before they are written to."""

    def __init__(self) -> None:
        self._wanted: dict[TopicPartition, None] = {}
        self._asked: dict[TopicPartition, None] = {}
        """They may have joined already."""
        self._joined: set[TopicPartition] = set()

    @property
    def has_work(self) -> bool:
        """Whether the coordinator is to be asked."""
        return bool(self._wanted or self._asked)

    @property
    def may_have_joined(self) -> bool:
        """Whether any has been asked for without an answer."""
        return bool(self._asked)

    def admits(self, partition: TopicPartition) -> bool:
        """Whether it may be written to; if not, it is going to be asked for."""
        if partition not in self._joined and partition not in self._asked:
            self._wanted[partition] = None
        return partition in self._joined

    def ask(
        self,
        requester: TransactionRequester,
        transactional_id: str,
        identity: ProducerIdentity,
        joined: Callable[[], None],
    ) -> None:
        """Ask the coordinator to add all that are wanted; `joined` is called when it has."""
        self._asked |= self._wanted
        self._wanted.clear()
        partitions = tuple(self._asked)

        def answered(answer: Any) -> None:
            del answer
            self._joined.update(partitions)
            for each in partitions:
                self._asked.pop(each, None)
            joined()

        requester.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            lambda _: add_partitions_request(transactional_id, identity, partitions),
            answered,
            highest=LAST_BY_CLIENTS,
            code_of=added_partitions_code,
        )

    def refused(self) -> None:
        """None of those that were asked for has joined."""
        self._asked.clear()

    def abort(self) -> None:
        """Nothing more is to be written."""
        self._wanted.clear()

    def ended(self) -> None:
        """The transaction is over."""
        self._wanted.clear()
        self._asked.clear()
        self._joined.clear()
