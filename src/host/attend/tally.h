/* Tallies on the host: the loops over one row's sums, see base/tally.h for what they are. attend.c,
 * item.c and host.c call them; implemented in tally.c. Tallies are given as the records whose place
 * they take, aligned to 8 bytes. */
#ifndef TA_HOST_TALLY_H
#define TA_HOST_TALLY_H

#include "base/tally.h"

/* An empty tally. */
void ta_tally_clear(float *tally, int32_t v_dim);

/* Add a tile's partial: its largest score, l, and o. */
void ta_tally_add_partial(float *tally, float m, float l, const float *o, int32_t v_dim);

/* into = both. */
void ta_tally_merge(float *into, const float *from, int32_t v_dim);

/* The output of a row, and its natural log-sum-exp. `sink` is a score in base 2, or -inf. */
float ta_tally_finish(const float *tally, int32_t v_dim, float sink, float *out);

#endif
