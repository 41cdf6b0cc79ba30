/* See csv_line.h. */
#include "csv_line.h"

#include <stdarg.h>

void csv_field(csv_line *line, const char *format, ...)
{
    va_list arguments;
    if (line->fields++ > 0)
        fputc(',', line->file);
    va_start(arguments, format);
    vfprintf(line->file, format, arguments);
    va_end(arguments);
}

void csv_end(csv_line *line)
{
    fputc('\n', line->file);
    line->fields = 0;
}
