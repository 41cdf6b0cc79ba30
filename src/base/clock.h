/* The clock of the library: one that never goes back, for deadlines and for measuring. Modules
 * include it too, so it is a header alone. */
#ifndef TA_CLOCK_H
#define TA_CLOCK_H

#include <stdint.h>
#include <time.h>

#define TA_NS_PER_MS 1000000
#define TA_NS_PER_S 1000000000

static inline int64_t ta_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * TA_NS_PER_S + now.tv_nsec;
}

static inline int64_t ta_clock_ms(void)
{
    return ta_clock_ns() / TA_NS_PER_MS;
}

static inline double ta_clock_s(void)
{
    return 1e-9 * (double)ta_clock_ns();
}

/* The time in so many milliseconds on `clock`: pthread calls wait until a time, and some of them
 * know CLOCK_REALTIME only. */
static inline struct timespec ta_clock_after_ms(clockid_t clock, int64_t ms)
{
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_sec += ms / 1000;
    t.tv_nsec += (long)(ms % 1000) * TA_NS_PER_MS;
    if (t.tv_nsec >= TA_NS_PER_S) {
        t.tv_sec += 1;
        t.tv_nsec -= TA_NS_PER_S;
    }
    return t;
}

#endif
