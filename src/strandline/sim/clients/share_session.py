"""A share session of a simulated member with a broker: what is fetched, held, acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from strandline.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from strandline.sharing.values import AckType
from strandline.sim.clients.connection import Connection
from strandline.sim.clients.share_watch import Hold
from strandline.sim.history.lookups import Leadership
from strandline.types import TopicId

Key = tuple[TopicId, int]
"""A partition, by its topic's id."""


class Said(NamedTuple):
    """What a member says of a record that it has."""

    kind: AckType
    hold: Hold


@dataclass(slots=True)
class Asked:
    """What went with a fetch."""

    at_us: int
    acks: dict[Key, dict[int, Said]]
    led: dict[Key, Leadership | None] = field(default_factory=dict)


class ShareSession:
    """See the module. It is over with its connection."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.is_busy = False
        self.not_before_us = 0
        self.partitions: set[Key] = set()
        self.acks: dict[Key, dict[int, Said]] = {}
        """What to say with the next fetch."""
        self.holds: dict[Key, dict[int, Hold]] = {}
        self._epoch = 0
        self._sent: dict[Key, dict[int, Said]] = {}

    def acknowledge(self, key: Key, offset: int, said: Said) -> None:
        """Say so with the next fetch."""
        self.acks.setdefault(key, {})[offset] = said

    def request(
        self, group: str, member_id: str, wanted: set[Key], records_max: int
    ) -> ShareFetchRequest:
        """The next fetch; what it acknowledges is held no longer."""
        self.is_busy = True
        added = wanted if self._epoch == 0 else wanted - self.partitions
        removed = self.partitions - wanted
        self.partitions = set(wanted)
        sent, self.acks = self.acks, {}
        self._sent = sent
        topics: dict[TopicId, FetchTopic] = {}
        for key in sorted(added | sent.keys()):
            for offset in sent.get(key, ()):
                self._over(key, offset)
            topic = topics.setdefault(key[0], FetchTopic(topic_id=key[0]))
            topic.partitions.append(
                FetchPartition(
                    partition_index=key[1],
                    acknowledgement_batches=[
                        AcknowledgementBatch(
                            first_offset=offset, last_offset=offset, acknowledge_types=[said.kind]
                        )
                        for offset, said in sorted(sent.get(key, {}).items())
                    ],
                )
            )
        forgotten: dict[TopicId, ForgottenTopic] = {}
        for topic_id, number in sorted(removed - sent.keys()):
            gone = forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id))
            gone.partitions.append(number)
        # What is acknowledged is fetched as well; so it is given up with the request after that.
        self.partitions |= sent.keys()
        return ShareFetchRequest(
            group_id=group,
            member_id=member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=200,
            min_bytes=1,
            max_bytes=100_000,
            max_records=records_max,
            batch_size=records_max,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    def asked(self, now_us: int) -> Asked:
        """What went with the fetch that was just made."""
        return Asked(now_us, self._sent)

    def answered(self) -> None:
        """The broker has taken a request of this session."""
        self._epoch += 1

    def end(self) -> None:
        """The broker may give to others what it has given here."""
        for key, holds in self.holds.items():
            for offset in list(holds):
                self._over(key, offset)

    def _over(self, key: Key, offset: int) -> None:
        hold = self.holds.get(key, {}).get(offset)
        if hold is not None:
            hold.is_over = True
            del self.holds[key][offset]
