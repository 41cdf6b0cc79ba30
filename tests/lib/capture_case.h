/* Decode cases whose steps are recorded once and repeated with other contents in the same buffers:
 * test_gpu_capture.c has graphs of the caller's, test_replay.c those of a plan. */
#ifndef TESTS_CAPTURE_CASE_H
#define TESTS_CAPTURE_CASE_H

#include "case.h"

enum { CAPTURE_CASES = 6 };

/* Each takes another way through the kernels: one split or several, by FMA or by matrix cores. */
decode_case capture_case(int which);

/* Other numbers and other lengths, in buffers of the same sizes. */
decode_case capture_case_change(const decode_case *c, int round);

/* Put the contents of a shard where another of the same sizes was, on the host. */
void capture_case_replace(case_shard *from, case_shard *in);

#endif
