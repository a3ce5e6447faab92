"""What there is to read: topics and their ids, partitions, and the ends of logs.

This file knows which questions a plan of ranges asks of a cluster, any that speaks Kafka's
protocol. It must not know plans. Answers are true for the moment in which they were given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.client.cluster import ClusterClient
from strandline.client.metadata import TopicInfo
from strandline.client.offsets import EARLIEST, LATEST, OffsetAt, list_offsets
from strandline.client.refusal import check, refusal
from strandline.errors import ErrorCode, InvalidSetting
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from strandline.types import NO_TOPIC_ID, TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic as it is now. The id is None where the cluster is too old to have any."""

    name: str
    topic_id: TopicId | None
    partitions: tuple[int, ...]

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(self.name, each) for each in self.partitions)


@dataclass(frozen=True, slots=True)
class End:
    """Up to where a partition can be read, and an epoch that none of what is below is later than.

    The epoch is -1 where the cluster does not tell.
    """

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The newest epoch up to the one asked for, and where it ends. Both -1: there is none."""

    leader_epoch: int
    end_offset: int


class Catalogue:
    """See the module. A context manager: leaving it closes its connections.

    Everything raises `ProtocolError` for what the cluster refuses, after as many retries as the
    settings' patience has room for.
    """

    def __init__(self, settings: ReadSettings) -> None:
        """Connects to nothing yet. Raises `InvalidSetting` for addresses that are none."""
        self._settings = settings
        self._cluster = ClusterClient(settings.bootstrap, settings.client)

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()

    def topics(self, names: Iterable[str]) -> dict[str, TopicFacts]:
        """These topics; one that is not there is UNKNOWN_TOPIC_OR_PARTITION."""
        wanted = tuple(dict.fromkeys(names))
        view = self._cluster.refresh(wanted)
        for name in wanted:
            if name not in view.topics:
                code = view.refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                raise refusal(code, None, f"topic '{name}'")
        return {name: _facts(view.topics[name]) for name in wanted}

    def matching(self, pattern: str) -> dict[str, TopicFacts]:
        """The topics whose whole name matches, without internal ones, as a Java consumer has it.

        Raises `InvalidSetting` for a pattern that is none.
        """
        try:
            wanted = re.compile(pattern)
        except re.error as error:
            raise InvalidSetting(
                "subscribePattern", f"'{pattern}' is not a regular expression: {error}."
            ) from error
        view = self._cluster.refresh(None)
        return {
            name: _facts(info)
            for name, info in sorted(view.topics.items())
            if wanted.fullmatch(name) and not info.is_internal
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the logs begin."""
        found = self._offsets(dict.fromkeys(partitions, EARLIEST))
        return {each: at.offset for each, at in found.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, End]:
        """The high watermarks, or the last stable offsets for a reader of committed records."""
        found = self._offsets(dict.fromkeys(partitions, LATEST))
        return {each: End(at.offset, at.leader_epoch) for each, at in found.items()}

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time (milliseconds since 1970); None: there is none."""
        found = self._offsets(times_ms)
        return {each: at.offset if at.offset >= 0 else None for each, at in found.items()}

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Where leader epochs end in the leaders' logs (KIP-320)."""
        found: dict[TopicPartition, EpochEnd] = {}

        def attempt() -> None:
            missing = [each for each in epochs if each not in found]
            for leader, partitions in self._cluster.by_leader(missing).items():
                response = self._cluster.connection_to(leader).call(
                    ApiKey.OFFSET_FOR_LEADER_EPOCH,
                    OffsetForLeaderEpochResponse,
                    self._epoch_request({each: epochs[each] for each in partitions}),
                )
                for topic in response.topics:
                    for each in topic.partitions:
                        at = TopicPartition(topic.topic, each.partition)
                        check(each.error_code, None, f"partition {at}")
                        found[at] = EpochEnd(each.leader_epoch, each.end_offset)

        self._cluster.retry_on_topics(attempt, {each.topic for each in epochs})
        return found

    def _epoch_request(self, epochs: Mapping[TopicPartition, int]) -> OffsetForLeaderEpochRequest:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for at, epoch in epochs.items():
            topic = topics.setdefault(at.topic, OffsetForLeaderTopic(topic=at.topic))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=at.partition,
                    current_leader_epoch=self._cluster.partition(at).leader_epoch,
                    leader_epoch=epoch,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values()))

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        if not wanted:
            return {}
        self._cluster.forget({each.topic for each in wanted})
        return list_offsets(self._cluster, wanted, self._settings.isolation)


def _facts(info: TopicInfo) -> TopicFacts:
    topic_id = None if info.topic_id == NO_TOPIC_ID else info.topic_id
    return TopicFacts(info.name, topic_id, tuple(info.partitions))
