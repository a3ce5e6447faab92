/* Encodes a record batch of format version 2, uncompressed, with text-like values and no keys. */
#ifndef BENCH_BATCH_H
#define BENCH_BATCH_H
#include <time.h>

#include "wire.h"

enum { BATCH_HEADER_BYTES = 61 };

static size_t record_body_bytes(int64_t value_bytes, int64_t offset_delta) { /* without its length */
    return 1 + 1 + varint_bytes(offset_delta) + 1 + varint_bytes(value_bytes) + (size_t)value_bytes + 1;
}

/* How many records of `value_bytes` fill a batch without going over its size; at least one. */
static int32_t records_that_fit(int64_t batch_bytes, int64_t value_bytes) {
    size_t used = BATCH_HEADER_BYTES;
    for (int32_t count = 0;; count++) {
        size_t body = record_body_bytes(value_bytes, count);
        used += varint_bytes((int64_t)body) + body;
        if (used > (size_t)batch_bytes) return count ? count : 1;
    }
}

/* Record batch v2: base offset 8 | length 4 | leader epoch 4 | magic 1 | crc 4 | attributes 2 |
 * last offset delta 4 | base, max timestamp 8+8 | producer id 8, epoch 2, sequence 4 | count 4 */
static void put_batch(struct writer *w, int32_t count, int64_t value_bytes) {
    uint8_t *batch = w->at;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t timestamp_ms = (int64_t)wall.tv_sec * 1000 + wall.tv_nsec / 1000000;
    w->at += 8 + 4;
    put_i32(w, -1);
    put_i8(w, 2);
    w->at += 4;
    put_i16(w, 0);
    put_i32(w, count - 1);
    put_i64(w, timestamp_ms);
    put_i64(w, timestamp_ms);
    put_i64(w, -1);
    put_i16(w, -1);
    put_i32(w, -1);
    put_i32(w, count);
    uint32_t seed = 12345;
    for (int32_t delta = 0; delta < count; delta++) {
        put_varint(w, (int64_t)record_body_bytes(value_bytes, delta));
        put_i8(w, 0);
        put_varint(w, 0);
        put_varint(w, delta);
        put_varint(w, -1);
        put_varint(w, value_bytes);
        for (int64_t i = 0; i < value_bytes; i++) {
            seed = seed * 1664525u + 1013904223u;
            *w->at++ = (uint8_t)('a' + (seed >> 24) % 26);
        }
        put_varint(w, 0);
    }
    struct writer head = {batch, batch};
    put_i64(&head, 0);
    put_i32(&head, (int32_t)(w->at - batch - 12));
    head.at = batch + 17;
    put_i32(&head, (int32_t)crc32c(batch + 21, (size_t)(w->at - batch) - 21));
}
#endif
