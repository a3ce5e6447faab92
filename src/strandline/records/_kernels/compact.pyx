# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The loops of compaction, compiled: see the twin `records/compacting.py`, which says what they do.

Both walks over batches run without the interpreter's lock, so that a broker's event loop goes on in
its own thread. The map is one block of slots with linear probing:

    ┌ hash ┬ hash ┬ offset + 1 ┐
    │ 8    │ 8    │ 8          │   a slot of zeros is free
    └──────┴──────┴────────────┘

The keys of a batch are hashed first, and the memory of their slots is asked for, before the first
of them is looked up: the map is larger than any cache, and the waits then overlap.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from strandline.records._kernels.fields cimport sum_fits, walk_headers

from strandline.errors import CorruptRecords, InvariantViolated
from strandline.records.batch import parse_header
from strandline.records.compacting import SLOT_BYTES, IndexEntry, Stop


cdef extern from "compact.h" nogil:
    ctypedef struct KeyHash:
        uint64_t high
        uint64_t low

    uint64_t read_little_64(const unsigned char *at)
    int64_t read_big_64(const unsigned char *at)
    int32_t read_big_32(const unsigned char *at)
    void write_big_64(unsigned char *at, int64_t number)
    void write_big_32(unsigned char *at, uint32_t value)
    const unsigned char *read_folded(
        const unsigned char *at, const unsigned char *end, int bits, int64_t *number
    )
    unsigned char *write_folded(unsigned char *at, int64_t number)
    int folded_size(int64_t number)
    void prepare_crc()
    uint32_t crc_32c(const unsigned char *at, size_t size)
    KeyHash hash_key(uint64_t k0, uint64_t k1, const unsigned char *key, size_t size)
    size_t slot_of(KeyHash hash, size_t slots)
    void fetch_early(const void *at)


cdef enum:
    HEADER = 61
    OVERHEAD = 12
    RECORD_MIN = 7
    CODEC_BITS = 0x07
    STAMPED_BIT = 0x08
    TRANSACTION_BIT = 0x10
    MARKER_BIT = 0x20
    HORIZON_BIT = 0x40
    # Why a walk stopped: the numbers of `Stop`, then what is wrong with the bytes.
    AT_END = 0
    AT_SPECIAL = 1
    AT_FULL = 2
    BAD_HEADER = 3
    BAD_CHECKSUM = 4
    BAD_RECORDS = 5
    NO_MEMORY = 6

prepare_crc()


cdef struct Batch:
    int64_t base_offset
    int64_t last_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    Py_ssize_t size
    int32_t attributes
    int32_t count


cdef struct Slot:
    uint64_t high
    uint64_t low
    uint64_t offset_and_one


cdef struct Span:
    # One record: its bytes, and those behind its timestamp delta, which no copy changes.
    const unsigned char *start
    const unsigned char *rest
    const unsigned char *end
    int64_t offset
    int64_t timestamp
    KeyHash hash
    bint has_key
    bint has_value
    bint stays


cdef class Spans:
    """The records of the batch at hand; the memory is used again for the next."""

    cdef Span *at
    cdef Py_ssize_t room

    def __cinit__(self):
        self.at = NULL
        self.room = 0

    def __dealloc__(self):
        free(self.at)

    cdef bint make_room(self, Py_ssize_t count) noexcept nogil:
        cdef Span *grown
        if count > self.room:
            grown = <Span *>realloc(self.at, count * sizeof(Span))
            if grown == NULL:
                return False
            self.at = grown
            self.room = count
        return True


cdef int read_batch(const unsigned char *at, Py_ssize_t left, Batch *batch) noexcept nogil:
    """AT_END when it is not there completely, -1 when it is."""
    cdef int64_t length
    if left < HEADER:
        return AT_END
    length = read_big_32(at + 8)
    if at[16] != 2 or length < HEADER - OVERHEAD:
        return BAD_HEADER
    if left < length + OVERHEAD:
        return AT_END
    batch.size = length + OVERHEAD
    batch.base_offset = read_big_64(at)
    batch.attributes = at[21] << 8 | at[22]
    batch.last_offset = batch.base_offset + read_big_32(at + 23)
    batch.base_timestamp = read_big_64(at + 27)
    batch.max_timestamp = read_big_64(at + 35)
    batch.producer_id = read_big_64(at + 43)
    batch.count = read_big_32(at + 57)
    return -1


cdef bint has_right_checksum(const unsigned char *at, Py_ssize_t size) noexcept nogil:
    return <uint32_t>read_big_32(at + 17) == crc_32c(at + 21, size - 21)


cdef const unsigned char *skip_field(
    const unsigned char *at, const unsigned char *end, int64_t *size
) noexcept nogil:
    at = read_folded(at, end, 32, size)
    if at == NULL or size[0] > end - at:
        return NULL
    return at if size[0] < 0 else at + size[0]


cdef class KeyMap:
    """See the twin."""

    cdef Slot *table
    cdef size_t slot_count
    cdef uint64_t k0, k1
    cdef Spans spans
    cdef readonly int64_t latest_offset
    cdef readonly int64_t records_read
    cdef readonly int64_t entries
    cdef readonly int64_t entries_max

    def __cinit__(self, memory_bytes, load_factor, bytes secret not None):
        cdef const unsigned char *key = secret
        if len(secret) != 16:
            raise InvariantViolated("The secret of a key map has 16 bytes.")
        self.slot_count = max(1, memory_bytes // SLOT_BYTES)
        # Not touched before it is used: the system gives zeroed pages as they are needed.
        self.table = <Slot *>calloc(self.slot_count, sizeof(Slot))
        if self.table == NULL:
            raise MemoryError(f"There is no memory for a key map of {memory_bytes} bytes.")
        self.entries_max = min(int(self.slot_count * load_factor), self.slot_count - 1)
        self.k0 = read_little_64(key)
        self.k1 = read_little_64(key + 8)
        self.spans = Spans()
        self.latest_offset = -1
        self.records_read = 0
        self.entries = 0

    def __dealloc__(self):
        # To give back the pages of a large map takes long enough to be noticed.
        with nogil:
            free(self.table)

    @property
    def slots(self):
        return self.slot_count

    cdef Slot *find(self, KeyHash hash) noexcept nogil:
        """The slot of the key, or the free one where it belongs; one is always free."""
        cdef size_t index = slot_of(hash, self.slot_count)
        cdef Slot *slot
        while True:
            slot = &self.table[index]
            if slot.offset_and_one == 0 or (slot.high == hash.high and slot.low == hash.low):
                return slot
            index += 1
            if index == self.slot_count:
                index = 0

    cdef int take(
        self, const Batch *batch, const unsigned char *payload, Py_ssize_t size, int64_t first
    ) noexcept nogil:
        cdef int wrong = read_spans(batch, payload, size, self.spans, self)
        cdef Span *span
        cdef Slot *slot
        cdef int32_t index
        if wrong >= 0:
            return wrong
        for index in range(batch.count):
            span = &self.spans.at[index]
            if span.has_key and span.offset >= first:
                if self.entries >= self.entries_max:
                    return AT_FULL
                slot = self.find(span.hash)
                if slot.offset_and_one == 0:
                    slot.high = span.hash.high
                    slot.low = span.hash.low
                    self.entries += 1
                slot.offset_and_one = <uint64_t>span.offset + 1
                self.latest_offset = span.offset
            self.records_read += 1
        return -1

    def offset_of(self, bytes key not None):
        cdef const unsigned char *at = key
        return <int64_t>self.find(hash_key(self.k0, self.k1, at, len(key))).offset_and_one - 1

    def advance_to(self, int64_t offset):
        if offset > self.latest_offset:
            self.latest_offset = offset

    def add_batches(
        self, const unsigned char[::1] chunk, Py_ssize_t start, Py_ssize_t end, int64_t first_offset
    ):
        cdef const unsigned char *at = &chunk[0] if chunk.shape[0] else NULL
        cdef Batch batch
        cdef int stop = AT_END
        end = min(end, chunk.shape[0])
        with nogil:
            while True:
                stop = read_batch(at + start, end - start, &batch)
                if stop >= 0:
                    break
                if batch.attributes & (CODEC_BITS | TRANSACTION_BIT | MARKER_BIT):
                    stop = AT_SPECIAL
                    break
                if batch.last_offset >= first_offset:
                    if not has_right_checksum(at + start, batch.size):
                        stop = BAD_CHECKSUM
                        break
                    stop = self.take(
                        &batch, at + start + HEADER, batch.size - HEADER, first_offset
                    )
                    if stop >= 0:
                        break
                    if batch.last_offset > self.latest_offset:
                        self.latest_offset = batch.last_offset
                start += batch.size
        return start, stop_of(stop, &batch)

    def add_records(self, header, const unsigned char[::1] payload, int64_t first_offset):
        cdef Batch batch = batch_of(header)
        cdef const unsigned char *at = &payload[0] if payload.shape[0] else NULL
        cdef int stop
        with nogil:
            stop = self.take(&batch, at, payload.shape[0], first_offset)
        if stop == -1:
            return False
        stop_of(stop, &batch)
        return True


cdef int read_spans(
    const Batch *batch,
    const unsigned char *at,
    Py_ssize_t size,
    Spans spans,
    KeyMap keys,
) noexcept nogil:
    """Find the records of a batch in its payload, hash their keys; -1 when all is well."""
    cdef const unsigned char *end = at + size
    cdef const unsigned char *record_end
    cdef const unsigned char *key_end
    cdef int64_t number = 0, delta = 0, before = -1
    cdef int64_t last_delta = batch.last_offset - batch.base_offset
    cdef Span *span
    cdef int32_t index
    if batch.count < 0 or <int64_t>batch.count * RECORD_MIN > size:
        return BAD_RECORDS
    if not spans.make_room(batch.count):
        return NO_MEMORY
    for index in range(batch.count):
        span = &spans.at[index]
        span.start = at
        at = read_folded(at, end, 32, &number)
        if at == NULL or number < RECORD_MIN - 1 or number > end - at:
            return BAD_RECORDS
        record_end = at + number
        at = read_folded(at + 1, record_end, 64, &number)
        if at == NULL or not sum_fits(batch.base_timestamp, number, &span.timestamp):
            return BAD_RECORDS
        if batch.attributes & STAMPED_BIT:
            span.timestamp = batch.max_timestamp
        span.rest = at
        at = read_folded(at, record_end, 32, &delta)
        if at == NULL or delta <= before or delta > last_delta:
            return BAD_RECORDS
        before = delta
        span.offset = batch.base_offset + delta
        key_end = skip_field(at, record_end, &number)
        if key_end == NULL:
            return BAD_RECORDS
        span.has_key = number >= 0
        if span.has_key:
            span.hash = hash_key(keys.k0, keys.k1, key_end - number, number)
            fetch_early(&keys.table[slot_of(span.hash, keys.slot_count)])
        at = skip_field(key_end, record_end, &number)
        if at == NULL or not walk_headers(at, 0, record_end - at):
            return BAD_RECORDS
        span.has_value = number >= 0
        span.end = record_end
        at = record_end
    return -1 if at == end else BAD_RECORDS


cdef Batch batch_of(header):
    cdef Batch batch
    batch.base_offset = header.base_offset
    batch.last_offset = header.last_offset
    batch.base_timestamp = header.base_timestamp
    batch.max_timestamp = header.max_timestamp
    batch.producer_id = header.producer_id
    batch.attributes = header.attributes
    batch.count = header.record_count
    batch.size = header.size_bytes
    return batch


_STOPS = tuple(Stop)


cdef object stop_of(int stop, const Batch *batch):
    if stop <= AT_FULL:
        return _STOPS[stop]
    if stop == NO_MEMORY:
        raise MemoryError("There is no memory for the records of a batch.")
    if stop == BAD_HEADER:
        raise CorruptRecords("What follows cannot be a record batch.")
    reason = "match its checksum" if stop == BAD_CHECKSUM else "hold the records that it declares"
    raise CorruptRecords(f"The record batch at offset {batch.base_offset} does not {reason}.")


cdef class BatchFilter:
    """See the twin."""

    cdef KeyMap keys
    cdef Spans spans
    cdef object rules
    cdef int64_t now_ms, horizon_ms, interval
    cdef bint notes_gone
    cdef int64_t *producers  # pairs of an id and a last offset
    cdef Py_ssize_t producer_count
    cdef unsigned char *out
    cdef Py_ssize_t used, room
    cdef int64_t *numbers  # four for each index entry
    cdef Py_ssize_t numbers_used, numbers_room
    cdef int64_t *gone  # two for each range
    cdef Py_ssize_t gone_used, gone_room
    cdef int64_t written, since_entry
    cdef readonly int64_t max_timestamp, max_timestamp_offset
    cdef readonly int64_t records_read, records_kept

    def __cinit__(self, KeyMap keys not None, rules):
        cdef Py_ssize_t index
        self.keys = keys
        self.spans = Spans()
        self.rules = rules
        self.now_ms = rules.now_ms
        self.horizon_ms = rules.horizon_ms
        self.interval = rules.index_interval_bytes
        self.notes_gone = rules.notes_gone
        self.out = NULL
        self.numbers = NULL
        self.gone = NULL
        self.used = self.room = 0
        self.numbers_used = self.numbers_room = 0
        self.gone_used = self.gone_room = 0
        self.records_read = self.records_kept = 0
        self.producer_count = len(rules.producer_ids)
        self.producers = <int64_t *>malloc((2 * self.producer_count + 1) * sizeof(int64_t))
        if self.producers == NULL:
            raise MemoryError("There is no memory for the producers of a log.")
        for index in range(self.producer_count):
            self.producers[2 * index] = rules.producer_ids[index]
            self.producers[2 * index + 1] = rules.last_offsets[index]
        self.start_segment(0)

    def __dealloc__(self):
        free(self.producers)
        free(self.out)
        free(self.numbers)
        free(self.gone)

    def start_segment(self, int64_t base_offset):
        self.used = self.numbers_used = 0
        self.written = self.since_entry = 0
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset

    @property
    def waiting_bytes(self):
        return self.used

    # -- Memory ------------------------------------------------------------------------------

    cdef bint make_room(self, Py_ssize_t size) noexcept nogil:
        """Room for one batch of `size` bytes, its index entry, and what it loses."""
        cdef void *grown
        cdef Py_ssize_t wanted
        if self.used + size > self.room:
            wanted = (self.used + size) * 2
            grown = realloc(self.out, wanted)
            if grown == NULL:
                return False
            self.out = <unsigned char *>grown
            self.room = wanted
        if self.numbers_used + 4 > self.numbers_room:
            wanted = (self.numbers_used + 4) * 2
            grown = realloc(self.numbers, wanted * sizeof(int64_t))
            if grown == NULL:
                return False
            self.numbers = <int64_t *>grown
            self.numbers_room = wanted
        return True

    cdef bint add_gone(self, int64_t first, int64_t last) noexcept nogil:
        cdef void *grown
        cdef Py_ssize_t wanted
        if self.gone_used and self.gone[self.gone_used - 1] == first - 1:
            self.gone[self.gone_used - 1] = last
            return True
        if self.gone_used + 2 > self.gone_room:
            wanted = (self.gone_used + 2) * 2
            grown = realloc(self.gone, wanted * sizeof(int64_t))
            if grown == NULL:
                return False
            self.gone = <int64_t *>grown
            self.gone_room = wanted
        self.gone[self.gone_used] = first
        self.gone[self.gone_used + 1] = last
        self.gone_used += 2
        return True

    # -- Judging -----------------------------------------------------------------------------

    cdef bint stays(self, const Batch *batch, const Span *span) noexcept nogil:
        cdef int64_t found
        if span.offset > self.keys.latest_offset:
            return True
        if not span.has_key:
            return False
        found = <int64_t>self.keys.find(span.hash).offset_and_one - 1
        if span.offset < found:
            return False
        return (
            span.has_value
            or not batch.attributes & HORIZON_BIT
            or self.now_ms < batch.base_timestamp
        )

    cdef int judge(
        self,
        const Batch *batch,
        const unsigned char *payload,
        Py_ssize_t size,
        int32_t *count,
        bint *has_tombstone,
    ) noexcept nogil:
        """Mark the records that stay; -1 when all is well."""
        cdef int wrong = read_spans(batch, payload, size, self.spans, self.keys)
        cdef Span *span
        cdef int32_t index
        count[0] = 0
        has_tombstone[0] = False
        if wrong >= 0:
            return wrong
        for index in range(batch.count):
            span = &self.spans.at[index]
            span.stays = self.stays(batch, span)
            if span.stays:
                count[0] += 1
                if not span.has_value:
                    has_tombstone[0] = True
            elif self.notes_gone and not self.add_gone(span.offset, span.offset):
                return NO_MEMORY
        self.records_read += batch.count
        self.records_kept += count[0]
        return -1

    cdef unsigned char *write_survivors(
        self, const Batch *batch, unsigned char *to, int64_t base, int64_t *max_timestamp
    ) noexcept nogil:
        """Copy the records that stay, with deltas to another base timestamp."""
        cdef Span *span
        cdef int32_t index
        cdef int64_t delta
        cdef Py_ssize_t rest
        max_timestamp[0] = batch.max_timestamp
        cdef bint is_first = True
        for index in range(batch.count):
            span = &self.spans.at[index]
            if not span.stays:
                continue
            if not batch.attributes & STAMPED_BIT:
                if is_first or span.timestamp > max_timestamp[0]:
                    max_timestamp[0] = span.timestamp
            is_first = False
            delta = <int64_t>(<uint64_t>span.timestamp - <uint64_t>base)
            rest = span.end - span.rest
            to = write_folded(to, 1 + folded_size(delta) + rest)
            to[0] = 0
            to = write_folded(to + 1, delta)
            memcpy(to, span.rest, rest)
            to += rest
        return to

    cdef int64_t new_base(self, const Batch *batch, bint needs_horizon) noexcept nogil:
        """The base timestamp of what stays: a delete horizon, or the first record's timestamp."""
        cdef int32_t index
        if needs_horizon:
            return self.horizon_ms
        if not batch.attributes & HORIZON_BIT:
            for index in range(batch.count):
                if self.spans.at[index].stays:
                    return self.spans.at[index].timestamp
        return batch.base_timestamp

    cdef bint ends_producer(self, int64_t producer_id, int64_t last_offset) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self.producer_count, middle
        if producer_id < 0:
            return False
        while low < high:
            middle = (low + high) // 2
            if self.producers[2 * middle] < producer_id:
                low = middle + 1
            else:
                high = middle
        return (
            low < self.producer_count
            and self.producers[2 * low] == producer_id
            and self.producers[2 * low + 1] == last_offset
        )

    def is_last_of_producer(self, header):
        return bool(self.ends_producer(header.producer_id, header.last_offset))

    # -- Copying -----------------------------------------------------------------------------

    cdef void index_batch(
        self, int64_t last_offset, int64_t max_timestamp, Py_ssize_t size
    ) noexcept nogil:
        """Account for a batch that stands at the end of `out`."""
        cdef int64_t *entry
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.since_entry > self.interval:
            entry = self.numbers + self.numbers_used
            entry[0] = last_offset
            entry[1] = self.written
            entry[2] = self.max_timestamp
            entry[3] = self.max_timestamp_offset
            self.numbers_used += 4
            self.since_entry = 0
        self.since_entry += size
        self.written += size
        self.used += size

    cdef int copy(
        self, const Batch *batch, const unsigned char *at, bint keeps_empty
    ) noexcept nogil:
        """Copy what stays of one plain batch; -1 when all is well."""
        cdef int32_t count = 0
        cdef bint has_tombstone = False
        cdef int wrong = self.judge(batch, at + HEADER, batch.size - HEADER, &count, &has_tombstone)
        cdef bint needs_horizon
        cdef unsigned char *to
        cdef unsigned char *end
        cdef int32_t attributes = batch.attributes
        cdef int64_t base = -1, max_timestamp = batch.max_timestamp
        if wrong >= 0:
            return wrong
        needs_horizon = has_tombstone and not batch.attributes & HORIZON_BIT
        if count == 0 and not (keeps_empty or self.ends_producer(batch.producer_id, batch.last_offset)):
            return -1
        # A new base can make the delta and the length of each record longer by 9 and 4 bytes.
        if not self.make_room(batch.size + <Py_ssize_t>batch.count * 13):
            return NO_MEMORY
        to = self.out + self.used
        if count and count == batch.count and not needs_horizon:
            memcpy(to, at, batch.size)
            self.index_batch(batch.last_offset, batch.max_timestamp, batch.size)
            return -1
        memcpy(to, at, HEADER)
        end = to + HEADER
        if count == 0:
            attributes &= STAMPED_BIT
        else:
            if needs_horizon:
                attributes |= HORIZON_BIT
            base = self.new_base(batch, needs_horizon)
            end = self.write_survivors(batch, end, base, &max_timestamp)
        write_big_32(to + 8, <uint32_t>(end - to - OVERHEAD))
        to[21] = <unsigned char>(attributes >> 8)
        to[22] = <unsigned char>attributes
        write_big_64(to + 27, base)
        write_big_64(to + 35, max_timestamp)
        write_big_32(to + 57, <uint32_t>count)
        write_big_32(to + 17, crc_32c(to + 21, end - to - 21))
        self.index_batch(batch.last_offset, max_timestamp, end - to)
        return -1

    def filter(
        self, const unsigned char[::1] chunk, Py_ssize_t start, Py_ssize_t end, Py_ssize_t last_end
    ):
        cdef const unsigned char *at = &chunk[0] if chunk.shape[0] else NULL
        cdef Batch batch
        cdef int stop = AT_END
        end = min(end, chunk.shape[0])
        with nogil:
            while True:
                stop = read_batch(at + start, end - start, &batch)
                if stop >= 0:
                    break
                if batch.attributes & (CODEC_BITS | TRANSACTION_BIT | MARKER_BIT):
                    stop = AT_SPECIAL
                    break
                if not has_right_checksum(at + start, batch.size):
                    stop = BAD_CHECKSUM
                    break
                stop = self.copy(&batch, at + start, start + batch.size == last_end)
                if stop >= 0:
                    break
                start += batch.size
        return start, stop_of(stop, &batch)

    def survivors(self, header, const unsigned char[::1] payload):
        cdef Batch batch = batch_of(header)
        cdef const unsigned char *at = &payload[0] if payload.shape[0] else NULL
        cdef int32_t count = 0
        cdef bint has_tombstone = False
        cdef int stop
        cdef unsigned char *to
        cdef unsigned char *end
        cdef int64_t base, max_timestamp = 0
        with nogil:
            stop = self.judge(&batch, at, payload.shape[0], &count, &has_tombstone)
        if stop >= 0:
            stop_of(stop, &batch)
        attributes = header.attributes
        needs_horizon = has_tombstone and not attributes & HORIZON_BIT
        if count == batch.count and count and not needs_horizon:
            return None
        if count == 0:
            return header._replace(record_count=0), b""
        if needs_horizon:
            attributes |= HORIZON_BIT
        base = self.new_base(&batch, needs_horizon)
        to = <unsigned char *>malloc(payload.shape[0] + <Py_ssize_t>batch.count * 13)
        if to == NULL:
            raise MemoryError("There is no memory for the records of a batch.")
        try:
            with nogil:
                end = self.write_survivors(&batch, to, base, &max_timestamp)
            kept = PyBytes_FromStringAndSize(<char *>to, end - to)
        finally:
            free(to)
        return (
            header._replace(
                attributes=attributes,
                base_timestamp=base,
                max_timestamp=max_timestamp,
                record_count=count,
            ),
            kept,
        )

    def emit(self, const unsigned char[::1] batch):
        header = parse_header(batch)
        if not self.make_room(batch.shape[0]):
            raise MemoryError("There is no memory for a batch.")
        memcpy(self.out + self.used, &batch[0], batch.shape[0])
        self.index_batch(header.last_offset, header.max_timestamp, batch.shape[0])

    def take(self):
        cdef Py_ssize_t index
        cdef int64_t *entry
        cdef bytes out = PyBytes_FromStringAndSize(NULL, self.used)
        cdef char *to = out
        with nogil:
            memcpy(to, self.out, self.used)
        entries = []
        for index in range(0, self.numbers_used, 4):
            entry = self.numbers + index
            entries.append(IndexEntry(entry[0], entry[1], entry[2], entry[3]))
        self.used = self.numbers_used = 0
        return out, entries

    def count_kept(self, header):
        self.records_read += header.record_count
        self.records_kept += header.record_count

    def count_gone(self, header):
        self.records_read += header.record_count
        if self.notes_gone and header.record_count:
            if not self.add_gone(header.base_offset, header.last_offset):
                raise MemoryError("There is no memory for the dropped offsets.")

    def take_gone(self):
        cdef Py_ssize_t index
        gone = [(self.gone[index], self.gone[index + 1]) for index in range(0, self.gone_used, 2)]
        self.gone_used = 0
        return gone
