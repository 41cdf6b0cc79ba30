/* Decode cases whose steps are recorded once and repeated with other contents in the same buffers:
 * test_gpu_capture.c has graphs of the caller's, test_replay.c those of a plan. */
#ifndef TESTS_CAPTURE_CASE_H
#define TESTS_CAPTURE_CASE_H

#include "case.h"

/* By the kernels that they are for. */
enum {
    CAPTURE_SPLITS,           /* six: one split or several, by FMA or by matrix cores */
    CAPTURE_DIRECT = 6,       /* 128 dimensions in bf16 */
    CAPTURE_DIRECT_PAGED,     /* 64 in f16, in pages, more rows than a group has */
    CAPTURE_DIRECT_FMA,       /* 80 in f32 */
    CAPTURE_DIRECT_FMA_PAGED, /* 192 and 128 in bf16 with a query of f32, in pages */
    CAPTURE_LATENT,           /* 576 and 512 dimensions, V a view of K */
    CAPTURE_NARROW,           /* 128 in e4m3, with scales of each token and head */
    CAPTURE_SELECTED,         /* a list for each row and KV head */
    CAPTURE_PREFIXES,         /* two groups, which sequences form them changes too */
    CAPTURE_NARROW_SELECTED,  /* e5m2 with scales of tokens, lists, prefixes and pages at once */
    CAPTURE_CASES
};

decode_case capture_case(int which);

/* Other numbers, lengths, scales, lists and prefixes, in buffers of the same sizes. */
decode_case capture_case_change(const decode_case *c, int round);

/* Put the contents of a shard where another of the same sizes was, on the host. */
void capture_case_replace(case_shard *from, case_shard *in);

#endif
