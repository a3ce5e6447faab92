"""Whether the offset and time index of a segment tell the truth about its batches.

This file knows what an entry promises. It must not know which batches a reader may see. Rules:

- An offset entry (O, P): the batch that begins at position P ends with offset O.
- A time entry (T, O): a batch ends with O, and T is the largest timestamp from the segment's start
  up to that batch.
- The indexes of a closed segment have no unwritten rest, and its last time entry has the largest
  timestamp of all of its batches: retention goes by that.

Entries are sparse, so one that is not there is no fault, except that last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from strandline.errors import StorageError
from strandline.lakehouse.audit.files import SegmentFiles
from strandline.lakehouse.audit.findings import Findings, Kind
from strandline.records.batch import BatchHeader
from strandline.storage import offset_index, time_index
from strandline.storage.files import Files
from strandline.storage.segment_names import OFFSET_INDEX, TIME_INDEX
from strandline.types import NO_TIMESTAMP

_NAMES = {Kind.OFFSET_INDEX: OFFSET_INDEX, Kind.TIME_INDEX: TIME_INDEX}


class SegmentIndexes:
    """Goes along the batches of one segment; `finish` says what is left over.

    Entries that no seen batch bears out are findings only below `judged_to`, the offset up to which
    all batches of the segment were seen.
    """

    def __init__(
        self, files: Files, segment: SegmentFiles, findings: Findings, *, is_closed: bool
    ) -> None:
        self._files = files
        self._segment = segment
        self._findings = findings
        self._is_closed = is_closed
        self._largest = NO_TIMESTAMP
        self._last_time = NO_TIMESTAMP
        self._is_certain = True
        self._positions: dict[int, int] = {}
        self._times: dict[int, int] = {}
        if not segment.is_swapped:
            self._load()

    def see(self, position: int, header: BatchHeader) -> None:
        """Compare the entries that are about this batch with it."""
        self._largest = max(self._largest, header.max_timestamp)
        offset = self._positions.pop(position, None)
        if offset is not None and offset != header.last_offset:
            self._add(
                Kind.OFFSET_INDEX,
                f"The entry for position {position} names offset {offset}, but the batch there "
                f"ends with {header.last_offset}.",
                offset,
            )
        timestamp = self._times.pop(header.last_offset, None)
        if timestamp is not None and timestamp != self._largest and self._is_certain:
            self._add(
                Kind.TIME_INDEX,
                f"The entry for offset {header.last_offset} says {timestamp} ms, but the largest "
                f"timestamp up to there is {self._largest} ms.",
                header.last_offset,
            )

    def pass_damage(self, position: int) -> None:
        """A batch that cannot be believed: from here on nobody knows the largest timestamp."""
        self._positions.pop(position, None)
        self._is_certain = False

    def finish(self, judged_to: int, *, is_complete: bool) -> None:
        """After the last batch. `is_complete`: all batches of the segment were seen."""
        for position, offset in self._positions.items():
            if offset < judged_to:
                self._add(
                    Kind.OFFSET_INDEX,
                    f"No batch begins at position {position}, which the entry for offset {offset} "
                    "points to.",
                    offset,
                )
        for offset, timestamp in self._times.items():
            if offset < judged_to and self._is_certain:
                self._add(
                    Kind.TIME_INDEX,
                    f"No batch ends with offset {offset}, which an entry for {timestamp} ms names.",
                    offset,
                )
        if (
            is_complete
            and self._is_certain
            and self._is_closed
            and not self._segment.is_swapped
            and self._largest > self._last_time
        ):
            self._add(
                Kind.TIME_INDEX,
                f"The segment is closed, but its last entry says {self._last_time} ms and its "
                f"newest record {self._largest} ms.",
                self._segment.base_offset,
            )

    def _load(self) -> None:
        base = self._segment.base_offset
        before = (-1, -1)
        for relative, position in self._entries(Kind.OFFSET_INDEX, offset_index.LAYOUT):
            if relative <= before[0] or position <= before[1]:
                self._out_of_order(Kind.OFFSET_INDEX, base + relative)
                continue
            before = (relative, position)
            self._positions[position] = base + relative
        before = (NO_TIMESTAMP, -1)
        for timestamp, relative in self._entries(Kind.TIME_INDEX, time_index.LAYOUT):
            if timestamp <= before[0] or relative < before[1]:
                self._out_of_order(Kind.TIME_INDEX, base + relative)
                continue
            before = (timestamp, relative)
            self._times[base + relative] = timestamp
            self._last_time = timestamp

    def _entries(self, kind: Kind, layout: Struct) -> Iterator[tuple[int, int]]:
        """The entries of an index, without the unwritten rest of one that is still in use."""
        path = self._segment.index_path(_NAMES[kind])
        try:
            data = self._files.read_bytes(path)
        except StorageError as error:
            self._add(kind, str(error), self._segment.base_offset)
            return
        rest = len(data) % layout.size
        if rest:
            self._add(kind, f"It ends inside an entry ({len(data)} bytes).", -1)
        # The index of an active segment is mostly room: ten million zeros by default.
        whole = len(data) // layout.size
        used = min(whole, -(-len(data.rstrip(b"\0")) // layout.size))
        if used < whole and self._is_closed:
            self._add(
                kind,
                f"The segment is closed, but {whole - used} unwritten entries follow.",
                self._segment.base_offset,
            )
        yield from layout.iter_unpack(data[: used * layout.size])

    def _out_of_order(self, kind: Kind, offset: int) -> None:
        self._add(kind, f"The entry for offset {offset} is out of order.", offset)

    def _add(self, kind: Kind, sentence: str, offset: int) -> None:
        path = self._segment.index_path(_NAMES[kind])
        self._findings.add(kind, sentence, path=path, offset=offset, end_offset=offset)
