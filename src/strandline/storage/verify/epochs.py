"""Whether the table of leader epochs tells the truth about the batches of a replica (KIP-101).

This file knows the table and the rule that the epoch of each batch is the one that the table gives
for its offsets. It must not know where batches come from.
"""

from __future__ import annotations

from strandline.errors import StorageError
from strandline.records.batch import BatchHeader
from strandline.storage import leader_epochs
from strandline.storage.checkpoint_file import read_checkpoint
from strandline.storage.files import Files, join
from strandline.storage.leader_epochs import LeaderEpochs
from strandline.storage.verify.findings import Findings, Kind
from strandline.storage.verify.order import older_epoch
from strandline.types import NO_EPOCH, Offset


def load_table(files: Files, path: str) -> tuple[LeaderEpochs, str]:
    """The table, and a sentence if it contradicts itself. Raises `StorageError`."""
    table = LeaderEpochs.load(files, path)
    lines = len(read_checkpoint(files, path))
    ignored = lines - len(table.entries)
    return table, f"Of {lines} entries, {ignored} contradict a later one." if ignored else ""


class EpochLineage:
    """The table of one replica, asked batch by batch."""

    def __init__(
        self, files: Files, directory: str, findings: Findings, *, complete_to: int
    ) -> None:
        """Reads the table; one that cannot be read, or contradicts itself, is a finding.

        Epochs that begin at `complete_to` or above may be missing in it: after a crash recovery
        takes them from the batches (docs/design/0021).
        """
        self._path = join(directory, leader_epochs.FILE_NAME)
        self._findings = findings
        self._complete_to = complete_to
        self._newest = NO_EPOCH
        self._older: list[BatchHeader] = []
        """The first and the last batch in front of the table, while it is open what they mean."""
        self._table: LeaderEpochs | None = None
        try:
            self._table, fault = load_table(files, self._path)
        except StorageError as error:
            fault = str(error)
        if fault:
            findings.add(Kind.LEADER_EPOCHS, fault, path=self._path)

    def check_start(self, first_offset: int, frontier: int) -> None:
        """The table is cut together with the log's start, so it must not begin before that.

        It is the only trace that a log's first segments leave which did not go by retention.
        """
        first = self._table.entries[0] if self._table and self._table.entries else None
        if first is not None and max(first.start_offset, frontier) < first_offset:
            self._findings.add(
                Kind.OFFSET_GAP,
                f"The log begins at offset {first_offset}, but the table of leader epochs at "
                f"{first.start_offset}: segments are missing.",
                path=self._path,
                offset=first.start_offset,
                end_offset=first_offset,
            )

    def check(self, header: BatchHeader, log_start: int) -> bool:
        """Whether the batch's epoch is the right one; adds a finding if not.

        A batch without an epoch comes from a broker that is older than they are.
        """
        epoch = header.leader_epoch
        if epoch < 0 or self._table is None:
            return True
        fault = older_epoch(header, self._newest)
        if fault:
            self._add(header, fault)
            return False
        if self._is_in_front(header):
            self._newest = epoch
            return True
        self.finish()
        if epoch > self._table.latest and header.base_offset >= self._complete_to:
            self._newest = epoch
            return True
        first = max(header.base_offset, log_start)
        known = {self._table.epoch_for_offset(Offset(each)) for each in (first, header.last_offset)}
        if known != {epoch}:
            told = " and ".join(str(each) if each >= 0 else "none" for each in sorted(known))
            self._add(header, f"the batch has leader epoch {epoch}, but the table has {told} there")
            return False
        self._newest = epoch
        return True

    def finish(self) -> None:
        """Behind the last batch, or the last in front of the table: judge those.

        The table forgets what was deleted, but a crash may bring it back: the log's start is
        checkpointed now and then. Then the table begins in the epoch of the batches in front of it.
        """
        if self._older and self._table is not None:
            first, last = self._older[0], self._older[-1]
            if last.leader_epoch != self._table.entries[0].epoch:
                start = self._table.entries[0].start_offset
                self._findings.add(
                    Kind.LEADER_EPOCHS,
                    f"At offset {first.base_offset} the batch has leader epoch "
                    f"{first.leader_epoch}, but the table begins at {start}.",
                    path=self._path,
                    offset=first.base_offset,
                    end_offset=last.next_offset,
                )
        self._older = []

    def _is_in_front(self, header: BatchHeader) -> bool:
        entries = self._table.entries if self._table is not None else ()
        if not entries or header.base_offset >= entries[0].start_offset:
            return False
        self._older = [*self._older[:1], header]
        return True

    def _add(self, header: BatchHeader, what: str) -> None:
        self._findings.add(
            Kind.LEADER_EPOCHS,
            f"At offset {header.base_offset} {what}.",
            path=self._path,
            offset=header.base_offset,
            end_offset=header.next_offset,
        )
