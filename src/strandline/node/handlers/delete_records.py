"""DeleteRecords: raise the log start offset of partitions, for good.

The leader raises its own at once; followers learn of it with their next fetch. The client is
answered when every live replica has done so, that is when the low watermark is there: from then on
no failover brings the records back (I-27).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from strandline.errors import ErrorCode, InvariantViolated, ProtocolError, StorageError
from strandline.node.purgatory import TOLD_MAX, Purgatory, Wait
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from strandline.types import NO_OFFSET, Instant, Offset

_TO_HIGH_WATERMARK: Final = -1


class DeleteRecordsHandler:
    """Answers DeleteRecords, versions 0 to 2."""

    def __init__(self, replicas: Replicas, purgatory: Purgatory) -> None:
        self._replicas = replicas
        self._purgatory = purgatory

    def handle(self, request: Request[DeleteRecordsRequest], now: Instant) -> None:
        """Delete up to each offset, or tell why not; wait for the replicas."""
        response = DeleteRecordsResponse()
        pending: list[_Pending] = []
        for topic in request.body.topics:
            answers = DeleteRecordsTopicResult(name=topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                answer = DeleteRecordsPartitionResult(partition_index=partition.partition_index)
                answers.partitions.append(answer)
                try:
                    replica = self._replica(topic.name, partition.partition_index)
                    target = _delete(replica, partition.offset)
                except (ProtocolError, StorageError) as error:
                    _refuse(answer, error)
                    continue
                pending.append(_Pending(self._replicas, replica, target, answer))
        self._purgatory.complete_or_park(
            WaitingDeletion(request, response, pending),
            [item.replica.watch_low_watermark() for item in pending],
            deadline_ms=now.monotonic_ms + max(0, request.body.timeout_ms),
            now=now,
        )

    def _replica(self, topic: str, number: int) -> Replica:
        if topic in self._replicas.internal_topics:
            raise ProtocolError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        return self._replicas.leader(topic, number)


def _delete(replica: Replica, offset: int) -> Offset:
    """Raise the log start of the leader; returns what the low watermark must become."""
    log = replica.log
    if log.config.is_compacted and not log.config.deletes_old_segments:
        raise ProtocolError(ErrorCode.POLICY_VIOLATION)
    target = log.high_watermark if offset == _TO_HIGH_WATERMARK else offset
    if target < 0 or target > log.high_watermark:
        raise ProtocolError(ErrorCode.OFFSET_OUT_OF_RANGE)
    log.retention.delete_records_to(Offset(target))
    replica.changed()
    return Offset(target)


def _refuse(answer: DeleteRecordsPartitionResult, error: ProtocolError | StorageError) -> None:
    answer.low_watermark = NO_OFFSET
    if isinstance(error, ProtocolError):
        answer.error_code = error.code
    else:
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR


@dataclass(slots=True)
class _Pending:
    """A partition whose replicas may not have deleted everything up to `target` yet."""

    replicas: Replicas
    replica: Replica
    target: Offset
    answer: DeleteRecordsPartitionResult

    def is_decided(self) -> bool:
        """Whether all live replicas have, or this node cannot tell any more."""
        try:
            if self.replica.is_retired:
                # Deleted, moved away, or on a disk that has failed; or all of it is over already.
                self.replicas.leader(*self.replica.topic_partition)
            low_watermark = self.replica.check_leading().low_watermark
        except ProtocolError as error:
            _refuse(self.answer, error)
            return True
        if low_watermark < self.target:
            return False
        self.answer.low_watermark = low_watermark
        self.replica.check_leading().state.note_deleted(low_watermark)
        return True


class WaitingDeletion:
    """A request that is answered when all its partitions are decided."""

    def __init__(
        self,
        request: Request[DeleteRecordsRequest],
        response: DeleteRecordsResponse,
        pending: list[_Pending],
    ) -> None:
        self.connection = request.connection
        self._request = request
        self._response = response
        self._pending = pending

    def try_complete(self, now: Instant) -> bool:
        """Answer once nothing is pending any more."""
        del now
        self._pending = [item for item in self._pending if not item.is_decided()]
        if self._pending:
            return False
        self._request.reply(self._response)
        return True

    def check(self) -> None:
        """See `Operation`: some partition is not decided."""
        for item in self._pending:
            leading = item.replica.leading
            if (
                leading is not None
                and not item.replica.is_retired
                and leading.low_watermark < item.target
            ):
                return
        ends = [(str(item.replica.topic_partition), item.target) for item in self._pending]
        raise InvariantViolated(
            f"A deletion of {self.connection.client_host} waits, but every live replica of {ends} "
            f"starts there.",
            invariant="I-40",
        )

    def wait(self) -> Wait:
        """For people."""
        names = tuple(
            f"{each.replica.topic_partition} to {each.target}" for each in self._pending[:TOLD_MAX]
        )
        return Wait(self._request, names, "every living replica to delete the records")

    def expire(self, now: Instant) -> None:
        """Tell that some replicas have not said yet that they deleted the records, and up to
        where all have (as Kafka does)."""
        del now
        for item in self._pending:
            if not item.is_decided():
                item.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
                item.answer.low_watermark = item.replica.check_leading().low_watermark
        self._request.reply(self._response)
