/* Numbers in the locale "C": see format.h. The calling thread's locale is set aside for the one
 * call that must not see it, and put back; the program's (setlocale()) is never touched. */
#include "format.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>

/* Go to the locale "C". For all categories newlocale() makes no new object of it, so that nothing
 * is allocated and nothing has to be freed. Should it fail, the thread keeps what it has. */
static locale_t enter_plain(void)
{
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return plain ? uselocale(plain) : (locale_t)0;
}

static void leave_plain(locale_t before)
{
    if (before)
        (void)uselocale(before);
}

int ta_format_list(char *text, size_t capacity, const char *format, va_list arguments)
{
    locale_t before = enter_plain();
    int length = vsnprintf(text, capacity, format, arguments);
    leave_plain(before);
    return length;
}

int ta_format(char *text, size_t capacity, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = ta_format_list(text, capacity, format, arguments);
    va_end(arguments);
    return length;
}

double ta_parse_number(const char *text, char **end)
{
    locale_t before = enter_plain();
    double value = strtod(text, end);
    leave_plain(before);
    return value;
}
