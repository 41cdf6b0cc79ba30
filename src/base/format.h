/* Text from numbers and numbers from text, the same in every locale: with a point, never the comma
 * that a program's setlocale() asks for. text.c, status.c and the cluster's files use these in
 * place of snprintf() and strtod(), which follow the locale. Implemented in format.c. */
#ifndef TA_FORMAT_H
#define TA_FORMAT_H

#include <stdarg.h>
#include <stddef.h>

/* As snprintf() and vsnprintf(). */
__attribute__((format(printf, 3, 4))) int ta_format(char *text, size_t capacity, const char *format,
                                                    ...);
__attribute__((format(printf, 3, 0))) int ta_format_list(char *text, size_t capacity,
                                                         const char *format, va_list arguments);

/* As strtod(). */
double ta_parse_number(const char *text, char **end);

#endif
