"""A model of one replica's log, built from the log's bytes and compared with the log.

A model follows its log: it reads what was appended (only that), and takes off what was cut. It
reads bytes and never asks the log what it thinks is in it, except for where segments begin and how
long they are; what the log says of itself is then compared with the model.

This file must not know other replicas, roles or what is committed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from strandline.records.batch import (
    ATTRIBUTES_AT,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
)
from strandline.sim.checkers.batch_list import BatchList
from strandline.sim.checkers.batches import (
    Batch,
    Batches,
    Dropped,
    Records,
    Remains,
    Writer,
    header_fields,
    peek,
    records_in,
    size_in_world,
    unreadable,
)
from strandline.sim.checkers.growth import Growth
from strandline.sim.checkers.marks import (
    CUTS,
    END,
    FIRST_BASE,
    HIGH_WATERMARK,
    LEADER,
    LOG_START,
    NO_ROLE,
    Mark,
    first_base,
)
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from strandline.node.replica import Replica
    from strandline.replication.leader import Leader
    from strandline.storage.log import Log
    from strandline.storage.segment import Segment


class LogModel(BatchList):
    """The log of one replica.

    - `mark`: the fingerprint of the replica when it was last looked at.
    - `has_failed`: the log takes no more appends; it is followed no more.
    - `start_rose_us`: when its log start was last seen to move.
    - `leads_since_us`: when its replica became the leader.
    - `growth`: how long it was when, since then or since it was cut.
    - `start_fell`: its log start came back lower after a crash than it had been.
    """

    __slots__ = (
        "_findings",
        "_former_remains",
        "_known",
        "_producer_epochs",
        "_tail_base",
        "_tail_size",
        "at",
        "broker_id",
        "directory",
        "epochs_at_round_start",
        "growth",
        "has_failed",
        "is_live",
        "leads_since_us",
        "log",
        "mark",
        "replica",
        "rounds",
        "start_fell",
        "start_rose_us",
    )

    def __init__(self, broker_id: BrokerId, log: Log, known: Batches, findings: Findings) -> None:
        super().__init__()
        self.broker_id = broker_id
        self.at: TopicPartition = log.topic_partition
        self.log = log
        self.directory = log.directory
        self.replica: Replica | None = None
        self.is_live = True
        self.mark: Mark = (0, 0, 0, 0, 0, 0, -1, 0, *NO_ROLE)
        self.has_failed = False
        self.start_fell = False
        self.start_rose_us = 0
        self.leads_since_us = 0
        self.growth = Growth()
        self.rounds = 0
        self.epochs_at_round_start = 0
        self._former_remains: dict[int, Remains] = {}
        """While the log is read anew: what compaction had left of which batch before."""
        self._known = known
        self._findings = findings
        self._tail_base = -1
        self._tail_size = 0
        self._producer_epochs: dict[int, int] = {}

    def __str__(self) -> str:
        return f"{self.at} on broker {self.broker_id}"

    # -- Questions ---------------------------------------------------------------------------

    @property
    def log_start(self) -> int:
        """Where the log started when it was last looked at."""
        start: int = self.mark[LOG_START]
        return start

    @property
    def high_watermark(self) -> int:
        """The high watermark when it was last looked at."""
        high_watermark: int = self.mark[HIGH_WATERMARK]
        return high_watermark

    @property
    def leader(self) -> Leader | None:
        """The leadership of this replica when it was last looked at."""
        leader: Leader | None = self.mark[LEADER]
        return leader

    @property
    def is_compacted(self) -> bool:
        """Whether compaction may have taken something from the log. What it has taken is gone also
        when the policy is another one since, as it is for a topic that is being deleted."""
        if self.log.config.is_compacted:
            self._known.is_compacted = True
        return self._known.is_compacted

    def holds(self, batch: Batch) -> bool:
        """Whether this log has the batch, and so everything that comes before it.

        Where compaction has left nothing of a batch anywhere, it may be missing here as well; but
        nothing else can stand in its place.
        """
        index = bisect_left(self.bases, batch.base_offset)
        if index < len(self.batches) and self.batches[index] is batch:
            return True
        if not batch.compacted_away or batch.next_offset > self.log.log_end_offset:
            return False
        stop = self.index_at(batch.next_offset)
        return not stop or self.batches[stop - 1].next_offset <= batch.base_offset

    def was_followed(self, writer: Writer, last_offset: int) -> bool:
        """Whether a producer wrote a batch that ends there, of which compaction has left nothing
        because there was a later one of that producer."""
        return self._known.was_followed(writer, last_offset)

    # -- Following the log -------------------------------------------------------------------

    def note_leadership(self, now_us: int) -> None:
        """Its replica leads from now on."""
        self.leads_since_us = now_us
        self.growth.begin(self.log.log_end_offset, now_us)

    def extend(self) -> Sequence[Batch]:
        """Read what was appended; returns that."""
        log = self.log
        before = len(self.batches)
        active = log.active
        if active.base_offset == self._tail_base:
            self._read(active, self._tail_size)
        else:
            for segment in log.segments.since(max(0, self._tail_base)):
                same = segment.base_offset == self._tail_base
                self._read(segment, self._tail_size if same else 0)
        return self.batches[before:]

    def read_anew(self) -> None:
        """Read everything that is in the log's files."""
        self._former_remains, self.remains = self.remains, {}
        self.batches, self.bases, self.ends = [], [], []
        self.cut_bytes = 0
        self._producer_epochs.clear()
        self._tail_base, self._tail_size = -1, 0
        for segment in self.log.segments.all:
            self._read(segment, 0)
        self._former_remains = {}

    def cut(self) -> Sequence[Batch]:
        """The log was truncated, and perhaps appended to since; returns what is gone."""
        former = self.batches
        kept = bisect_left(self.bases, self.log.log_end_offset)
        if self._is_cut_to(kept):
            removed = former[kept:]
            self._forget(kept)
            active = self.log.active
            self._tail_base, self._tail_size = active.base_offset, active.size
            self._producer_epochs.clear()
            return removed
        self.read_anew()
        return [batch for batch in former if not self.holds(batch)]

    def _is_cut_to(self, kept: int) -> bool:
        """Whether the log consists of the first `kept` batches: by its size and its last batch."""
        log = self.log
        if self.bytes_between(0, kept) != log.segments.size_bytes:
            return False
        if not kept:
            return True
        last = self.batches[kept - 1]
        if last.next_offset != log.log_end_offset:
            return False
        segment = log.segments.all[log.segments.index_of(last.base_offset)]
        size = self.size_of(kept - 1)
        fields = header_fields(peek(segment.log, segment.size - size, size), 0)
        return fields is not None and (fields[0], fields[2], fields[4]) == (
            last.base_offset,
            last.leader_epoch,
            self.crc_of(last),
        )

    def moved(self) -> Sequence[Batch]:
        """The log lies in another directory; returns what is gone, although it was not deleted."""
        former = self.batches
        self.read_anew()
        start = self.log.log_start_offset
        return [each for each in former if each.next_offset > start and not self.holds(each)]

    def drop_front(self) -> Sequence[Dropped]:
        """Segments were removed from the front; returns what is gone with them."""
        count = bisect_left(self.bases, self.log.segments.first.base_offset)
        removed = [self._dropped(index) for index in range(count)]
        if count:
            self.cut_bytes = self.ends[count - 1]
            for base in self.bases[:count]:
                self.remains.pop(base, None)
            del self.batches[:count], self.bases[:count], self.ends[:count]
        return removed

    def _dropped(self, index: int) -> Dropped:
        batch = self.batches[index]
        return Dropped(batch, self.size_of(index), self.newest_in(batch))

    @property
    def is_followed(self) -> bool:
        """Whether it is known what the log holds."""
        return self.log.failure is None

    @property
    def is_current(self) -> bool:
        """Whether the log is as long as it was when it was last looked at. It is not while a slow
        disk holds up the turn that has changed it: the checkers see the change after the turn."""
        mark, log = self.mark, self.log
        is_as_long: bool = mark[END] == log.log_end_offset and mark[CUTS] == log.offsets.truncations
        return is_as_long and mark[FIRST_BASE] == first_base(log)

    def is_behind(self) -> bool:
        """Whether more was handed to the log's files than was read here."""
        active = self.log.active
        return active.base_offset != self._tail_base or size_in_world(active.log) > self._tail_size

    def _forget(self, kept: int) -> None:
        for base in self.bases[kept:]:
            self.remains.pop(base, None)
        del self.batches[kept:], self.bases[kept:], self.ends[kept:]

    def _read(self, segment: Segment, position: int) -> None:
        data = peek(segment.log, position, segment.size - position)
        self._tail_base, self._tail_size = segment.base_offset, position
        self._take(data, segment)

    def _take(self, data: bytes, segment: Segment) -> None:
        """Note the batches in bytes that stand in a segment where the model has come to."""
        position = 0
        batches, bases, ends = self.batches, self.bases, self.ends
        while position < len(data):
            fields = header_fields(data, position)
            problem = self._problem(fields, data, position, segment)
            if problem is not None or fields is None:
                self._findings.add(
                    "I-02", f"{self}: at {self._tail_size} of {segment.log.path} {problem}", self.at
                )
                return
            batch, size = self._meet(fields, data, position), _size_in(fields)
            self._check_readable(batch, fields, data, position)
            batches.append(batch)
            bases.append(batch.base_offset)
            ends.append((ends[-1] if ends else self.cut_bytes) + size)
            position += size
            self._tail_size += size

    def _check_readable(
        self, batch: Batch, fields: tuple[int, ...], data: bytes, position: int
    ) -> None:
        """I-57. What has the checksum of bytes that were found readable is not read again."""
        is_as_written = batch.crc == fields[4] and batch.size == _size_in(fields)
        former = self._former_remains.get(batch.base_offset)
        if (is_as_written and batch.is_readable) or (former and former.crc == fields[4]):
            return
        problem = unreadable(data, position, may_have_gaps=self.is_compacted)
        if problem is not None:
            self._findings.add("I-57", f"{self}: {problem}", self.at)
        batch.is_readable |= is_as_written and problem is None

    def _meet(self, fields: tuple[int, ...], data: bytes, position: int) -> Batch:
        before = self.batches[-1] if self.batches else None
        if before is not None and (
            before.next_offset != fields[0] or before.next_offset <= self.log_start
        ):
            # What lies below the log start need not agree with anything: of an epoch older than all
            # it knows, a leader says that it ends where its own log begins.
            before = None
        if fields[9] >= 0:
            self._note_producer(fields)
        size = _size_in(fields)
        if not self.is_compacted or self._known.is_whole(fields, size):
            return self._known.meet(fields, size, before, self.broker_id)
        former = self._former_remains.get(fields[0])
        if former is not None and former.crc == fields[4]:
            records: Records | None = former.records
        else:
            records = records_in(data, position)
        batch = self._known.meet(fields, size, before, self.broker_id, records)
        if records is not None and (batch.crc != fields[4] or batch.size != size):
            horizon = fields[7] if fields[5] & DELETE_HORIZON_BIT else None
            self.remains[batch.base_offset] = Remains(records, fields[4], horizon, fields[8])
        return batch

    def _problem(
        self, fields: tuple[int, ...] | None, data: bytes, position: int, segment: Segment
    ) -> str | None:
        """The fault of the batch at that position, or None."""
        if fields is None:
            return f"is no whole batch in {len(data) - position} bytes"
        size = _size_in(fields)
        crc = crc32c(memoryview(data)[position + ATTRIBUTES_AT : position + size])
        if crc != fields[4]:
            return f"the batch at offset {fields[0]} does not match its checksum"
        if fields[0] < segment.base_offset:
            return f"the batch at offset {fields[0]} lies below its segment"
        if not self.batches:
            return None
        last = self.batches[-1]
        if fields[0] < last.next_offset:
            return f"the batch at offset {fields[0]} overlaps the one before it, {last}"
        if fields[0] > last.next_offset and not self.is_compacted:
            return f"offsets are missing between {last.next_offset} and {fields[0]}"
        return None

    def _note_producer(self, fields: tuple[int, ...]) -> None:
        """I-37, as far as one log shows it: the epochs of a producer never fall."""
        producer_id, epoch = fields[9], fields[10]
        if epoch < self._producer_epochs.get(producer_id, -1):
            self._findings.add(
                "I-37",
                f"{self}: producer {producer_id} appended at {fields[0]} in epoch {epoch} after "
                f"epoch {self._producer_epochs[producer_id]}",
                self.at,
            )
        else:
            self._producer_epochs[producer_id] = epoch


def _size_in(fields: tuple[int, ...]) -> int:
    """How long the batch with this header is."""
    return fields[1] + LOG_OVERHEAD
