/* The text builder behind ta_info() and ta_explain(). */
#include "text.h"

#include <stdarg.h>

#include "format.h"
#include "status.h"

void ta_text_init(ta_text *text, char *data, size_t capacity)
{
    text->data = data;
    text->capacity = data ? capacity : 0;
    text->length = 0;
    if (text->capacity)
        data[0] = '\0';
}

ta_status ta_text_open(ta_text *text, char *data, size_t capacity)
{
    if (!data && capacity)
        return ta_fail(TA_ERR_INVALID,
                       "text is NULL with capacity %zu: must point to that many bytes", capacity);
    ta_text_init(text, data, capacity);
    return TA_OK;
}

ta_status ta_text_close(const ta_text *text, size_t *needed_bytes)
{
    if (needed_bytes)
        *needed_bytes = text->length + 1;
    return TA_OK;
}

void ta_text_add(ta_text *text, const char *format, ...)
{
    size_t room = text->length < text->capacity ? text->capacity - text->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int added = ta_format_list(room ? text->data + text->length : NULL, room, format, arguments);
    va_end(arguments);
    if (added > 0)
        text->length += (size_t)added;
}

void ta_text_add_quoted(ta_text *text, const char *string)
{
    ta_text_add(text, "\"");
    for (; *string; ++string) {
        if (*string == '"' || *string == '\\')
            ta_text_add(text, "\\%c", *string);
        else if ((unsigned char)*string < 0x20)
            ta_text_add(text, "\\u%04x", (unsigned)*string);
        else
            ta_text_add(text, "%c", *string);
    }
    ta_text_add(text, "\"");
}
