# cython: language_level=3
"""The compiled builder of columns; `records/columns.py` is its twin and says what it does.

Every read of input goes through a position that was compared with the end of what it belongs to:
the buffer for headers, the payload for records, the record for its fields. Memory for the rows and
the data of a batch is reserved before its records are read, so that nothing is checked per row:
no field can be longer than the payload that it lies in. A batch that is refused for any reason
leaves everything as it was; the twin's reader is then asked to say why.

The interpreter lock is given up while the records of a batch are read.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy
from cpython.buffer cimport PyBuffer_FillInfo

from strandline.records._kernels.fields cimport (
    INT64_MAX,
    read_bytes,
    read_varint,
    read_varlong,
    sum_fits,
)

from crc32c import crc32c

from strandline.errors import InvariantViolated
from strandline.records.columns import (
    ROW_BYTES,
    Columns,
    HeaderColumns,
    VariableColumn,
    checked_payload,
    explain,
    is_in_order,
    out_of_order,
)
from strandline.records.compression import DECOMPRESSED_BYTES_MAX

cdef int64_t MILLISECONDS_MAX = INT64_MAX // 1000
cdef int64_t OFFSET_MAX = INT64_MAX

cdef Py_ssize_t _HEADER_BYTES = 61
cdef Py_ssize_t _LOG_OVERHEAD = 12
cdef Py_ssize_t _CRC_AT = 17
cdef Py_ssize_t _ATTRIBUTES_AT = 21
cdef int _RECORD_BYTES_MIN = 7
cdef Py_ssize_t _PAYLOAD_BYTES_MAX = DECOMPRESSED_BYTES_MAX
cdef Py_ssize_t _ROW_BYTES = ROW_BYTES

cdef int _CODEC = 0x07
cdef int _LOG_APPEND_TIME = 0x08
cdef int _TRANSACTIONAL = 0x10
cdef int _CONTROL = 0x20

cdef enum Outcome:
    SOUND = 0
    MALFORMED = -1
    NO_MEMORY = -2


cdef class Block:
    """Memory that grows while it is written, and is a read-only buffer once it is handed over."""

    cdef uint8_t* start
    cdef Py_ssize_t used
    cdef Py_ssize_t capacity

    def __dealloc__(self):
        free(self.start)

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.start, self.used, 1, flags)

    cdef int reserve(self, Py_ssize_t size) noexcept nogil:
        """Room for `size` bytes in all; 0 if there is no memory."""
        cdef Py_ssize_t capacity
        cdef void* moved
        if size <= self.capacity:
            return 1
        capacity = max(size, self.capacity * 2, 4096)
        moved = realloc(self.start, capacity)
        if moved == NULL:
            return 0
        self.start = <uint8_t*> moved
        self.capacity = capacity
        return 1

    cdef object handed_over(self, Py_ssize_t used):
        """The first `used` bytes as a buffer; the rest of the memory is given back.

        Arrow takes no null pointer, not even of nothing.
        """
        cdef void* moved
        if not self.reserve(1):
            raise MemoryError
        self.used = used
        if used < self.capacity:
            moved = realloc(self.start, max(used, 1))
            if moved != NULL:
                self.start = <uint8_t*> moved
                self.capacity = max(used, 1)
        return self


cdef class Values:
    """Byte strings: the data, where each ends, and which are there."""

    cdef Block data
    cdef Block offsets
    cdef Block validity
    cdef Py_ssize_t count
    cdef Py_ssize_t nulls
    cdef Py_ssize_t size

    def __cinit__(self):
        self.data = Block()
        self.offsets = Block()
        self.validity = Block()

    cdef int reserve(self, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
        """Room for so many more values and bytes."""
        if not self.data.reserve(self.size + size):
            return 0
        if not self.offsets.reserve((self.count + count + 1) * sizeof(int32_t)):
            return 0
        if self.count == 0:
            (<int32_t*> self.offsets.start)[0] = 0
        return self.validity.reserve((self.count + count + 7) // 8)

    cdef inline void add(self, const uint8_t* value, Py_ssize_t size) noexcept nogil:
        """Add a value; a negative size is null. Room must be there."""
        set_bit(self.validity.start, self.count, size >= 0)
        if size > 0:
            memcpy(self.data.start + self.size, value, size)
            self.size += size
        elif size < 0:
            self.nulls += 1
        self.count += 1
        (<int32_t*> self.offsets.start)[self.count] = <int32_t> self.size

    cdef void cut(self, Py_ssize_t count, Py_ssize_t nulls, Py_ssize_t size) noexcept nogil:
        """Back to what was there before."""
        self.count, self.nulls, self.size = count, nulls, size

    cdef object column(self):
        if not self.reserve(0, 0):
            raise MemoryError
        validity = None
        if self.nulls:
            validity = self.validity.handed_over((self.count + 7) // 8)
        return VariableColumn(
            self.offsets.handed_over((self.count + 1) * sizeof(int32_t)),
            self.data.handed_over(self.size),
            validity,
        )


cdef class ColumnBuilder:
    """See `strandline.records.columns.ColumnBuilder`."""

    cdef object limits
    cdef int64_t start
    cdef int64_t end
    cdef int64_t leader_epoch_max
    cdef Py_ssize_t bytes_max
    cdef bint with_headers
    cdef bint checks_crc

    cdef readonly Py_ssize_t rows
    cdef int64_t next
    cdef Values key
    cdef Values value
    cdef Block offset
    cdef Block timestamp
    cdef Block timestamp_type
    cdef Values header_key
    cdef Values header_value
    cdef Block header_offsets
    cdef Block header_validity
    cdef Py_ssize_t rows_without_headers

    def __init__(self, limits):
        self.limits = limits
        self.start, self.end = limits.start, limits.end
        self.bytes_max = limits.bytes_max
        self.leader_epoch_max = limits.leader_epoch_max
        self.with_headers, self.checks_crc = limits.with_headers, limits.checks_crc
        self.next = -1
        self.start_empty()

    @property
    def next_offset(self):
        return self.next

    @property
    def size_bytes(self):
        return self.size()

    def take_plain(self, buffer, Py_ssize_t position, *, bint stops_at_transactions):
        cdef const uint8_t[::1] view = memoryview(buffer).cast("B")
        cdef Py_ssize_t length = view.shape[0]
        cdef const uint8_t* batch
        cdef Py_ssize_t size
        cdef int64_t base_offset, last_offset
        cdef int attributes
        if position < 0:
            raise InvariantViolated(f"There are no batches at position {position}.")
        whole = memoryview(buffer)
        while self.size() < self.bytes_max and length - position >= _HEADER_BYTES:
            batch = &view[position]
            size = batch_size(batch, length - position)
            if size == 0:
                break
            base_offset = int64_at(batch)
            if base_offset >= self.end or base_offset < max(0, self.next):
                break
            last_offset = last_offset_of(batch)
            if last_offset < 0:
                break
            attributes = (batch[_ATTRIBUTES_AT] << 8) | batch[_ATTRIBUTES_AT + 1]
            if stops_at_transactions and attributes & (_CONTROL | _TRANSACTIONAL):
                break
            if last_offset >= self.start:
                if int32_at(batch + 12) > self.leader_epoch_max:
                    break
                if not attributes & _CONTROL:
                    if attributes & _CODEC:
                        break
                    if self.checks_crc and <uint32_t> int32_at(batch + _CRC_AT) != <uint32_t> crc32c(
                        whole[position + _ATTRIBUTES_AT : position + size]
                    ):
                        break
                    if self.take(batch, batch + _HEADER_BYTES, size - _HEADER_BYTES) != SOUND:
                        break
            self.next = last_offset + 1
            position += size
        return position

    def take_batch(self, header, buffer, Py_ssize_t position):
        payload = checked_payload(header, buffer, position, self.limits, self.next)
        cdef const uint8_t[::1] head = memoryview(buffer).cast("B")[position : position + _HEADER_BYTES]
        cdef const uint8_t[::1] view = payload
        cdef const uint8_t* records = NULL
        if position < 0 or head.shape[0] != _HEADER_BYTES:
            raise InvariantViolated(f"There is no batch at position {position}.")
        if view.shape[0]:
            records = &view[0]
        if self.take(&head[0], records, view.shape[0]) != SOUND:
            for _ in explain(header, payload):
                pass
        self.next = header.next_offset

    def pass_batch(self, header):
        if not is_in_order(header, self.next):
            raise out_of_order(header, self.next)
        self.next = header.next_offset

    def columns(self):
        cdef Py_ssize_t rows = self.rows
        headers = None
        if self.with_headers:
            if not self.header_offsets.reserve((rows + 1) * sizeof(int32_t)):
                raise MemoryError
            (<int32_t*> self.header_offsets.start)[0] = 0
            validity = None
            if self.rows_without_headers:
                validity = self.header_validity.handed_over((rows + 7) // 8)
            headers = HeaderColumns(
                self.header_key.count,
                self.header_offsets.handed_over((rows + 1) * sizeof(int32_t)),
                validity,
                self.header_key.column(),
                self.header_value.column(),
            )
        done = Columns(
            rows,
            self.key.column(),
            self.value.column(),
            self.offset.handed_over(rows * sizeof(int64_t)),
            self.timestamp.handed_over(rows * sizeof(int64_t)),
            self.timestamp_type.handed_over(rows * sizeof(int32_t)),
            headers,
        )
        self.start_empty()
        return done

    cdef void start_empty(self):
        self.rows = self.rows_without_headers = 0
        self.key, self.value = Values(), Values()
        self.offset, self.timestamp, self.timestamp_type = Block(), Block(), Block()
        self.header_key, self.header_value = Values(), Values()
        self.header_offsets, self.header_validity = Block(), Block()

    cdef inline Py_ssize_t size(self) noexcept nogil:
        return (
            self.key.size
            + self.value.size
            + self.header_key.size
            + self.header_value.size
            + self.rows * _ROW_BYTES
        )

    cdef int take(self, const uint8_t* batch, const uint8_t* payload, Py_ssize_t size) except? -9:
        """Read a batch's records, all or none."""
        cdef Py_ssize_t rows = self.rows, without_headers = self.rows_without_headers
        cdef Py_ssize_t keys = self.key.count, key_nulls = self.key.nulls, key_size = self.key.size
        cdef Py_ssize_t value_nulls = self.value.nulls, value_size = self.value.size
        cdef Py_ssize_t names = self.header_key.count, names_size = self.header_key.size
        cdef Py_ssize_t nulls = self.header_value.nulls, values_size = self.header_value.size
        cdef int outcome
        with nogil:
            outcome = self.read(batch, payload, size)
        if outcome != SOUND:
            self.rows, self.rows_without_headers = rows, without_headers
            self.key.cut(keys, key_nulls, key_size)
            self.value.cut(keys, value_nulls, value_size)
            self.header_key.cut(names, 0, names_size)
            self.header_value.cut(names, nulls, values_size)
        if outcome == NO_MEMORY:
            raise MemoryError(f"There is no memory for a record batch of {size} bytes.")
        return outcome

    cdef int read(self, const uint8_t* batch, const uint8_t* payload, Py_ssize_t size) noexcept nogil:
        cdef int64_t base_offset = int64_at(batch)
        cdef int32_t last_delta_max = int32_at(batch + 23)
        cdef int64_t base_timestamp = int64_at(batch + 27)
        cdef int64_t max_timestamp = int64_at(batch + 35)
        cdef int32_t count = int32_at(batch + 57)
        cdef int32_t timestamp_type = 1 if batch[_ATTRIBUTES_AT + 1] & _LOG_APPEND_TIME else 0
        cdef Py_ssize_t at = 0, end = size, record_end
        cdef int32_t length, delta, last_delta = -1, key_size, value_size
        cdef int64_t timestamp_delta, timestamp, offset
        cdef const uint8_t* key
        cdef const uint8_t* value
        cdef Py_ssize_t row
        cdef int outcome
        if size > _PAYLOAD_BYTES_MAX or count < 0 or <int64_t> count * _RECORD_BYTES_MIN > size:
            return MALFORMED
        if not self.reserve(count, size):
            return NO_MEMORY
        for _ in range(count):
            if not read_varint(payload, &at, end, &length):
                return MALFORMED
            if length < _RECORD_BYTES_MIN - 1 or length > end - at:
                return MALFORMED
            record_end = at + length
            at += 1
            if not read_varlong(payload, &at, record_end, &timestamp_delta):
                return MALFORMED
            if not sum_fits(base_timestamp, timestamp_delta, &timestamp):
                return MALFORMED
            if not read_varint(payload, &at, record_end, &delta):
                return MALFORMED
            if delta <= last_delta or delta > last_delta_max:
                return MALFORMED
            last_delta = delta
            if not read_bytes(payload, &at, record_end, &key, &key_size):
                return MALFORMED
            if not read_bytes(payload, &at, record_end, &value, &value_size):
                return MALFORMED
            offset = base_offset + delta
            row = self.rows
            outcome = self.read_headers(
                payload, at, record_end, self.with_headers and self.start <= offset < self.end
            )
            if outcome != SOUND:
                return outcome
            at = record_end
            if offset < self.start or offset >= self.end:
                continue
            self.key.add(key, key_size)
            self.value.add(value, value_size)
            (<int64_t*> self.offset.start)[row] = offset
            if timestamp_type:
                timestamp = max_timestamp
            timestamp = max(-MILLISECONDS_MAX, min(MILLISECONDS_MAX, timestamp))
            (<int64_t*> self.timestamp.start)[row] = timestamp * 1000
            (<int32_t*> self.timestamp_type.start)[row] = timestamp_type
            self.rows = row + 1
        return SOUND if at == end else MALFORMED

    cdef inline int read_headers(
        self, const uint8_t* payload, Py_ssize_t at, Py_ssize_t end, bint wanted
    ) noexcept nogil:
        """What stands behind a record's value; `wanted` says that it becomes part of row `rows`."""
        cdef int32_t count, key_size, value_size
        cdef const uint8_t* key
        cdef const uint8_t* value
        if not read_varint(payload, &at, end, &count):
            return MALFORMED
        # A header takes two bytes at least, so a count cannot ask for more than its input explains.
        if count < 0 or <int64_t> count * 2 > end - at:
            return MALFORMED
        if wanted:
            set_bit(self.header_validity.start, self.rows, count > 0)
            self.rows_without_headers += count == 0
            if count and not (
                self.header_key.reserve(count, end - at) and self.header_value.reserve(count, end - at)
            ):
                return NO_MEMORY
        for _ in range(count):
            if not read_bytes(payload, &at, end, &key, &key_size) or key_size < 0:
                return MALFORMED
            if not read_bytes(payload, &at, end, &value, &value_size):
                return MALFORMED
            if wanted:
                self.header_key.add(key, key_size)
                self.header_value.add(value, value_size)
        if wanted:
            (<int32_t*> self.header_offsets.start)[self.rows + 1] = <int32_t> self.header_key.count
        return SOUND if at == end else MALFORMED

    cdef int reserve(self, Py_ssize_t count, Py_ssize_t size) noexcept nogil:
        cdef Py_ssize_t rows = self.rows + count
        if not (self.key.reserve(count, size) and self.value.reserve(count, size)):
            return 0
        if not (
            self.offset.reserve(rows * sizeof(int64_t))
            and self.timestamp.reserve(rows * sizeof(int64_t))
            and self.timestamp_type.reserve(rows * sizeof(int32_t))
        ):
            return 0
        if not self.with_headers:
            return 1
        return self.header_offsets.reserve((rows + 1) * sizeof(int32_t)) and self.header_validity.reserve(
            (rows + 7) // 8
        )


def whole_batches(buffer, Py_ssize_t position):
    """See `strandline.records.columns.whole_batches`."""
    cdef const uint8_t[::1] view = memoryview(buffer).cast("B")
    cdef Py_ssize_t length = view.shape[0], size
    cdef int64_t next_offset = -1
    if position < 0:
        raise InvariantViolated(f"There are no batches at position {position}.")
    while length - position >= _HEADER_BYTES:
        size = batch_size(&view[position], length - position)
        if size == 0 or last_offset_of(&view[position]) < 0:
            break
        next_offset = last_offset_of(&view[position]) + 1
        position += size
    return position, next_offset


cdef inline Py_ssize_t batch_size(const uint8_t* batch, Py_ssize_t there) noexcept nogil:
    """The size of the batch that begins here; 0 if it is not whole or none. 61 bytes are there."""
    cdef int64_t size = <int64_t> int32_at(batch + 8) + _LOG_OVERHEAD
    if batch[16] != 2 or size < _HEADER_BYTES or size > there:
        return 0
    return size


cdef inline int64_t last_offset_of(const uint8_t* batch) noexcept nogil:
    """The batch's last offset; -1 if its offsets make no sense or nothing can follow them."""
    cdef int64_t base_offset = int64_at(batch)
    cdef int32_t delta = int32_at(batch + 23)
    if delta < 0 or base_offset < 0 or base_offset >= OFFSET_MAX - delta:
        return -1
    return base_offset + delta


cdef inline void set_bit(uint8_t* bits, Py_ssize_t at, bint value) noexcept nogil:
    """Write one bit; those behind it are not looked at before they are written themselves."""
    cdef uint8_t bit = <uint8_t> (1 << (at & 7))
    if at & 7 == 0:
        bits[at >> 3] = value
    elif value:
        bits[at >> 3] |= bit
    else:
        bits[at >> 3] &= ~bit


cdef inline int32_t int32_at(const uint8_t* at) noexcept nogil:
    return <int32_t> (
        (<uint32_t> at[0] << 24) | (<uint32_t> at[1] << 16) | (<uint32_t> at[2] << 8) | at[3]
    )


cdef inline int64_t int64_at(const uint8_t* at) noexcept nogil:
    return <int64_t> (
        (<uint64_t> <uint32_t> int32_at(at) << 32) | <uint64_t> <uint32_t> int32_at(at + 4)
    )
