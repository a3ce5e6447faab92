"""The findings about the offset and time index of one segment, along its batches.

This file knows which entries can be judged; what they promise is in `indexes`. Entries that no seen
batch bears out are findings only below the offset up to which all batches were seen. The indexes of
a closed segment have no unwritten rest.
"""

from __future__ import annotations

from typing import Final

from strandline.errors import StorageError
from strandline.records.batch import BatchHeader
from strandline.storage import offset_index, time_index
from strandline.storage.files import Files
from strandline.storage.segment_names import OFFSET_INDEX, TIME_INDEX
from strandline.storage.verify.files import SegmentFiles
from strandline.storage.verify.findings import Findings, Kind
from strandline.storage.verify.indexes import (
    IndexFault,
    OffsetIndexCheck,
    TimeIndexCheck,
    read_entries,
)

_FILES: Final = {
    Kind.OFFSET_INDEX: (OFFSET_INDEX, offset_index.LAYOUT),
    Kind.TIME_INDEX: (TIME_INDEX, time_index.LAYOUT),
}


class SegmentIndexes:
    """Goes along the batches of one segment; `finish` says what is left over."""

    def __init__(
        self, files: Files, segment: SegmentFiles, findings: Findings, *, is_closed: bool
    ) -> None:
        self._files = files
        self._segment = segment
        self._findings = findings
        self._is_closed = is_closed
        self._knows_largest_time = True
        self._offsets = OffsetIndexCheck(segment.base_offset)
        self._times = TimeIndexCheck(segment.base_offset)
        if not segment.is_swapped:
            self._load(Kind.OFFSET_INDEX, self._offsets)
            self._load(Kind.TIME_INDEX, self._times)

    def see(self, position: int, header: BatchHeader) -> None:
        """Compare the entries that are about this batch with it."""
        self._add(Kind.OFFSET_INDEX, self._offsets.see(position, header.last_offset))
        fault = self._times.see(header.last_offset, header.max_timestamp)
        if self._knows_largest_time:
            self._add(Kind.TIME_INDEX, fault)

    def pass_damage(self, position: int) -> None:
        """A batch that cannot be believed: from here on the largest timestamp is not known."""
        self._offsets.skip(position)
        self._knows_largest_time = False

    def finish(self, judged_to: int, *, is_complete: bool) -> None:
        """After the last batch. `is_complete`: all batches of the segment were seen."""
        for fault in self._offsets.unanswered():
            if fault.offset < judged_to:
                self._add(Kind.OFFSET_INDEX, fault)
        if not self._knows_largest_time:
            return
        for fault in self._times.unanswered():
            if fault.offset < judged_to:
                self._add(Kind.TIME_INDEX, fault)
        if is_complete and self._is_closed and not self._segment.is_swapped:
            self._add(Kind.TIME_INDEX, self._times.missing_last())

    def _load(self, kind: Kind, check: OffsetIndexCheck | TimeIndexCheck) -> None:
        name, layout = _FILES[kind]
        base = self._segment.base_offset
        try:
            found = read_entries(self._files, self._segment.index_path(name), layout)
        except StorageError as error:
            self._add(kind, IndexFault(str(error), base))
            return
        if found.torn:
            self._add(kind, IndexFault(found.torn, -1))
        if found.unwritten and self._is_closed:
            sentence = f"The segment is closed, but {found.unwritten} unwritten entries follow."
            self._add(kind, IndexFault(sentence, base))
        for pair in found.pairs:
            self._add(kind, check.enter(*pair))

    def _add(self, kind: Kind, fault: IndexFault | None) -> None:
        if fault is not None:
            path = self._segment.index_path(_FILES[kind][0])
            offset = fault.offset
            self._findings.add(kind, fault.sentence, path=path, offset=offset, end_offset=offset)
