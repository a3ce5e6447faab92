"""What one replica's log consists of, as told by its bytes: kept beside it, compared with it.

A model follows its log: it reads what was appended (only that), and takes off what was cut. It
reads bytes and never asks the log what it thinks is in it, except for where segments begin and how
long they are; what the log says of itself is then compared with the model.

This file must not know other replicas, roles or what is committed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from crc32c import crc32c

from strandline.records.batch import (
    ATTRIBUTES_AT,
    DELETE_HORIZON_BIT,
    LOG_OVERHEAD,
    OFFSET_LENGTH_EPOCH,
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
)
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
from strandline.sim.checkers.readable import unreadable
from strandline.sim.checkers.violations import Findings
from strandline.types import BrokerId, TopicPartition

if TYPE_CHECKING:
    from strandline.node.replica import Replica
    from strandline.replication.leader import Leader
    from strandline.storage.log import Log
    from strandline.storage.segment import Segment


def _never(path: str) -> bool:
    """Nothing happens behind the back of a broker that is only imagined."""
    del path
    return False


class LogModel(BatchList):
    """The log of one replica.

    - `mark`: the fingerprint of the replica when it was last looked at.
    - `is_blind`: the bytes are so damaged that nobody can tell what was there.
    - `has_failed`: the log takes no more appends; it is followed no more.
    - `was_damaged`: its disk was damaged from outside before this process; physics, not the code,
      decides what is left. What rots while the process runs has been read before: then a batch is
      the one that stood at its place (`is_rotten`).
    - `start_rose_us`: when its log start was last seen to move.
    - `leads_since_us`: when its replica became the leader.
    - `start_fell`: its log start came back lower after a crash than it had been.
    - `unvouched_to`: where its leader's log started when this one was cut to agree with it. What is
      kept below that, nobody compared; it is hidden, unless the log start falls.
    """

    __slots__ = (
        "_findings",
        "_former",
        "_former_remains",
        "_grown",
        "_is_rotten",
        "_known",
        "_producer_epochs",
        "_tail_base",
        "_tail_size",
        "at",
        "broker_id",
        "epochs_at_round_start",
        "has_failed",
        "is_blind",
        "is_live",
        "leads_since_us",
        "log",
        "mark",
        "replica",
        "rounds",
        "start_fell",
        "start_rose_us",
        "unvouched_to",
        "was_damaged",
    )

    def __init__(
        self,
        broker_id: BrokerId,
        log: Log,
        known: Batches,
        findings: Findings,
        is_rotten: Callable[[str], bool] = _never,
    ) -> None:
        """`is_rotten` says of which files the disk has changed bytes by itself."""
        super().__init__()
        self.broker_id = broker_id
        self.at: TopicPartition = log.topic_partition
        self.log = log
        self.replica: Replica | None = None
        self.is_live = True
        self.mark: Mark = (0, 0, 0, 0, 0, 0, -1, 0, *NO_ROLE)
        self.was_damaged = False
        self.has_failed = False
        self.is_blind = False
        self.start_fell = False
        self.start_rose_us = 0
        self.leads_since_us = 0
        self._grown: list[tuple[int, int]] = []
        """Of a leader: where its log ended at first and after each growth, and since when."""
        self.unvouched_to = 0
        self.rounds = 0
        self.epochs_at_round_start = 0
        self._former: dict[int, tuple[Batch, int]] = {}
        """While the log is read anew: what stood where before, and how long it was."""
        self._former_remains: dict[int, Remains] = {}
        self._is_rotten = is_rotten
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

    @property
    def visible_from(self) -> int:
        """Where the first batch begins of which anything can be read; the log start without any.
        The log may start inside of it (DeleteRecords)."""
        first = self.index_at(self.log_start + 1) - 1
        if first >= 0 and self.batches[first].next_offset > self.log_start:
            return self.batches[first].base_offset
        return self.log_start

    def had_more_since_us(self, offset: int) -> int | None:
        """Since when this log, while its replica has led, was longer than `offset`; None: it is
        not."""
        index = bisect_right(self._grown, offset, key=lambda each: each[0])
        return self._grown[index][1] if index < len(self._grown) else None

    # -- Following the log -------------------------------------------------------------------

    def note_leadership(self, now_us: int) -> None:
        """Its replica leads from now on."""
        self.leads_since_us = now_us
        self._grown = [(self.log.log_end_offset, now_us)]

    def note_growth(self, now_us: int) -> None:
        """Its replica leads, and the log is longer than before."""
        self._grown.append((self.log.log_end_offset, now_us))

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
        sizes = map(self.size_of, range(len(self.batches)))
        self._former = dict(zip(self.bases, zip(self.batches, sizes, strict=True), strict=True))
        self._former_remains, self.remains = self.remains, {}
        self.batches, self.bases, self.ends = [], [], []
        self.cut_bytes = 0
        self._producer_epochs.clear()
        self._tail_base, self._tail_size = -1, 0
        for segment in self.log.segments.all:
            self._read(segment, 0, may_be_damaged=self.was_damaged)
        self._former, self._former_remains = {}, {}

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
        return self.log.failure is None and not (self.is_blind or self.was_damaged)

    @property
    def is_current(self) -> bool:
        """Whether the log is as long as it was when it was last looked at. It is not while a slow
        disk holds up the turn that has changed it: that is told when the turn is over."""
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

    def _read(self, segment: Segment, position: int, *, may_be_damaged: bool = False) -> None:
        data = peek(segment.log, position, segment.size - position)
        self._tail_base, self._tail_size = segment.base_offset, position
        self._take(data, segment, may_be_damaged=may_be_damaged)

    def _take(self, data: bytes, segment: Segment, *, may_be_damaged: bool) -> None:
        """Note the batches in bytes that stand in a segment where the model has come to.

        Damage is older than the process that found it. What is appended since is what it says,
        also where a producer's retry has the checksum of a batch that stood there in another epoch.
        """
        position = 0
        batches, bases, ends = self.batches, self.bases, self.ends
        while position < len(data):
            fields = header_fields(data, position)
            problem = self._problem(fields, data, position, segment)
            is_damaged = may_be_damaged or (
                problem is not None and (self.was_damaged or self._is_rotten(segment.log.path))
            )
            former = self._former_at(data, position) if is_damaged and problem is not None else None
            if former is not None:
                batch, size = former
            elif is_damaged:
                # What has rotted unread, nobody knows.
                found = self._remembered(fields, problem, segment, data, position)
                if found is None or not self.was_damaged:
                    self.is_blind = True
                    return
                batch = found
                size = batch.size if problem is not None or fields is None else _size_in(fields)
            elif problem is not None or fields is None:
                self._findings.add(
                    "I-02", f"{self}: at {self._tail_size} of {segment.log.path} {problem}", self.at
                )
                return
            else:
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
        gaps = self.is_compacted or self.was_damaged
        is_as_written = batch.crc == fields[4] and batch.size == _size_in(fields)
        if is_as_written and batch.gaps_excused in (False, gaps):
            return
        former = self._former_remains.get(batch.base_offset)
        if former is not None and former.crc == fields[4]:
            return
        problem = unreadable(data, position, may_have_gaps=gaps)
        if problem is not None:
            self._findings.add("I-57", f"{self}: {problem}", self.at)
        elif is_as_written:
            batch.gaps_excused = gaps

    def _former_at(self, data: bytes, position: int) -> tuple[Batch, int] | None:
        """What stood there when the log was read before, and its length. What rots is covered by a
        checksum: offset, length and leader epoch still say which batch it was."""
        if len(data) - position < OFFSET_LENGTH_EPOCH.size:
            return None
        base, length, epoch = OFFSET_LENGTH_EPOCH.unpack_from(data, position)
        former = self._former.get(base)
        if former is None or (former[0].leader_epoch, former[1]) != (epoch, length + LOG_OVERHEAD):
            return None
        remains = self._former_remains.get(base)
        if remains is not None:
            self.remains[base] = remains
        return former

    def _meet(self, fields: tuple[int, ...], data: bytes, position: int) -> Batch:
        before = self.batches[-1] if self.batches else None
        if before is not None and (
            before.next_offset != fields[0]
            or before.next_offset <= max(self.log_start, self.unvouched_to)
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

    def _remembered(
        self,
        fields: tuple[int, ...] | None,
        problem: str | None,
        segment: Segment,
        data: bytes,
        position: int,
    ) -> Batch | None:
        """The batch that stands there in a log whose bytes may have been damaged: the one that was
        written there, if that is known; else what can be read."""
        before = self.batches[-1] if self.batches else None
        offset = segment.base_offset
        if before is not None and self._tail_size:
            offset = before.next_offset
        if before is not None and before.next_offset != offset:
            before = None
        known = self._known.expected(offset, before)
        if known is not None and (
            # Offset and epoch stand outside of the checksum.
            problem is not None or fields is None or fields[4] == known.crc
        ):
            return known
        return None if problem is not None or fields is None else self._meet(fields, data, position)

    def _problem(
        self, fields: tuple[int, ...] | None, data: bytes, position: int, segment: Segment
    ) -> str | None:
        """What is wrong with the batch there, or None."""
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
        may_have_gaps = self.was_damaged or self.is_compacted
        if fields[0] > last.next_offset and not may_have_gaps:
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
