/* The next word, from the logits of all words. All ranks have the same logits, so all choose the
 * same word. */
#ifndef BENCH_LLAMA_SAMPLE_H
#define BENCH_LLAMA_SAMPLE_H

#include <stdint.h>

/* With temperature 0 the word with the largest logit, the first of several. Otherwise one by
 * chance, each with a probability in proportion to exp(logit / temperature); `seed` and `step`
 * decide which. Words whose logit is NaN are never chosen; -1 if there is no other. */
int32_t sample_word(const float *logits, int32_t words, double temperature, uint64_t seed,
                    uint64_t step);

/* The word with the largest logit alone. */
int32_t sample_greedy(const float *logits, int32_t words);

#endif
