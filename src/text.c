/* The text builder behind ta_info() and ta_explain(). */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>

void ta_text_init(ta_text *text, char *data, size_t capacity)
{
    text->data = data;
    text->capacity = data ? capacity : 0;
    text->length = 0;
    if (text->capacity)
        data[0] = '\0';
}

void ta_text_add(ta_text *text, const char *format, ...)
{
    size_t room = text->length < text->capacity ? text->capacity - text->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int added = vsnprintf(room ? text->data + text->length : NULL, room, format, arguments);
    va_end(arguments);
    if (added > 0)
        text->length += (size_t)added;
}
