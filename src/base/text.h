/* A text built piece by piece into the caller's buffer, as ta_info() and ta_explain() promise: cut
 * at the capacity, always terminated, the full length counted. Implemented in text.c. */
#ifndef TA_TEXT_H
#define TA_TEXT_H

#include <stddef.h>

#include <treeattn/treeattn.h>

typedef struct ta_text {
    char *data;
    size_t capacity;
    size_t length; /* without the NUL; may exceed the capacity */
} ta_text;

void ta_text_init(ta_text *text, char *data, size_t capacity);
/* The same for a caller's `text` and `capacity`, which must fit together. */
ta_status ta_text_open(ta_text *text, char *data, size_t capacity);
/* The text is whole: tell its bytes with the NUL, unless `needed_bytes` is NULL. TA_OK. */
ta_status ta_text_close(const ta_text *text, size_t *needed_bytes);
__attribute__((format(printf, 2, 3))) void ta_text_add(ta_text *text, const char *format, ...);

/* A JSON string, with its quotes and escapes. */
void ta_text_add_quoted(ta_text *text, const char *string);

#endif
