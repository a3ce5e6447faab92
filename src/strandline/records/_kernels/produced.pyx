# cython: language_level=3
"""The compiled look at a produced batch's records; `records/produced_records.py` has the twins.

Nothing is copied, and the look that finds nothing wrong allocates nothing. Every read goes through
a position that was compared with the end of the records, and inside of a record with the end of
that. The interpreter lock is kept: a megabyte of records takes less time than getting the lock back
can cost.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from strandline.records._kernels.fields cimport (
    read_bytes,
    read_varint,
    read_varlong,
    sum_fits,
)

cdef int _RECORD_BYTES_MIN = 7
cdef int64_t _NO_TIMESTAMP = -1


cdef struct Terms:
    int64_t base_timestamp
    int64_t earliest
    int64_t latest
    int64_t stamp
    bint is_stamped
    bint wants_keys


cdef struct Found:
    Py_ssize_t at
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
    cdef Found found
    cdef const uint8_t* data
    cdef Py_ssize_t size = end - start
    cdef int64_t newest = _NO_TIMESTAMP
    cdef int32_t index
    terms.base_timestamp, terms.earliest, terms.latest = base_timestamp, earliest, latest
    terms.is_stamped, terms.wants_keys = False, wants_keys
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= start <= end <= view.len or not may_hold(size, count):
            return None
        data = <const uint8_t*> view.buf + start
        found.at = 0
        for index in range(count):
            if not read_record(data, size, index, &terms, &found) or is_refused(&terms, &found):
                return None
            if found.timestamp > newest:
                newest = found.timestamp
        return newest if found.at == size else None
    finally:
        PyBuffer_Release(&view)


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
            if not read_record(<const uint8_t*> view.buf, view.len, index, &terms, &found):
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


cdef inline bint read_record(
    const uint8_t* data, Py_ssize_t end, int32_t index, const Terms* terms, Found* found
) noexcept nogil:
    """Read the record at `found.at`, which must be number `index`, and go behind it."""
    cdef Py_ssize_t at = found.at, record_end
    cdef int32_t length, delta, size
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
    if not read_varint(data, &at, record_end, &delta) or delta != index:
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


cdef inline bint walk_headers(const uint8_t* data, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    """Whether what stands behind a record's value are its headers and nothing else."""
    cdef int32_t count, size
    cdef const uint8_t* field
    if not read_varint(data, &at, end, &count):
        return False
    if count < 0 or <int64_t> count * 2 > end - at:
        return False
    for _ in range(count):
        if not read_bytes(data, &at, end, &field, &size) or size < 0:
            return False
        if not read_bytes(data, &at, end, &field, &size):
            return False
    return at == end
