/* See prompt.h. */
#include "prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/args.h"
#include "config.h"

#define BETWEEN " ,\n\r\t"

/* Digits alone: a word's number has no units, as counts of tokens may have. */
static int read_word(const char *text, size_t length, int32_t vocabulary, int32_t *word)
{
    int64_t number;
    if (strspn(text, "0123456789") != length || args_number(text, length, &number) != 0 ||
        number >= vocabulary)
        return -1;
    *word = (int32_t)number;
    return 0;
}

int prompt_read(const char *path, int32_t vocabulary, int32_t **words, int32_t *count, char *error,
                size_t capacity)
{
    size_t length;
    int32_t used = 0;
    char *text = llama_read_text(path, &length, error, capacity);
    if (!text)
        return -1;
    int32_t *found = calloc(length / 2 + 2, sizeof *found);
    const char *at = text + strspn(text, BETWEEN);
    while (found && *at) {
        size_t digits = strcspn(at, BETWEEN);
        if (read_word(at, digits, vocabulary, &found[used]) != 0)
            break;
        used++;
        at += digits;
        at += strspn(at, BETWEEN);
    }
    int whole = found && *at == '\0' && used > 0;
    free(text);
    if (whole) {
        *words = found;
        *count = used;
        return 0;
    }
    free(found);
    snprintf(error, capacity,
             "--words is '%s', which must have whole numbers from 0 to %d: number %d is not one",
             path, (int)vocabulary - 1, (int)used + 1);
    return -1;
}

int32_t *prompt_make(const int32_t *given, int32_t vocabulary, uint64_t seed, int32_t tokens)
{
    int32_t *prompt = calloc((size_t)tokens, sizeof *prompt);
    uint64_t state = seed + 1;
    for (int32_t i = 0; prompt && i < tokens; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        prompt[i] = given ? given[i] : (int32_t)((state >> 33) % (uint64_t)vocabulary);
    }
    return prompt;
}
