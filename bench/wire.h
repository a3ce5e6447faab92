/*
 * Big-endian and varint fields of the Kafka protocol: a writer that trusts its buffer (the caller
 * sized it), a reader that trusts nothing. The reader ends the program at the first wrong field:
 * a load generator that carries on after a broken answer measures something else.
 */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H
#include <endian.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noreturn, format(printf, 1, 2)))
static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

struct writer { uint8_t *start, *at; };

static void put(struct writer *w, const void *bytes, size_t count) { memcpy(w->at, bytes, count); w->at += count; }
static void put_i8(struct writer *w, int8_t v) { *w->at++ = (uint8_t)v; }
static void put_i16(struct writer *w, int16_t v) { uint16_t b = htobe16((uint16_t)v); put(w, &b, 2); }
static void put_i32(struct writer *w, int32_t v) { uint32_t b = htobe32((uint32_t)v); put(w, &b, 4); }
static void put_i64(struct writer *w, int64_t v) { uint64_t b = htobe64((uint64_t)v); put(w, &b, 8); }
static void put_uvarint(struct writer *w, uint64_t v) {
    for (; v >= 0x80; v >>= 7) *w->at++ = (uint8_t)(v | 0x80);
    *w->at++ = (uint8_t)v;
}
static void put_varint(struct writer *w, int64_t v) { put_uvarint(w, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63)); }
static void put_string(struct writer *w, const char *s) { put_i16(w, (int16_t)strlen(s)); put(w, s, strlen(s)); }
static size_t uvarint_bytes(uint64_t v) { size_t n = 1; while (v >>= 7) n++; return n; }
static size_t varint_bytes(int64_t v) { return uvarint_bytes(((uint64_t)v << 1) ^ (uint64_t)(v >> 63)); }

static uint32_t crc32c(const uint8_t *data, size_t count) {
    uint32_t table[256], crc = ~0u; /* once per partition at start: no need for the instruction */
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = (table[i] >> 1) ^ (table[i] & 1 ? 0x82F63B78u : 0);
    }
    while (count--) crc = (crc >> 8) ^ table[(crc ^ *data++) & 0xff];
    return ~crc;
}

struct reader { const uint8_t *at, *end; };

static const uint8_t *take(struct reader *r, size_t count) {
    if ((size_t)(r->end - r->at) < count) fail("the answer ends before its last field");
    const uint8_t *bytes = r->at;
    r->at += count;
    return bytes;
}
static int16_t get_i16(struct reader *r) { uint16_t v; memcpy(&v, take(r, 2), 2); return (int16_t)be16toh(v); }
static int32_t get_i32(struct reader *r) { uint32_t v; memcpy(&v, take(r, 4), 4); return (int32_t)be32toh(v); }
static int64_t get_i64(struct reader *r) { uint64_t v; memcpy(&v, take(r, 8), 8); return (int64_t)be64toh(v); }
static uint64_t get_uvarint(struct reader *r) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 63; shift += 7) {
        uint8_t byte = *take(r, 1);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
    fail("a varint of the answer never ends");
    return 0;
}
static void expect(int64_t got, int64_t wanted, const char *what) {
    if (got != wanted) fail("%s is %" PRId64 ", expected %" PRId64, what, got, wanted);
}
#endif
