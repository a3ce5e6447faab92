# cython: language_level=3
"""Reading the fields of a record; shared by the kernels. `records/varint.py` is the twin.

Every reader takes the end of what its field belongs to, and reads nothing beyond it.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    INT64_MAX = 0x7FFFFFFFFFFFFFFF


cdef inline bint sum_fits(int64_t base, int64_t delta, int64_t* total) noexcept nogil:
    """The sum, if it is one of 64 bits; the least of them is taken for too small, as in the twin."""
    total[0] = <int64_t> (<uint64_t> base + <uint64_t> delta)
    if delta >= 0:
        return total[0] >= base and total[0] != -INT64_MAX - 1
    return total[0] < base and total[0] != -INT64_MAX - 1


cdef inline bint read_varint(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, int32_t* value
) noexcept nogil:
    """A signed 32-bit number of at most five bytes; false if there is none before `end`."""
    cdef Py_ssize_t position = at[0]
    cdef uint64_t folded = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 32:
        if position >= end:
            return False
        byte = data[position]
        position += 1
        folded |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            if folded >> 32:
                return False
            at[0] = position
            value[0] = <int32_t> (<uint32_t> (folded >> 1) ^ -<uint32_t> (folded & 1))
            return True
        shift += 7
    return False


cdef inline bint read_varlong(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, int64_t* value
) noexcept nogil:
    """A signed 64-bit number of at most ten bytes; false if there is none before `end`."""
    cdef Py_ssize_t position = at[0]
    cdef uint64_t folded = 0
    cdef int shift = 0
    cdef uint8_t byte
    while shift < 64:
        if position >= end:
            return False
        byte = data[position]
        position += 1
        if shift == 63 and byte > 1 and byte < 0x80:
            return False
        folded |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            at[0] = position
            value[0] = <int64_t> ((folded >> 1) ^ -(folded & 1))
            return True
        shift += 7
    return False


cdef inline bint read_bytes(
    const uint8_t* data, Py_ssize_t* at, Py_ssize_t end, const uint8_t** start, int32_t* size
) noexcept nogil:
    """A byte string with its size in front; -1 and every other negative size is null."""
    if not read_varint(data, at, end, size):
        return False
    if size[0] < 0:
        start[0] = NULL
        return True
    if size[0] > end - at[0]:
        return False
    start[0] = data + at[0]
    at[0] += size[0]
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
