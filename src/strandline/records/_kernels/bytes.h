/* Integers and checksums of the kernels: what is clearer in C than in Cython.
 *
 * It knows bytes and nothing of batches.
 */
#ifndef STRANDLINE_BYTES_H
#define STRANDLINE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* -- Integers -------------------------------------------------------------------------------- */

static inline uint64_t read_little_64(const unsigned char *at) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

static inline int64_t read_big_64(const unsigned char *at) {
    uint64_t value = 0;
    for (int i = 0; i < 8; i++) value = value << 8 | at[i];
    return (int64_t)value;
}

static inline int32_t read_big_32(const unsigned char *at) {
    return (int32_t)((uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]);
}

static inline void write_big_64(unsigned char *at, int64_t number) {
    uint64_t value = (uint64_t)number;
    for (int i = 7; i >= 0; i--, value >>= 8) at[i] = (unsigned char)value;
}

static inline void write_big_32(unsigned char *at, uint32_t value) {
    for (int i = 3; i >= 0; i--, value >>= 8) at[i] = (unsigned char)value;
}

/* A zig-zag number of at most `bits` bits. Returns the position behind it, or NULL if it is none. */
static inline const unsigned char *read_folded(
    const unsigned char *at, const unsigned char *end, int bits, int64_t *number) {
    uint64_t folded = 0;
    for (int shift = 0; shift < bits && at < end; shift += 7) {
        unsigned char byte = *at++;
        if (shift == 63 && byte > 1) return NULL;
        folded |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (bits == 32 && folded >> 32) return NULL;
            *number = (int64_t)(folded >> 1) ^ -(int64_t)(folded & 1);
            return at;
        }
    }
    return NULL;
}

static inline unsigned char *write_folded(unsigned char *at, int64_t number) {
    uint64_t folded = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    while (folded > 0x7F) {
        *at++ = (unsigned char)(folded | 0x80);
        folded >>= 7;
    }
    *at++ = (unsigned char)folded;
    return at;
}

static inline int folded_size(int64_t number) {
    uint64_t folded = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    int size = 1;
    while (folded > 0x7F) {
        size++;
        folded >>= 7;
    }
    return size;
}

/* -- CRC-32C --------------------------------------------------------------------------------- */

static uint32_t crc_tables[8][256];
static int crc_by_instruction = 0;

static void prepare_crc(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t crc = n;
        for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
        crc_tables[0][n] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t before = crc_tables[table - 1][n];
            crc_tables[table][n] = before >> 8 ^ crc_tables[0][before & 0xFF];
        }
#if defined(__x86_64__) && defined(__GNUC__)
    __builtin_cpu_init();
    crc_by_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

static uint32_t crc_by_tables(uint32_t crc, const unsigned char *at, size_t size) {
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word = read_little_64(at) ^ crc;
        crc = crc_tables[7][word & 0xFF] ^ crc_tables[6][word >> 8 & 0xFF] ^
              crc_tables[5][word >> 16 & 0xFF] ^ crc_tables[4][word >> 24 & 0xFF] ^
              crc_tables[3][word >> 32 & 0xFF] ^ crc_tables[2][word >> 40 & 0xFF] ^
              crc_tables[1][word >> 48 & 0xFF] ^ crc_tables[0][word >> 56];
    }
    for (; size; size--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *at++) & 0xFF];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static uint32_t crc_by_processor(
    uint32_t crc, const unsigned char *at, size_t size) {
    uint64_t wide = crc;
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = _mm_crc32_u64(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; size--) crc = _mm_crc32_u8(crc, *at++);
    return crc;
}
#endif

/* Up to which size this is faster than a call of the package, which has a faster way for long ones. */
static inline size_t crc_short(void) { return crc_by_instruction ? 2048 : 256; }

static inline uint32_t crc_32c(const unsigned char *at, size_t size) {
#if defined(__x86_64__) && defined(__GNUC__)
    if (crc_by_instruction) return ~crc_by_processor(~0u, at, size);
#endif
    return ~crc_by_tables(~0u, at, size);
}

#endif
