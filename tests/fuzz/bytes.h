/* The fuzzer's bytes as choices: numbers of a range, now and then one at the edge of what fits, and
 * memory of exactly so many elements, so that the sanitizer sees the first one beyond. When the
 * bytes end, every choice is 0. */
#ifndef TESTS_FUZZ_BYTES_H
#define TESTS_FUZZ_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes {
    const uint8_t *data;
    size_t left;
} bytes;

static inline uint8_t take(bytes *b)
{
    if (b->left == 0)
        return 0;
    --b->left;
    return *b->data++;
}

/* From `low` to `high`; they may be 256 apart. */
static inline int take_from(bytes *b, int low, int high)
{
    return low + take(b) % (high - low + 1);
}

/* One in `n`. */
static inline int take_chance(bytes *b, int n)
{
    return take(b) % n == n - 1;
}

/* As take_from(), but one in 24 is a number that somebody may have computed wrongly. */
static inline int32_t take_int(bytes *b, int low, int high)
{
    static const int32_t edges[] = {-1, 0, INT32_MIN, INT32_MAX, INT32_MAX - 7, 1 << 30, 65536, 3};
    return take_chance(b, 24) ? edges[take(b) % 8] : take_from(b, low, high);
}

/* One to three times a number, which may be too large for that. */
static inline int32_t take_times(bytes *b, int32_t number)
{
    int32_t times = take_from(b, 1, 3);
    return number < 1000 ? times * (number > 0 ? number : 1) : number;
}

static inline float take_float(bytes *b)
{
    static const float values[] = {0, 0, 0, 0.5f, 1, -1, 1e38f, 1e-40f};
    static const uint32_t bits[] = {0x7fc00000, 0x7f800000, 0xff800000, 0x80000000};
    float value = values[take(b) % 8];
    if (take_chance(b, 16))
        memcpy(&value, &bits[take(b) % 4], sizeof value);
    return value;
}

/* What the configs of all plans have: head counts and dims, mostly ones that are right together;
 * and how scores are made. For a ta_plan_config and a ta_attention_config `c`. */
#define TAKE_HEADS(b, c)                                                                           \
    do {                                                                                           \
        (c)->kv_heads = take_int(b, 1, 3);                                                         \
        (c)->query_heads = take_chance(b, 24) ? take_int(b, 1, 9) : take_times(b, (c)->kv_heads);  \
        (c)->k_dim = take_chance(b, 24) ? take_int(b, 0, 60) : 8 * take_from(b, 1, 4);             \
        (c)->v_dim = take_chance(b, 24) ? take_int(b, 0, 60) : 8 * take_from(b, 0, 4);             \
    } while (0)
#define TAKE_MAP_AND_SCORES(b, c, kinds, ranks)                                                    \
    do {                                                                                           \
        (c)->map.kind = (ta_shard_kind)take_int(b, 0, (kinds)-1);                                  \
        (c)->map.ranks = take_chance(b, 8) ? (ranks) : take_int(b, 0, 0);                          \
        (c)->map.block = take_int(b, 0, 20);                                                       \
        (c)->mask = (ta_mask)take_int(b, 0, 1);                                                    \
        (c)->window = take_chance(b, 3) ? take_int(b, 1, 9) : 0;                                   \
        (c)->scale = take_float(b);                                                                \
        (c)->softcap = take_float(b);                                                              \
    } while (0)

#endif
