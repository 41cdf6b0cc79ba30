/* A whole model in double, written for reading: one token after the other, one head after the
 * other, all keys in a list. It shares nothing with bench/llama/ but the numbers of the
 * weights. */
#ifndef TEST_LLAMA_REFERENCE_H
#define TEST_LLAMA_REFERENCE_H

#include <stdint.h>

#include "llama/model_weights.h"

/* logits[token][vocabulary] after each of the words. Ends the program without memory. */
void reference_logits(const llama_part *model, const int32_t *words, int count, double *logits);

#endif
