/* Key hashes of the compaction kernel: what is clearer in C than in Cython.
 *
 * It knows bytes and nothing of batches.
 */
#ifndef STRANDLINE_COMPACT_H
#define STRANDLINE_COMPACT_H

#include "bytes.h"

/* -- SipHash-2-4 with 128 bits (Aumasson and Bernstein) -------------------------------------- */

typedef struct {
    uint64_t high, low;
} KeyHash;

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define SIP_ROUND                                                   \
    do {                                                            \
        v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32); \
        v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2;                    \
        v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0;                    \
        v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32); \
    } while (0)

static inline KeyHash hash_key(
    uint64_t k0, uint64_t k1, const unsigned char *key, size_t size) {
    uint64_t v0 = k0 ^ 0x736f6d6570736575ull, v1 = k1 ^ 0x646f72616e646f6dull ^ 0xee;
    uint64_t v2 = k0 ^ 0x6c7967656e657261ull, v3 = k1 ^ 0x7465646279746573ull;
    uint64_t last = (uint64_t)size << 56;
    size_t rest = size & 7;
    const unsigned char *end = key + (size - rest);
    for (; key != end; key += 8) {
        uint64_t word = read_little_64(key);
        v3 ^= word;
        SIP_ROUND;
        SIP_ROUND;
        v0 ^= word;
    }
    for (size_t i = 0; i < rest; i++) last |= (uint64_t)key[i] << (8 * i);
    v3 ^= last;
    SIP_ROUND;
    SIP_ROUND;
    v0 ^= last;
    KeyHash hash;
    v2 ^= 0xee;
    for (int i = 0; i < 4; i++) SIP_ROUND;
    hash.high = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    for (int i = 0; i < 4; i++) SIP_ROUND;
    hash.low = v0 ^ v1 ^ v2 ^ v3;
    return hash;
}

/* `high` spread evenly over `slots`, without a division. */
static inline size_t slot_of(KeyHash hash, size_t slots) {
    return (size_t)((unsigned __int128)hash.high * slots >> 64);
}

static inline void fetch_early(const void *at) {
#if defined(__GNUC__)
    __builtin_prefetch(at);
#endif
}

#endif
