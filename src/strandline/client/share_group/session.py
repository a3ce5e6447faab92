"""A share session with one broker: what is fetched from it, and what goes with the next request.

A session belongs to a member and a connection of it; the broker gives what was acquired in it to
other members when it ends. Requests in it have growing epochs, 0 opens it, -1 ends it. There is one
request under way at a time, so they come in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from strandline.client.share_group.acknowledgements import Parcel, batches_of
from strandline.client.share_group.membership import Place
from strandline.client.share_group.settings import ShareSettings
from strandline.errors import ErrorCode, ProtocolError
from strandline.protocol.acknowledge_type import AckType
from strandline.protocol.messages import share_acknowledge
from strandline.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from strandline.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from strandline.types import BrokerId, TopicId

_FINAL: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
_RENEWS_SINCE: Final = 2


@dataclass(eq=False, slots=True)
class Sent:
    """A request of a session that is under way."""

    at_ms: int
    parcels: list[Parcel]
    is_last: bool = False
    """Whether it ends the session."""

    @property
    def acknowledged(self) -> dict[Place, dict[int, AckType]]:
        """What it says of records."""
        found: dict[Place, dict[int, AckType]] = {}
        for each in self.parcels:
            found.setdefault(each.place, {}).update(each.types)
        return found


class ShareSession:
    """See the module."""

    def __init__(self, broker: BrokerId, group: str, member_id: str) -> None:
        self.broker = broker
        self.ended: ErrorCode | None = None
        """See `SessionEnd`."""
        self.is_busy = False
        """Whether a request is under way."""
        self.partitions: dict[Place, None] = {}
        """What the broker believes to be fetched."""
        self.outbox: list[Parcel] = []
        """What is to be acknowledged."""
        self._group = group
        self._member_id = member_id
        self._epoch = 0

    @property
    def is_open(self) -> bool:
        """Whether the broker knows it."""
        return self._epoch > 0 and self.ended is None

    @property
    def renews(self) -> bool:
        """Whether locks are to be renewed."""
        return any(each.renewed for each in self.outbox)

    @property
    def is_urgent(self) -> bool:
        """Whether there is something to acknowledge that does not wait for the next fetch."""
        return any(not each.is_of_gaps for each in self.outbox)

    def answered(self) -> None:
        """The broker has taken a request: the next one has the next epoch."""
        self._epoch = 1 if self._epoch == _EPOCH_MAX else self._epoch + 1

    def send(self, now_ms: int, *, is_last: bool = False) -> Sent:
        """The next request is made; it takes the outbox along."""
        self.is_busy = True
        parcels, self.outbox = self.outbox, []
        return Sent(now_ms, parcels, is_last)

    def fetch_request(
        self, sent: Sent, wanted: Mapping[Place, object], settings: ShareSettings
    ) -> ShareFetchRequest:
        """Acquire records of these partitions, and acknowledge what goes along."""
        acknowledged = sent.acknowledged
        topics: dict[TopicId, FetchTopic] = {}
        for place in dict.fromkeys((*(wanted.keys() - self.partitions.keys()), *acknowledged)):
            topic = topics.setdefault(place.topic_id, FetchTopic(topic_id=place.topic_id))
            batches = [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
                for first, last, kind in batches_of(acknowledged.get(place, {}))
            ]
            topic.partitions.append(
                FetchPartition(partition_index=place.partition, acknowledgement_batches=batches)
            )
        forgotten: dict[TopicId, ForgottenTopic] = {}
        # What is acknowledged only is named as fetched, so it is forgotten in the same request.
        for place in (self.partitions.keys() | acknowledged.keys()) - wanted.keys():
            gone = forgotten.setdefault(place.topic_id, ForgottenTopic(topic_id=place.topic_id))
            gone.partitions.append(place.partition)
        self.partitions = dict.fromkeys(wanted)
        return ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes,
            max_records=settings.max_poll_records,
            batch_size=settings.max_poll_records,
            share_acquire_mode=settings.acquire_mode,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def acknowledge_request(self, sent: Sent, version: int) -> ShareAcknowledgeRequest:
        """Acknowledge alone. Raises `ProtocolError` if the broker cannot renew locks."""
        renews = any(each.renewed for each in sent.parcels)
        if renews and version < _RENEWS_SINCE:
            raise ProtocolError(
                ErrorCode.UNSUPPORTED_VERSION, f"Broker {self.broker} does not renew locks."
            )
        topics: dict[TopicId, Any] = {}
        for place, types in sent.acknowledged.items():
            topic = topics.setdefault(
                place.topic_id, share_acknowledge.AcknowledgeTopic(topic_id=place.topic_id)
            )
            topic.partitions.append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=place.partition,
                    acknowledgement_batches=[
                        share_acknowledge.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=[kind]
                        )
                        for first, last, kind in batches_of(types)
                    ],
                )
            )
        return ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=_FINAL if sent.is_last else self._epoch,
            is_renew_ack=renews,
            topics=list(topics.values()),
        )
