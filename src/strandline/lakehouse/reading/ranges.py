"""Reading exactly the planned offsets of a partition, in Arrow batches.

This file joins fetches to the decoder. It must not know where ranges come from.

    with RangeReader(settings) as reader:
        for batch in reader.read(OffsetRange(topic="flights", partition=0, start=0, end=1000)):
            ...

Offsets that compaction removed, aborted transactions and markers leave gaps, as for any reader. All
else that is missing is an error: see `errors.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from strandline.client.cluster import ClusterClient
from strandline.lakehouse.decode.decoder import Decoder
from strandline.lakehouse.reading.errors import EpochDiverged, RangeGone, TopicReplaced
from strandline.lakehouse.reading.fetches import RangeFetches
from strandline.lakehouse.reading.settings import OffsetRange, ReadSettings
from strandline.records.columns import LEADER_EPOCH_MAX, BuilderLimits

__all__ = ["OffsetRange", "RangeReader", "read_range"]


class RangeReader:
    """A context manager that keeps its connections from one range to the next."""

    def __init__(self, settings: ReadSettings) -> None:
        """Connects to nothing yet. Raises `InvalidSetting` for addresses that are none."""
        self._settings = settings
        self._cluster = ClusterClient(settings.bootstrap, settings.client)

    def __enter__(self) -> RangeReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._cluster.close()

    def read(self, planned: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The rows of the range in the order of their offsets, in the schema of `kafka_schema`.

        Raises `ReadError`, `CorruptRecords` and `ProtocolError`; what was yielded before is right,
        and where the log lost records (`RangeGone`, `TopicReplaced`, `EpochDiverged`), it is all
        that came before them.
        """
        settings = self._settings
        decoder = Decoder(
            planned.topic_partition,
            BuilderLimits(
                start=planned.start,
                end=planned.end,
                bytes_max=settings.batch_bytes,
                leader_epoch_max=LEADER_EPOCH_MAX
                if planned.leader_epoch < 0
                else planned.leader_epoch,
                with_headers=settings.with_headers,
                checks_crc=settings.checks_crc,
            ),
        )
        fetches = RangeFetches(self._cluster, settings, planned)
        try:
            while not decoder.is_complete:
                buffer, aborted = fetches.next_answer()
                yield from decoder.feed(buffer, aborted)
        except (RangeGone, TopicReplaced, EpochDiverged):
            # A caller may go on behind what is gone: what came before it is not.
            yield from decoder.finish()
            raise
        yield from decoder.finish()


def read_range(settings: ReadSettings, planned: OffsetRange) -> Iterator[pa.RecordBatch]:
    """As `RangeReader.read`, with connections of its own."""
    with RangeReader(settings) as reader:
        yield from reader.read(planned)
