/* What the authors of Tree Attention (arXiv 2408.04093) measured: a prompt and 10 words of Llama.
 * It stands beside a row whose model and GPUs are theirs, measured or predicted. */
#ifndef BENCH_LLAMA_PAPER_H
#define BENCH_LLAMA_PAPER_H

#include "common/run_head.h"
#include "flags.h"

/* Seconds of algorithm `index` of the flags, on so many GPUs of one node, by the shape of the model
 * and the name of the GPU, such as "NVIDIA H100 80GB HBM3"; 0: they did not measure it. */
double paper_seconds(const llama_flags *flags, const llama_config *config, const char *gpu,
                     int gpus, int32_t tokens, int index);

/* The GPU that all of so many ranks have, each one of its own of one host; NULL: none. */
const char *paper_gpu(const rank_place *places, int ranks);

#endif
