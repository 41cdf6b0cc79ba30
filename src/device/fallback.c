/* See fallback.h. Plans of several threads may tell at once. */
#include "fallback.h"

#include <pthread.h>

#include "base/format.h"
#include "base/status.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char from_direct[256];

void ta_fallback_from_direct(const char *why, const char *instead)
{
    pthread_mutex_lock(&lock);
    ta_format(from_direct, sizeof from_direct, "%s instead, since %s", instead, why);
    pthread_mutex_unlock(&lock);
    ta_log_info("exchange %s in place of direct: %s", instead, why);
}

void ta_fallback_describe(ta_text *text)
{
    pthread_mutex_lock(&lock);
    if (from_direct[0])
        ta_text_add(text, "direct exchange: given up, %s\n", from_direct);
    pthread_mutex_unlock(&lock);
}
