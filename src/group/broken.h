/* How a group breaks: once, for good, with a status and a reason that all later calls give. Every
 * engine has one of these; group.h says what breaks a group. Plain inline C, since the engine for
 * MPI is a module that does not link the core. */
#ifndef TA_GROUP_BROKEN_H
#define TA_GROUP_BROKEN_H

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include <treeattn/treeattn.h>

#define TA_BROKEN_REASON_BYTES 480

typedef struct ta_broken {
    pthread_mutex_t mutex;
    atomic_int status;                   /* TA_OK while all is well */
    char reason[TA_BROKEN_REASON_BYTES]; /* written once, before `status` */
} ta_broken;

/* Of zeroed memory. */
static inline void ta_broken_init(ta_broken *b)
{
    pthread_mutex_init(&b->mutex, NULL);
}

static inline void ta_broken_destroy(ta_broken *b)
{
    pthread_mutex_destroy(&b->mutex);
}

static inline ta_status ta_broken_status(ta_broken *b)
{
    return (ta_status)atomic_load(&b->status);
}

/* The first cause wins; returns whether it was this one. */
static inline int ta_break_with(ta_broken *b, ta_status status, const char *format,
                                va_list arguments)
{
    pthread_mutex_lock(&b->mutex);
    int first = ta_broken_status(b) == TA_OK;
    if (first) {
        vsnprintf(b->reason, sizeof b->reason, format, arguments);
        atomic_store(&b->status, status);
    }
    pthread_mutex_unlock(&b->mutex);
    return first;
}

__attribute__((format(printf, 3, 4))) static inline int ta_break(ta_broken *b, ta_status status,
                                                                 const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int first = ta_break_with(b, status, format, arguments);
    va_end(arguments);
    return first;
}

#endif
