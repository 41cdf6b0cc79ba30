/* What a row would take on a cluster that need not be here: attention by the library's cost model,
 * products by the memory and the arithmetic of the devices. docs/llama.md has the formulas. */
#ifndef BENCH_LLAMA_FORECAST_H
#define BENCH_LLAMA_FORECAST_H

#include "flags.h"

typedef struct llama_forecast {
    int possible;
    double prefill_s; /* 0 with --prefill none */
    double step_s;
    double weights_s, attend_s, exchange_s; /* of a step */
    double memory_bytes;                    /* of a rank: weights, K and V, and their workspace */
    int fits;                               /* into a device */
    double
        paper_s; /* prompt and 10 words as Tree Attention's authors measured it; 0: they did not */
} llama_forecast;

/* Ranks of the cluster; 0 with a sentence in `error` if it cannot be made. */
int llama_forecast_ranks(const char *cluster, char *error, size_t capacity);

/* Of algorithm `index` of the flags. -1 with a sentence in `error`. */
int llama_forecast_make(const llama_flags *flags, const llama_config *config, int ranks,
                        int32_t tokens, int index, llama_forecast *forecast, char *error,
                        size_t capacity);

#endif
