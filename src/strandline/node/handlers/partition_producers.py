"""What partitions are asked about producers: WriteTxnMarkers and DescribeProducers."""

from __future__ import annotations

from functools import partial

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.marker_writing import MarkerWriter
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages import describe_producers as described
from strandline.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from strandline.types import Instant, TopicPartition


class WriteTxnMarkersHandler:
    """Answers WriteTxnMarkers, versions 1 and 2, once every marker is committed or refused."""

    def __init__(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def handle(self, request: Request[WriteTxnMarkersRequest], now: Instant) -> None:
        """Write all markers."""
        response = WriteTxnMarkersResponse()
        left = 1  # this loop

        def done(item: WritableTxnMarkerPartitionResult, code: ErrorCode, _at: Instant) -> None:
            item.error_code = code
            finish()

        def finish() -> None:
            nonlocal left
            left -= 1
            if not left:
                request.reply(response)

        for marker in request.body.markers:
            result = WritableTxnMarkerResult(producer_id=marker.producer_id)
            response.markers.append(result)
            for topic in marker.topics:
                outcomes = WritableTxnMarkerTopicResult(name=topic.name)
                result.topics.append(outcomes)
                for number in topic.partition_indexes:
                    item = WritableTxnMarkerPartitionResult(partition_index=number)
                    outcomes.partitions.append(item)
                    left += 1
                    at = TopicPartition(topic.name, number)
                    self._writer.write(at, marker, partial(done, item), now)
        finish()


class DescribeProducersHandler:
    """Answers DescribeProducers (KIP-664), for each partition that is hosted, led or not."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def handle(self, request: Request[described.DescribeProducersRequest], now: Instant) -> None:
        """Tell what this broker's logs of partitions know of producers."""
        del now
        request.reply(
            described.DescribeProducersResponse(
                topics=[
                    described.TopicResponse(
                        name=topic.name,
                        partitions=[
                            self._describe(topic.name, number) for number in topic.partition_indexes
                        ],
                    )
                    for topic in request.body.topics
                ]
            )
        )

    def _describe(self, topic: str, number: int) -> described.PartitionResponse:
        answer = described.PartitionResponse(partition_index=number)
        try:
            replica = self._replicas.hosted(topic, number)
        except ProtocolError as error:
            answer.error_code, answer.error_message = error.code, error.message or None
            return answer
        answer.active_producers = [
            described.ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
            for _, entry in sorted(replica.log.producers.active.items())
        ]
        return answer
