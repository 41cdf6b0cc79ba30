/* Errors as values. The function that finds the cause calls ta_fail() with the sentence a user
 * needs; everybody above forwards the status with TA_TRY. Implemented in status.c. */
#ifndef TA_STATUS_H
#define TA_STATUS_H

#include <treeattn/treeattn.h>

/* Forward an error to the caller. */
#define TA_TRY(expr)                                                                               \
    do {                                                                                           \
        ta_status ta_try_status_ = (expr);                                                         \
        if (ta_try_status_ != TA_OK)                                                               \
            return ta_try_status_;                                                                 \
    } while (0)

/* Keep an error in the local `status` and go to the label that undoes what was done so far. */
#define TA_TRY_GOTO(expr, label)                                                                   \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != TA_OK)                                                                       \
            goto label;                                                                            \
    } while (0)

/* Record the sentence for ta_last_error() on this thread, log it, and return `status`. */
__attribute__((format(printf, 2, 3))) ta_status ta_fail(ta_status status, const char *format, ...);

/* The same without logging: an error that was logged before, or that is none in the end. */
__attribute__((format(printf, 2, 3))) ta_status ta_fail_quietly(ta_status status,
                                                                const char *format, ...);

/* Mark the last error of this thread as one that another rank found, which knows more of it: who
 * looks for the cause (run_threads.c) asks that one first. Returns `status`. */
ta_status ta_found_by_other(ta_status status);
int ta_error_is_other_rank_s(void);

__attribute__((format(printf, 1, 2))) void ta_log_info(const char *format, ...);

#endif
