"""A ShareFetch that waits until there are records for its member, or its time is up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from strandline.errors import CorruptRecords, ErrorCode, ProtocolError, StorageError
from strandline.node.client_quotas import ClientQuotas
from strandline.node.leader_hints import MISDIRECTED, LeaderHints
from strandline.node.purgatory import TOLD_MAX, Wait, Watched
from strandline.node.replica import Replica
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.node.sharing.leading import LedSharePartition, LedSharePartitions
from strandline.node.sharing.reading import Wanted, read_for_member
from strandline.node.sharing.sessions import Place, ShareSession
from strandline.protocol.messages.share_acknowledge import (
    LeaderIdAndEpoch as AcknowledgedLeader,
)
from strandline.protocol.messages.share_acknowledge import NodeEndpoint as AcknowledgedEndpoint
from strandline.protocol.messages.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from strandline.types import Instant, TopicPartition

log = logging.getLogger(__name__)

_QUIET: Final = frozenset(
    {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)
"""What members are not told when they fetch: they ask again in any case."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What share fetches work with."""

    replicas: Replicas
    shares: LedSharePartitions
    quotas: ClientQuotas | None = None


def find_led(
    replicas: Replicas, place: Place, permits: Callable[[str], bool] | None
) -> Replica | ErrorCode:
    """The replica of a partition that is led here, or why a member gets nothing of it."""
    try:
        found = replicas.leader_by_id(*place)
    except ProtocolError as refusal:
        return refusal.code
    if permits is not None and not permits(found.topic_partition.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return found


class WaitingShareFetch:
    """See the module. `acknowledged` are the outcomes of the acknowledgements that came along."""

    def __init__(
        self,
        request: Request[ShareFetchRequest],
        session: ShareSession,
        around: Surroundings,
        acknowledged: Mapping[Place, ErrorCode],
        permits: Callable[[str], bool] | None,
    ) -> None:
        self.connection = request.connection
        self._request = request
        self._session = session
        self._around = around
        self._acknowledged = acknowledged
        self._permits = permits
        broker, quotas = around.replicas.host.settings.broker, around.quotas
        bytes_max = max(0, min(request.body.max_bytes, broker.fetch_max_bytes))
        if quotas is not None:
            bytes_max = int(min(bytes_max, quotas.fetch_bytes_max(request)))
        self._bytes_max = bytes_max
        self._places = _rotated(list(session.partitions), session.epoch)
        self._led: dict[Place, LedSharePartition] = {}
        """Those that it reads; one that is given up meanwhile is not loaded again for it."""

    def watched(self, now: Instant) -> list[Watched]:
        """What may complete it when it changes: replicas, and the share partitions in them."""
        watched: list[Watched] = []
        for place in self._places:
            found = self._find(place)
            if isinstance(found, Replica):
                watched.append(found)
                led = self._around.shares.of(self._session.group_id, found, now)
                self._led[place] = led
                watched.append(led)
        return watched

    def try_complete(self, now: Instant) -> bool:
        """Answer if there are records, or acknowledgements to tell of, or nothing to wait for (as
        after the end of the session).

        A partition that fails does not keep the others from being waited for: a member that goes on
        asking for a deleted topic would ask in a loop. It is told where to ask instead at once.
        """
        answers = self._read(now)
        if not (
            self._acknowledged
            or not self._session.is_current
            or len(answers) == len(self._places)
            or any(
                each.acquired_records or each.error_code in MISDIRECTED for each in answers.values()
            )
        ):
            return False
        self._answer(answers, now)
        return True

    def expire(self, now: Instant) -> None:
        """Answer with what there is."""
        self._answer(self._read(now), now)

    def check(self) -> None:
        """See `Operation`. Whether there are records for the member only reading could tell."""

    def wait(self) -> Wait:
        """For people."""
        names = self._around.replicas.host.metadata.image.topic_names
        shown = tuple(
            f"{names.get(place[0])}-{place[1]}" for place in islice(self._places, TOLD_MAX)
        )
        return Wait(self._request, shown, f"records for {self._session.member_id}")

    def _find(self, place: Place) -> Replica | ErrorCode:
        return find_led(self._around.replicas, place, self._permits)

    def _read(self, now: Instant) -> dict[Place, PartitionData]:
        body = self._request.body
        bytes_left, records_left = self._bytes_max, body.max_records
        answers: dict[Place, PartitionData] = {}
        has_records = False
        if not self._session.is_current:
            return answers  # what it acquired now would be locked for a member that is gone
        for place in self._places:
            if has_records and (bytes_left <= 0 or records_left <= 0):
                break
            found = self._find(place)
            if isinstance(found, ErrorCode):
                answers[place] = PartitionData(partition_index=place[1], error_code=found)
                continue
            wanted = Wanted(
                member_id=self._session.member_id,
                bytes_max=bytes_left,
                records_max=records_left,
                batch_size=body.batch_size,
                is_strict=body.share_acquire_mode == 1,
            )
            answer = self._read_one(found, place, wanted, now, is_first=not has_records)
            if answer is None:
                continue
            answers[place] = answer
            if answer.acquired_records:
                has_records = True
                bytes_left -= len(answer.records)
                records_left -= sum(
                    each.last_offset - each.first_offset + 1 for each in answer.acquired_records
                )
        return answers

    def _read_one(
        self, replica: Replica, place: Place, wanted: Wanted, now: Instant, *, is_first: bool
    ) -> PartitionData | None:
        shares = self._around.shares
        led = self._led.get(place)
        if led is None:
            led = self._led[place] = shares.of(self._session.group_id, replica, now)
        code = led.error
        if code is None:
            try:
                found = read_for_member(shares, led, wanted, now, is_first=is_first)
            except ProtocolError as error:
                code = error.code
            except CorruptRecords as error:
                log.error("Reading %s failed: %s", replica.topic_partition, error)
                code = ErrorCode.CORRUPT_MESSAGE
            except StorageError as error:
                log.error("Reading %s failed: %s", replica.topic_partition, error)
                replica.failed_to_read(error)
                code = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                if found is None:
                    return None
                replica.traffic.bytes_out += len(found.records)
                return PartitionData(
                    partition_index=place[1],
                    records=found.records,
                    acquired_records=[
                        AcquiredRecords(
                            first_offset=each.first,
                            last_offset=each.last,
                            delivery_count=each.deliveries,
                        )
                        for each in found.acquired
                    ],
                )
        if code in _QUIET:
            return None
        return PartitionData(partition_index=place[1], error_code=code)

    def _answer(self, answers: dict[Place, PartitionData], now: Instant) -> None:
        answer_fetch(self._request, answers, self._acknowledged, self._around, now)


class PostponedRefusal:
    """A refusal that comes when the fetch would have been answered at the latest: a member that
    finds no room for its session asks again at once."""

    def __init__(self, request: Request[ShareFetchRequest], refusal: ProtocolError) -> None:
        self.connection = request.connection
        self._request = request
        self._refusal = refusal

    def try_complete(self, now: Instant) -> bool:
        """There is nothing that would end the wait."""
        del now
        return False

    def expire(self, now: Instant) -> None:
        """Refuse."""
        del now
        refuse_fetch(self._request, self._refusal)

    def check(self) -> None:
        """See `Operation`."""

    def wait(self) -> Wait:
        """For people."""
        return Wait(self._request, (), "its time to be refused: there are too many share sessions")


def refuse_fetch(request: Request[ShareFetchRequest], refusal: ProtocolError) -> None:
    """Answer a ShareFetch as a whole with an error."""
    request.reply(
        ShareFetchResponse(error_code=refusal.code, error_message=refusal.message or None)
    )


def answer_fetch(
    request: Request[ShareFetchRequest],
    answers: dict[Place, PartitionData],
    acknowledged: Mapping[Place, ErrorCode],
    around: Surroundings,
    now: Instant,
) -> None:
    """Answer a ShareFetch with what was read and what became of acknowledgements."""
    image = around.replicas.host.metadata.image
    hints = LeaderHints(image, request.connection.listener)
    for place, code in acknowledged.items():
        answer = answers.setdefault(place, PartitionData(partition_index=place[1]))
        answer.acknowledge_error_code = code
    topics: dict[Any, ShareFetchableTopicResponse] = {}
    for place, answer in answers.items():
        if answer.records is None:
            answer.records = b""
        codes = answer.error_code, answer.acknowledge_error_code
        hint = _hint(hints, image.topic_names, place, *codes)
        if hint is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=hint[0], leader_epoch=hint[1])
        topic = topics.setdefault(place[0], ShareFetchableTopicResponse(topic_id=place[0]))
        topic.partitions.append(answer)
    config = around.shares.config_of(request.body.group_id or "")
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=config.share_record_lock_duration_ms,
        responses=list(topics.values()),
        node_endpoints=[
            NodeEndpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
            for each in hints.endpoints.values()
        ],
    )
    if around.quotas is not None and around.quotas.is_limited:
        size = sum(len(answer.records) for answer in answers.values())
        around.quotas.fetched(request, size, now)
    request.reply(response)


def acknowledged_leader(
    hints: LeaderHints, names: Mapping[Any, str], place: Place, code: ErrorCode
) -> AcknowledgedLeader | None:
    """Which broker leads instead, for the answer to a ShareAcknowledge."""
    hint = _hint(hints, names, place, code)
    return hint and AcknowledgedLeader(leader_id=hint[0], leader_epoch=hint[1])


def acknowledged_endpoints(hints: LeaderHints) -> list[AcknowledgedEndpoint]:
    """Where those leaders are."""
    return [
        AcknowledgedEndpoint(node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack)
        for each in hints.endpoints.values()
    ]


def _hint(
    hints: LeaderHints, names: Mapping[Any, str], place: Place, *codes: int
) -> tuple[int, int] | None:
    """The leader and its epoch, if one of the codes says that it is not here."""
    if MISDIRECTED.isdisjoint(codes):
        return None
    return hints.of(TopicPartition(names.get(place[0], ""), place[1]))


def _rotated(places: list[Place], by: int) -> list[Place]:
    """Another partition comes first each time, so that none is left out for ever."""
    if not places:
        return places
    at = by % len(places)
    return places[at:] + places[:at]
