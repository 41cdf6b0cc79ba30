/* Checked mode: what ta_decode() looks at beside its arguments when a plan has config.check. Called
 * by api.c, combine.c and append.c; implemented in check_more.c. */
#ifndef TA_CHECK_MORE_H
#define TA_CHECK_MORE_H

#include "plan.h"

/* Check a step whose arguments are in order; *shared is the hash of the bits that all ranks must
 * share beside the tables: sinks, slopes and, if all ranks have it, the query. On a GPU it waits
 * for the stream. */
ta_status ta_check_more(ta_plan *plan, const ta_step *step, uint64_t *shared, void *stream);

/* Sinks and slopes alone, for a combine; *shared is left alone if there are none. */
ta_status ta_check_heads(ta_plan *plan, const ta_step *step, uint64_t *shared, void *stream);

/* The tables in device memory and the scales of new tokens, before an append uses them. For devices
 * whose memory the host cannot see. */
ta_status ta_check_append(ta_plan *plan, const ta_step *step, void *stream);

#endif
