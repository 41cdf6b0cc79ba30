/* The fuzzer's bytes on one to five ranks that are threads: the first byte says how many. All read
 * the same bytes, but for one that may go its own way. */
#ifndef TESTS_FUZZ_RANKS_H
#define TESTS_FUZZ_RANKS_H

#include <treeattn/treeattn.h>

#include "bytes.h"

#define MOST_RANKS 5

/* Run `rank` on each of them, with a copy of the bytes as its context; every rank must return. */
static inline int run_ranks(const uint8_t *data, size_t size, ta_rank_fn rank)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = 5000;
    if (size < 16)
        return 0;
    bytes b = {data + 1, size - 1};
    if (ta_group_run_threads(1 + data[0] % MOST_RANKS, &config, rank, &b) != TA_OK)
        abort();
    return 0;
}

/* A rank's device. The odd one among the ranks has lost some bytes afterwards. */
static inline ta_device *open_device(bytes *b, const ta_group *group)
{
    int odd = take_from(b, 0, 40);
    ta_device *device = NULL;
    ta_device_config config = TA_DEVICE_CONFIG_INIT;
    config.threads = 1 + take(b) % 2;
    if (ta_device_open("host", &config, &device) != TA_OK)
        abort();
    for (int skip = take_from(b, 1, 4); ta_group_rank(group) == odd && skip > 0; --skip)
        (void)take(b);
    return device;
}

/* Bytes of an element; 0 of what is no type: nothing of it may be read. */
static inline size_t element_bytes(ta_dtype dtype)
{
    switch (dtype) {
    case TA_F32:
        return 4;
    case TA_F16:
    case TA_BF16:
        return 2;
    case TA_E4M3:
    case TA_E5M2:
    case TA_E4M3_FNUZ:
    case TA_E5M2_FNUZ:
        return 1;
    default:
        return 0;
    }
}

#endif
