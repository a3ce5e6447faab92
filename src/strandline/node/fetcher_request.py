"""The partitions in a fetch request of a follower, by its session: what to name, what to forget.

This file knows the shape of the request only.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.node.fetcher_partition import Key, Wanted
from strandline.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from strandline.replication.fetch_session import SessionRequest
from strandline.types import TopicId


def named_topics(
    session: SessionRequest[Key, Wanted], partition_bytes_max: int
) -> list[FetchTopic]:
    """The partitions to be named, grouped by topic, in their order."""
    topics: dict[TopicId, FetchTopic] = {}
    for (topic_id, number), wanted in session.to_send:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
        topic.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=wanted.leader_epoch,
                fetch_offset=wanted.offset,
                last_fetched_epoch=wanted.last_fetched_epoch,
                log_start_offset=wanted.log_start_offset,
                partition_max_bytes=partition_bytes_max,
            )
        )
    return list(topics.values())


def forgotten_topics(keys: Sequence[Key]) -> list[ForgottenTopic]:
    """The partitions to be forgotten, grouped by topic."""
    topics: dict[TopicId, ForgottenTopic] = {}
    for topic_id, number in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(number)
    return list(topics.values())
