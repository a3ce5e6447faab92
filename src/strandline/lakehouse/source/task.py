"""The records of one task's range, and what is done where some of them are gone.

The plan saw the whole range in the log; between the plan and the reading, retention, a deletion of
the topic or a cut of the log may take it away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from strandline.lakehouse.reading.errors import EpochDiverged, RangeGone, TopicReplaced
from strandline.lakehouse.reading.ranges import RangeReader
from strandline.lakehouse.reading.settings import OffsetRange
from strandline.lakehouse.source.losses import Losses
from strandline.lakehouse.source.options import SourceOptions


def read_task(options: SourceOptions, planned: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Rows in the order of their offsets. Raises `DataLost` or leaves out what is gone."""
    losses = Losses(fails=options.fails_on_loss)
    left: OffsetRange | None = planned
    with RangeReader(options.reading) as reader:
        while left is not None:
            begin = left.start
            try:
                for batch in reader.read(left):
                    yield batch
                    begin = batch.column("offset")[-1].as_py() + 1
                return
            except RangeGone as gone:
                losses.report(str(gone), gone)
                left = _behind(left, begin, gone)
            except (TopicReplaced, EpochDiverged) as gone:
                losses.report(str(gone), gone)
                return


def _behind(planned: OffsetRange, begin: int, gone: RangeGone) -> OffsetRange | None:
    """What is left behind the gap; None if it goes to the end."""
    if begin < gone.log_start < planned.end:
        return replace(planned, start=gone.log_start)
    return None
