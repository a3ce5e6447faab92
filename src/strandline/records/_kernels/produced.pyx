# cython: language_level=3
"""The compiled look at a produced batch and its records.

The twins are in `records/plain_produce.py`, `records/produced_records.py` and, for batches that are
stored, `records/time_lookup.py`.

Nothing is copied, and the look that finds nothing wrong allocates nothing. Every read goes through
a position that was compared with the end of the records, and inside of a record with the end of
that. The interpreter lock is kept: a megabyte of records takes less time than getting the lock back
can cost.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from crc32c import crc32c

from strandline.errors import CorruptRecords
from strandline.records._kernels.fields cimport (
    INT64_MAX,
    read_bytes,
    read_varint,
    read_varlong,
    sum_fits,
    walk_headers,
)

cdef extern from "bytes.h" nogil:
    int64_t read_big_64(const unsigned char* at)
    int32_t read_big_32(const unsigned char* at)
    void prepare_crc()
    uint32_t crc_32c(const unsigned char* at, size_t size)
    size_t crc_short()


cdef int _RECORD_BYTES_MIN = 7
cdef int64_t _NO_TIMESTAMP = -1
cdef enum:
    # A request up to its records: what is constant in front of the correlation id, and its end.
    VERSION_END = 4
    CORRELATION_END = 8
    TAGS = 3
    # A batch.
    OVERHEAD = 12
    MAGIC = 2
    CODECS = 5
    STAMPED_BIT = 0x08
    LENGTH_AT = 8
    LEADER_EPOCH_AT = 12
    MAGIC_AT = 16
    CRC_AT = 17
    ATTRIBUTES_AT = 21
    LAST_OFFSET_DELTA_AT = 23
    BASE_TIMESTAMP_AT = 27
    MAX_TIMESTAMP_AT = 35
    PRODUCER_ID_AT = 43
    PRODUCER_EPOCH_AT = 51
    BASE_SEQUENCE_AT = 53
    RECORD_COUNT_AT = 57
    HEADER = 61

prepare_crc()


cdef struct Terms:
    int64_t base_timestamp
    int64_t earliest
    int64_t latest
    int64_t stamp
    bint is_stamped
    bint wants_keys


cdef struct Found:
    Py_ssize_t at
    int32_t delta
    int64_t timestamp
    bint has_key


def newest_of(
    payload,
    Py_ssize_t start,
    Py_ssize_t end,
    int32_t count,
    int64_t base_timestamp,
    int64_t earliest,
    int64_t latest,
    bint wants_keys,
):
    """See `strandline.records.produced_records.newest_of_in_python`."""
    cdef Py_buffer view
    cdef Terms terms
    cdef int64_t newest
    terms.base_timestamp, terms.earliest, terms.latest = base_timestamp, earliest, latest
    terms.is_stamped, terms.wants_keys = False, wants_keys
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len:
            return None
        if walk_all(<const uint8_t*> view.buf + start, end - start, count, &terms, &newest):
            return newest
        return None
    finally:
        PyBuffer_Release(&view)


def plain_produce(
    frame,
    bytes constant,
    bint is_compact,
    Py_ssize_t bytes_max,
    int64_t now_ms,
    int64_t before_max_ms,
    int64_t after_max_ms,
    bint wants_keys,
    int flags,
):
    """See `strandline.records.plain_produce.plain_produce_in_python`."""
    cdef Py_buffer view
    cdef Terms terms
    cdef const uint8_t* data
    cdef Py_ssize_t start = PyBytes_GET_SIZE(constant) + CORRELATION_END - VERSION_END
    cdef Py_ssize_t end
    PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t*> view.buf
        # Whatever the length says, there are the bytes that hold it, and those of a header.
        if view.len < start + HEADER or not begins_with(data, constant):
            return None
        end = end_of_records(data, &start, view.len, is_compact)
        if end - start <= HEADER or end - start > bytes_max:
            return None
        if not is_plain_header(data + start, end - start, flags):
            return None
        if not has_right_crc(frame, data, start, end):
            return None
        if attributes_of(data + start) == flags:
            set_terms(&terms, data + start, now_ms, before_max_ms, after_max_ms)
            terms.wants_keys = wants_keys
            if not are_in_order(data + start, end - start, &terms):
                return None
        return read_big_32(data + VERSION_END), start, end, header_of(data + start)
    finally:
        PyBuffer_Release(&view)


cdef inline bint begins_with(const uint8_t* data, bytes constant) noexcept:
    """Whether a request has these first bytes, the correlation id left out."""
    cdef const char* expected = PyBytes_AS_STRING(constant)
    cdef Py_ssize_t behind = PyBytes_GET_SIZE(constant) - VERSION_END
    return (
        behind >= 0
        and memcmp(data, expected, VERSION_END) == 0
        and memcmp(data + CORRELATION_END, expected + VERSION_END, behind) == 0
    )


cdef inline Py_ssize_t end_of_records(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t size, bint is_compact
) noexcept nogil:
    """Go behind the length of a request's records; where they end if nothing follows, else 0."""
    cdef uint64_t length = 0
    cdef int shift = 0
    cdef Py_ssize_t end
    if not is_compact:
        end = at[0] + 4 + read_big_32(data + at[0])
        at[0] += 4
        return end if end == size else 0
    while shift < 35:
        length |= <uint64_t> (data[at[0]] & 0x7F) << shift
        at[0] += 1
        if data[at[0] - 1] < 0x80:
            break
        shift += 7
    end = at[0] + <Py_ssize_t> length - 1
    return end if end == size - TAGS and not (data[end] | data[end + 1] | data[end + 2]) else 0


cdef inline int attributes_of(const uint8_t* batch) noexcept nogil:
    return batch[ATTRIBUTES_AT] << 8 | batch[ATTRIBUTES_AT + 1]


cdef inline bint is_plain_header(
    const uint8_t* batch, Py_ssize_t size, int flags
) noexcept nogil:
    cdef int32_t delta = read_big_32(batch + LAST_OFFSET_DELTA_AT)
    return (
        read_big_64(batch) == 0
        and read_big_32(batch + LENGTH_AT) == size - OVERHEAD
        and batch[MAGIC_AT] == MAGIC
        and 0 <= attributes_of(batch) - flags < CODECS
        and delta >= 0
        and <int64_t> read_big_32(batch + RECORD_COUNT_AT) - 1 == delta
    )


cdef inline bint has_right_crc(
    frame, const uint8_t* data, Py_ssize_t start, Py_ssize_t end
) except -1:
    cdef Py_ssize_t first = start + ATTRIBUTES_AT
    cdef uint32_t expected = <uint32_t> read_big_32(data + start + CRC_AT)
    if <size_t> (end - first) <= crc_short():
        return crc_32c(data + first, end - first) == expected
    return crc32c(memoryview(frame)[first:end]) == expected


cdef inline void set_terms(
    Terms* terms,
    const uint8_t* batch,
    int64_t now_ms,
    int64_t before_max_ms,
    int64_t after_max_ms,
) noexcept nogil:
    """What records are held against: limits of time are cut to what 64 bits hold."""
    cdef int64_t most = <int64_t> INT64_MAX
    terms.base_timestamp = read_big_64(batch + BASE_TIMESTAMP_AT)
    terms.earliest = now_ms - before_max_ms if now_ms >= before_max_ms - most - 1 else -most - 1
    terms.latest = now_ms + after_max_ms if now_ms <= most - after_max_ms else most
    terms.is_stamped = False


cdef inline bint are_in_order(
    const uint8_t* batch, Py_ssize_t size, const Terms* terms
) noexcept nogil:
    """Whether the records are what they must be, and the header says the newest of their times."""
    cdef int64_t newest
    return walk_all(
        batch + HEADER, size - HEADER, read_big_32(batch + RECORD_COUNT_AT), terms, &newest
    ) and newest == read_big_64(batch + MAX_TIMESTAMP_AT)


cdef inline tuple header_of(const uint8_t* batch):
    """The fields of a plain header in their order."""
    cdef int32_t producer_epoch = batch[PRODUCER_EPOCH_AT] << 8 | batch[PRODUCER_EPOCH_AT + 1]
    return (
        0,
        read_big_32(batch + LENGTH_AT),
        read_big_32(batch + LEADER_EPOCH_AT),
        MAGIC,
        <uint32_t> read_big_32(batch + CRC_AT),
        attributes_of(batch),
        read_big_32(batch + LAST_OFFSET_DELTA_AT),
        read_big_64(batch + BASE_TIMESTAMP_AT),
        read_big_64(batch + MAX_TIMESTAMP_AT),
        read_big_64(batch + PRODUCER_ID_AT),
        <int16_t> producer_epoch,
        read_big_32(batch + BASE_SEQUENCE_AT),
        read_big_32(batch + RECORD_COUNT_AT),
    )


def look_closely(
    payload,
    int32_t count,
    int64_t base_timestamp,
    stamp,
    int64_t earliest,
    int64_t latest,
    bint wants_keys,
    Py_ssize_t most,
):
    """See `strandline.records.produced_records.look_closely_in_python`."""
    cdef Py_buffer view
    cdef Terms terms
    cdef Found found
    cdef int64_t newest = _NO_TIMESTAMP
    cdef int32_t index
    cdef Py_ssize_t without_key = 0, out_of_range = 0
    refused = []
    terms.base_timestamp, terms.earliest, terms.latest = base_timestamp, earliest, latest
    terms.is_stamped, terms.wants_keys = stamp is not None, wants_keys
    terms.stamp = _NO_TIMESTAMP if stamp is None else stamp
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if not may_hold(view.len, count):
            return 0, newest, refused, 0, 0
        found.at = 0
        for index in range(count):
            if not is_next(<const uint8_t*> view.buf, view.len, index, &terms, &found):
                return index, newest, refused, without_key, out_of_range
            if is_refused(&terms, &found):
                if wants_keys and not found.has_key:
                    without_key += 1
                else:
                    out_of_range += 1
                if len(refused) < most:
                    refused.append((index, found.has_key, found.timestamp))
            if found.timestamp > newest:
                newest = found.timestamp
        malformed = -1 if found.at == view.len else count
        return malformed, newest, refused, without_key, out_of_range
    finally:
        PyBuffer_Release(&view)


def first_at_least(header, payload, int64_t timestamp, offset):
    """See `strandline.records.time_lookup.first_at_least_in_python`."""
    cdef Py_buffer view
    cdef Terms terms
    cdef Found found
    cdef int32_t count = header.record_count, last_delta = header.last_offset_delta, before = -1
    cdef int64_t least_delta = max(0, offset - header.base_offset)
    terms.base_timestamp, terms.stamp = header.base_timestamp, header.max_timestamp
    terms.is_stamped = header.attributes & STAMPED_BIT
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        found.at = 0
        if count < 0 or <int64_t> count * _RECORD_BYTES_MIN > view.len:
            raise malformed(header)
        for _ in range(count):
            if not read_record(<const uint8_t*> view.buf, view.len, &terms, &found):
                raise malformed(header)
            if not before < found.delta <= last_delta:
                raise malformed(header)
            before = found.delta
            if found.timestamp >= timestamp and found.delta >= least_delta:
                return header.base_offset + found.delta, found.timestamp
        if found.at != view.len:
            raise malformed(header)
        return None
    finally:
        PyBuffer_Release(&view)


cdef object malformed(header):
    return CorruptRecords(
        f"The record batch at offset {header.base_offset} does not hold the records that it declares."
    )


cdef inline bint walk_all(
    const uint8_t* data, Py_ssize_t size, int32_t count, const Terms* terms, int64_t* newest
) noexcept nogil:
    """Whether these are so many records in order, nothing else, and break no rule."""
    cdef Found found
    cdef int32_t index
    newest[0] = _NO_TIMESTAMP
    if not may_hold(size, count):
        return False
    found.at = 0
    for index in range(count):
        if not is_next(data, size, index, terms, &found) or is_refused(terms, &found):
            return False
        if found.timestamp > newest[0]:
            newest[0] = found.timestamp
    return found.at == size


cdef inline bint may_hold(Py_ssize_t size, int32_t count) noexcept nogil:
    """Whether there is room for so many records."""
    return count > 0 and <int64_t> count * _RECORD_BYTES_MIN <= size


cdef inline bint is_refused(const Terms* terms, const Found* found) noexcept nogil:
    """Whether a record breaks a rule of its topic."""
    if terms.wants_keys and not found.has_key:
        return True
    if terms.earliest <= found.timestamp <= terms.latest:
        return False
    return terms.is_stamped or found.timestamp != _NO_TIMESTAMP


cdef inline bint is_next(
    const uint8_t* data, Py_ssize_t end, int32_t index, const Terms* terms, Found* found
) noexcept nogil:
    """Read the record at `found.at`, which must be number `index`, and go behind it."""
    return read_record(data, end, terms, found) and found.delta == index


cdef inline bint read_record(
    const uint8_t* data, Py_ssize_t end, const Terms* terms, Found* found
) noexcept nogil:
    """Read the record at `found.at`, and go behind it."""
    cdef Py_ssize_t at = found.at, record_end
    cdef int32_t length, size
    cdef int64_t timestamp_delta
    cdef const uint8_t* field
    if not read_varint(data, &at, end, &length):
        return False
    if length < _RECORD_BYTES_MIN - 1 or length > end - at:
        return False
    record_end = at + length
    at += 1  # attributes: none are defined
    if not read_varlong(data, &at, record_end, &timestamp_delta):
        return False
    if not sum_fits(terms.base_timestamp, timestamp_delta, &found.timestamp):
        return False
    if terms.is_stamped:
        found.timestamp = terms.stamp
    if not read_varint(data, &at, record_end, &found.delta):
        return False
    if not read_bytes(data, &at, record_end, &field, &size):
        return False
    found.has_key = size >= 0
    if not read_bytes(data, &at, record_end, &field, &size):
        return False
    if not walk_headers(data, at, record_end):
        return False
    found.at = record_end
    return True
