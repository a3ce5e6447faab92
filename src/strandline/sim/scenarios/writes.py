"""The clients of a scenario: what they send to a broker, and what became of it.

Requests are bytes and go to the node without a wire, each on a connection of its own, so that none
waits for the answer to another. This file knows no replicas beside the one that is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.errors import ErrorCode, ProtocolError
from strandline.node.effects import Chunk
from strandline.node.node import Node
from strandline.protocol.apis import ApiKey, api_of
from strandline.protocol.framing import SIZE_BYTES, parse_response_header, request_frame
from strandline.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.protocol.schema import decode_response
from strandline.records.builder import build_batch, build_control_batch
from strandline.records.control import ControlType, EndTransactionMarker
from strandline.records.record import Record
from strandline.sim.machine import Machine
from strandline.sim.scenarios.replica import PARTITION, Replica
from strandline.storage.log_reader import LogSlice
from strandline.types import Instant, ProducerEpoch, ProducerId

_PRODUCE_VERSION: Final = 9
_DELETE_VERSION: Final = 2
_FOR_EVER_MS: Final = 1_000_000_000
_ACKS: Final = {"all": -1, "1": 1, "0": 0}


@dataclass(frozen=True, slots=True)
class Write:
    """What a producer sends besides its values."""

    acks: str = "all"
    timeout_ms: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    loses_reply: bool = False


class Writes:
    """See the module.

    - `outcomes`: what was last answered for each value: an offset, an error, or that it waits.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        """`say` is told what happens, in words."""
        self.outcomes: dict[str, str] = {}
        self._say = say

    def produce(self, replica: Replica, value: str, write: Write, index: int) -> None:
        """A client sends one batch to a broker; `a+b` has two records. `index`: of its line."""
        machine = replica.machine
        if not machine.is_up:
            self._failed(value, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        end = replica.log.log_end_offset if replica.has_log else -1
        self.outcomes[value] = "waiting"

        def answered(answer: object) -> None:
            if write.loses_reply:
                return
            if not isinstance(answer, ProduceResponse):
                self.outcomes[value] = "UNKNOWN: the connection broke"
                self._say(f"{value} fails: {self.outcomes[value]}")
                return
            told = answer.responses[0].partition_responses[0]
            if told.error_code:
                self._failed(value, ErrorCode(told.error_code))
                return
            duplicate = " as a duplicate" if told.base_offset < end else ""
            self._acknowledged(value, told.base_offset, duplicate)

        if write.loses_reply:
            self.outcomes[value] = "UNKNOWN: the reply is lost"
            self._say(f"{value} is at {end}, its reply is lost")
        data = PartitionProduceData(
            index=PARTITION.partition,
            records=memoryview(_batch(value, write, index, machine.now)),
        )
        request = ProduceRequest(
            transactional_id="script" if write.is_transactional else None,
            acks=_ACKS[write.acks],
            timeout_ms=_FOR_EVER_MS if write.timeout_ms is None else write.timeout_ms,
            topic_data=[TopicProduceData(name=PARTITION.topic, partition_data=[data])],
        )
        ScriptClient(machine, answered).send(ApiKey.PRODUCE, _PRODUCE_VERSION, request)

    def _acknowledged(self, value: str, offset: int, note: str = "") -> None:
        self.outcomes[value] = f"@{offset}"
        self._say(f"{value} is acknowledged at {offset}{note}")

    def _failed(self, value: str, code: ErrorCode) -> None:
        self.outcomes[value] = code.name
        self._say(f"{value} fails: {code.name}")

    def write_marker(
        self, replica: Replica, kind: str, write: Write, coordinator_epoch: int, version: int
    ) -> None:
        """The transaction coordinator ends a producer's transaction on this partition."""
        marker = EndTransactionMarker(ControlType[kind.upper()], coordinator_epoch)

        def append(_: Node, now: Instant) -> None:
            hosted = replica.hosted
            if hosted is None or hosted.leading is None:
                return
            batch = build_control_batch(
                marker,
                timestamp=now.wall_ms,
                producer_id=ProducerId(write.producer_id),
                producer_epoch=ProducerEpoch(write.producer_epoch),
            )
            try:
                hosted.log.appender.append_as_coordinator(
                    bytearray(batch),
                    leader_epoch=hosted.leader_epoch,
                    now_ms=now.wall_ms,
                    transaction_version=version,
                )
            except ProtocolError as error:
                self._failed("marker", error.code)
                return
            self.outcomes["marker"] = "ok"
            hosted.leading.advance(now)
            hosted.changed()

        replica.machine.event(append)

    def delete_records(self, replica: Replica, offset: int) -> None:
        """DeleteRecords on the leader; the client does not wait until followers have it."""
        partition = DeleteRecordsPartition(partition_index=PARTITION.partition, offset=offset)
        topic = DeleteRecordsTopic(name=PARTITION.topic, partitions=[partition])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1)
        ScriptClient(replica.machine, _ignore).send(ApiKey.DELETE_RECORDS, _DELETE_VERSION, request)


def _batch(value: str, write: Write, index: int, now: Instant) -> bytearray:
    return bytearray(
        build_batch(
            [_record(name, now) for name in value.split("+")],
            producer_id=ProducerId(write.producer_id),
            producer_epoch=ProducerEpoch(write.producer_epoch),
            base_sequence=write.sequence + index if write.sequence >= 0 else -1,
            is_transactional=write.is_transactional,
        )
    )


def _record(text: str, now: Instant) -> Record:
    """`k:v` has a key; `k:` is its tombstone."""
    key, colon, value = text.partition(":")
    if not colon:
        return Record(timestamp=now.wall_ms, value=text.encode())
    return Record(timestamp=now.wall_ms, key=key.encode(), value=value.encode() if value else None)


def _ignore(answer: object) -> None:
    """The client has gone."""


class ScriptClient:
    """One connection, one request; `answered` hears the answer, or None if there will be none."""

    def __init__(self, machine: Machine, answered: Callable[[object], None]) -> None:
        self._machine = machine
        self._answered = answered
        self._bytes = bytearray()
        self._asked = (ApiKey.PRODUCE, 0)

    def send(self, key: ApiKey, version: int, request: object) -> None:
        """Send it to the node, in an event of its own."""
        machine = self._machine
        chunks = request_frame(api_of(key), version, 1, "script", request)
        whole = b"".join(chunks)  # type: ignore[arg-type]  # clients send no ranges of files
        frame = bytearray(whole)[SIZE_BYTES:]
        self._asked = (key, version)

        def receive(node: Node, now: Instant) -> None:
            connection = node.open_connection("script", "PLAINTEXT")
            machine.direct[connection.id] = self
            node.receive(connection, memoryview(frame), now)

        machine.event(receive)

    # -- What the node does (`connections.Sink`) ---------------------------------------------

    def take(self, chunks: Sequence[Chunk]) -> None:
        """The node sent bytes."""
        for chunk in chunks:
            if isinstance(chunk, LogSlice):
                self._bytes += chunk.file.read_at(chunk.position, chunk.length)
            else:
                self._bytes += chunk
        if len(self._bytes) - SIZE_BYTES < int.from_bytes(self._bytes[:SIZE_BYTES]):
            return
        key, version = self._asked
        frame = bytes(self._bytes[SIZE_BYTES:])
        _, position = parse_response_header(memoryview(frame), api_of(key), version)
        self._answered(decode_response(key, version, frame, position))

    def closed_by_node(self, reason: str) -> None:
        """The node closed the connection."""
        del reason
        self._answered(None)

    def broker_died(self) -> None:
        """There is no node any more."""
        if not self._bytes:
            self._answered(None)
