"""Asking a cluster what a start must know of a table's topics (`beginning.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.errors import ErrorCode, ProtocolError
from strandline.lakehouse.pipeline.errors import TopicMissing
from strandline.lakehouse.pipeline.start_offsets import LogFacts
from strandline.lakehouse.reading.catalogue import Catalogue
from strandline.lakehouse.reading.settings import ReadSettings
from strandline.lakehouse.tables.identity import Frontier
from strandline.types import TopicPartition

_NO_EPOCH = -1


def ask(
    settings: ReadSettings,
    topics: Iterable[str],
    frontiers: Mapping[TopicPartition, Frontier],
) -> LogFacts:
    """Raises `TopicMissing`, and `ProtocolError` when the cluster cannot be asked."""
    with Catalogue(settings) as catalogue:
        try:
            found = catalogue.topics(topics)
        except ProtocolError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise TopicMissing(
                    f"{error.message} The table cannot be brought further without it."
                ) from error
            raise
        partitions = [each for topic in found.values() for each in topic.topic_partitions]
        epochs = {
            partition: frontier.leader_epoch
            for partition, frontier in frontiers.items()
            if partition in set(partitions) and frontier.leader_epoch != _NO_EPOCH
        }
        earliest = catalogue.earliest(partitions)
        latest = catalogue.latest(partitions)
        ends = catalogue.epoch_ends(epochs) if epochs else {}
    return LogFacts(
        topic_ids={topic.name: topic.topic_id for topic in found.values()},
        earliest=earliest,
        latest={partition: end.offset for partition, end in latest.items()},
        epoch_ends={
            partition: end.end_offset for partition, end in ends.items() if end.end_offset >= 0
        },
    )
