/* Status names and messages, the last error of a thread, and the log callback. Everybody calls
 * ta_fail(); nothing here calls anybody but the user's log function. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>

#include "format.h"

static struct {
    ta_log_fn fn;
    void *context;
    ta_log_level level;
} log_target;

static _Thread_local char last_error[1024];
static _Thread_local int other_rank_s; /* another rank found it */

const char *ta_status_name(ta_status status)
{
    switch (status) {
#define CASE(name, value, message)                                                                 \
    case name:                                                                                     \
        return #name;
        TA_STATUS_LIST(CASE)
#undef CASE
    }
    return "TA_ERR_UNKNOWN";
}

const char *ta_status_message(ta_status status)
{
    switch (status) {
#define CASE(name, value, message)                                                                 \
    case name:                                                                                     \
        return message;
        TA_STATUS_LIST(CASE)
#undef CASE
    }
    return "not a status of this library";
}

const char *ta_last_error(void)
{
    return last_error;
}

void ta_log_set(ta_log_fn fn, void *context, ta_log_level level)
{
    log_target.fn = fn;
    log_target.context = context;
    log_target.level = level;
}

static void log_text(ta_log_level level, const char *text)
{
    if (log_target.fn && level <= log_target.level)
        log_target.fn(log_target.context, level, text);
}

/* An argument may be the old ta_last_error() itself, hence the detour. */
static void set_last_error(const char *format, va_list arguments)
{
    char text[sizeof last_error];
    ta_format_list(text, sizeof text, format, arguments);
    snprintf(last_error, sizeof last_error, "%s", text);
    other_rank_s = 0;
}

ta_status ta_found_by_other(ta_status status)
{
    other_rank_s = 1;
    return status;
}

int ta_error_is_other_rank_s(void)
{
    return other_rank_s;
}

ta_status ta_fail(ta_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_last_error(format, arguments);
    va_end(arguments);
    log_text(TA_LOG_ERROR, last_error);
    return status;
}

ta_status ta_fail_quietly(ta_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_last_error(format, arguments);
    va_end(arguments);
    return status;
}

void ta_log_info(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    ta_format_list(text, sizeof text, format, arguments);
    va_end(arguments);
    log_text(TA_LOG_INFO, text);
}
