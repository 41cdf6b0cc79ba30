/* The words of a prompt, as numbers: of a file, or by chance. llama.c has one for each row. */
#ifndef BENCH_LLAMA_PROMPT_H
#define BENCH_LLAMA_PROMPT_H

#include <stddef.h>
#include <stdint.h>

/* Numbers below `vocabulary` with space or commas between them; free() them. -1 with a sentence in
 * `error`. */
int prompt_read(const char *path, int32_t vocabulary, int32_t **words, int32_t *count, char *error,
                size_t capacity);

/* The first `tokens` of the given words or, with NULL, so many by chance. NULL without memory. */
int32_t *prompt_make(const int32_t *given, int32_t vocabulary, uint64_t seed, int32_t tokens);

#endif
