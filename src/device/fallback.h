/* What this process would have had and did without: ta_info() has a line for it, so that somebody
 * who sees one machine slower than another finds out why. Implemented in fallback.c; the planner
 * tells it. */
#ifndef TA_DEVICE_FALLBACK_H
#define TA_DEVICE_FALLBACK_H

#include "base/text.h"

/* A plan that was to exchange directly takes another exchange, for this reason; the last one is
 * kept. */
void ta_fallback_from_direct(const char *why, const char *instead);

/* The lines for ta_info(): none, if nothing was given up. */
void ta_fallback_describe(ta_text *text);

#endif
