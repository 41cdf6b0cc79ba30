/* The flags of `treeattn-bench llama`. */
#ifndef BENCH_LLAMA_FLAGS_H
#define BENCH_LLAMA_FLAGS_H

#include "common/args.h"
#include "common/links.h"
#include "common/rank_device.h"
#include "config.h"
#include "decoder.h"

typedef struct llama_flags {
    const char *model;
    arg_list tokens, ranks, algorithms;
    int64_t new_words, warmup, threads;
    int64_t tensor, prefill; /* prefill: what it is, or PREFILL_AUTO */
    int64_t dtype, kv_dtype; /* words of element_words */
    int64_t random, seed, temperature;
    int64_t chunk, block, page_tokens, tile, pages, read;
    const char *words, *matmul, *cluster, *json, *csv, *device, *logits;
    const char *link;        /* DELAY,RATE of emulated links, or NULL: there are none */
    link_speed speed;        /* of them */
    int64_t group, expanded; /* group: not RANK_GROUP_AUTO once the flags are parsed */
    int64_t wide, predict, help;
} llama_flags;

/* Returns 0, or -1 with a sentence in `error`. With MPI the ranks are its processes. */
int llama_flags_parse(int argc, char **argv, llama_flags *flags, char *error, size_t capacity);
void llama_flags_help(FILE *file);

decoder_prefill_kind llama_flags_prefill(const llama_flags *flags);
const char *llama_flags_prefill_name(const llama_flags *flags);
/* The algorithms that take turns: those of --algo, and behind them the ring of --ring expanded. */
int llama_flags_algorithms(const llama_flags *flags);
ta_algorithm llama_flags_algorithm(const llama_flags *flags, int index);
int llama_flags_is_expanded(const llama_flags *flags, int index);
const char *llama_flags_algorithm_word(const llama_flags *flags, int index);

/* Is the device not the host, and has each rank one of its own? */
int llama_flags_gpu(const llama_flags *flags);
int llama_flags_gpu_each(const llama_flags *flags);

#endif
