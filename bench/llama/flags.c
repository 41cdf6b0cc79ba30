/* See flags.h. */
#include "flags.h"

#include <stdio.h>
#include <string.h>

#include "common/elements.h"
#include "common/launch.h"
#include "common/sweep.h"

/* As decoder_prefill_kind; the last is what the weights suggest. */
static const char *const prefill_words[] = {"grid", "chunks", "none", "auto", NULL};
enum { PREFILL_AUTO = 3 };
static const char *const weights_words[] = {"replicated", "tensor", NULL};
static const char *const algorithm_words[] = {"tree", "ring-kv", "ring-q", NULL};
static const ta_algorithm algorithms[] = {TA_ALGORITHM_TREE, TA_ALGORITHM_RING_KV,
                                          TA_ALGORITHM_RING_Q};
static const char *const ring_words[] = {"native", "expanded", NULL};
static const char *const pages_words[] = {"small", "huge", NULL};

#define AT(field) offsetof(llama_flags, field)
static const arg_flag flag_table[] = {
    FLAG_TEXT(0, "model", model, "MODEL",
              "3.1-8b, 3.2-1b, 3-70b or tiny; a folder with config.json and safetensors files; or "
              "a config.json alone"),
    FLAG_SET(0, "random", random,
             "random weights even if the folder has some; all other models have random ones"),
    FLAG_INTS(0, "tokens", tokens, 1, 1 << 30, "LIST", "tokens of the prompt"),
    FLAG_TEXT(0, "words", words, "FILE",
              "the prompt as numbers of words, with space or commas between them; --tokens then "
              "counts for nothing",
              "words by chance"),
    FLAG_INT(0, "new", new_words, 1, 100000, "N", "words to decode after the prompt"),
    FLAG_CHOICES(0, "algo", algorithms, algorithm_words, "LIST",
                 "of decode steps: tree, ring-kv, ring-q; they take turns at each word, and are "
                 "compared with the first"),
    FLAG_CHOICE(0, "ring", expanded, ring_words, "KIND",
                "expanded: also measure a pass-KV ring as published code has it, over KV heads "
                "that are repeated for every query head; replicated weights alone"),
    FLAG_CHOICE(
        0, "weights", tensor, weights_words, "KIND",
        "replicated: every rank computes every word; tensor: heads and columns are divided"),
    FLAG_CHOICE(
        0, "prefill", prefill, prefill_words, "KIND",
        "grid: each rank its own tokens, replicated weights alone; chunks: one after the other by "
        "all ranks; none: random numbers in the cache; auto: grid where it can be"),
    FLAG_INTS(0, "ranks", ranks, 1, 1024, "LIST",
              "ranks, as threads of this process; under mpirun the processes are the ranks"),
    FLAG_INT('t', "threads", threads, 1, 1024, "N", "threads of each rank", "CPUs / ranks"),
    FLAG_TEXT(0, "device", device, "NAME",
              "host; a kind of GPU (cuda, rocm), of which each rank takes one; or one GPU for all "
              "ranks (cuda:0)"),
    FLAG_GROUP(group, "if --device is a kind of GPU"),
    FLAG_LINK(link),
    FLAG_CHOICE(0, "dtype", dtype, element_words, "TYPE", "of random weights"),
    FLAG_CHOICE(0, "kv-dtype", kv_dtype, element_kv_words, "TYPE",
                "of the cache; of 8 bits with a scale for each token and KV head"),
    FLAG_INT(0, "chunk", chunk, 1, 1024, "TOKENS", "computed at a time in the prompt"),
    FLAG_INT(0, "block", block, 1, 1 << 20, "TOKENS", "of the shard map"),
    FLAG_INT(0, "page-tokens", page_tokens, 1, 1 << 20, "TOKENS", "of a page of the cache"),
    FLAG_INT(0, "reproducible", tile, 16, 1 << 20, "TOKENS",
             "the same bits on any number of ranks, with tiles of so many tokens, of which --block "
             "is a multiple: tree and chunks with replicated weights, products of a fixed order",
             "off"),
    FLAG_TEXT(0, "matmul", matmul, "LIBRARY",
              "products of many rows: own, or the file name of a BLAS; on GPUs of the vendor's",
              "the first BLAS that is here, or own"),
    FLAG_CHOICE(0, "pages", pages, pages_words, "KIND", "memory of random weights"),
    FLAG_INT(0, "seed", seed, 0, INT32_MAX, "N", "of weights, prompt and sampling"),
    FLAG_INT(0, "temperature", temperature, 0, 10000, "PERCENT",
             "choose words by chance: 100 is the model's own distribution; 0 the likeliest word"),
    FLAG_INT('w', "warmup", warmup, 0, 1000, "N", "steps before the first that counts"),
    FLAG_INT(0, "read", read, 0, 1, "0|1",
             "alternate with reading the same bytes of weights and cache, and the prompt with "
             "products by the matrix library alone, for the fractions; on the host alone"),
    FLAG_TEXT(0, "cluster", cluster, "TEXT",
              "also predict each row on this cluster: h100:1x8, mi300x:1x4, a file … (see "
              "treeattn-bench model)"),
    FLAG_SET(0, "predict", predict, "predict alone, on --cluster with all its ranks: nothing runs"),
    FLAG_WIDE(wide),
    FLAG_TEXT(
        'J', "json", json, "FILE",
        "write all results to this file; -: to standard output, and the table to standard error"),
    FLAG_CSV(csv),
    FLAG_TEXT(0, "logits", logits, "FILE",
              "write the first algorithm's logits after the prompt and after each word to this "
              "file: floats of 32 bits, a row for each; of one length and number of ranks alone"),
    FLAG_HELP(help),
    {0},
};
static const arg_flag *const tables[] = {flag_table, NULL};

static llama_flags defaults(void)
{
    return (llama_flags){
        .model = "tiny",
        .device = "host",
        .tokens = sweep_one(1024),
        .ranks = sweep_one(1),
        .algorithms = {3, {0, 1, 2}},
        .new_words = 10,
        .warmup = 1,
        .prefill = PREFILL_AUTO,
        .dtype = 2,
        .kv_dtype = 2,
        .chunk = 256,
        .block = 64,
        .page_tokens = 16,
        .read = 1,
    };
}

/* What no flag can check alone; the first sentence that is not NULL. */
static const char *disagreement(const llama_flags *f)
{
    if (f->tensor && f->prefill == PREFILL_GRID)
        return "--prefill is grid, but with --weights tensor must be chunks or none: the grid "
               "needs "
               "all weights on every rank";
    if (f->predict && !f->cluster)
        return "--predict needs --cluster, such as h100:1x8";
    if (f->predict && f->csv)
        return "--csv is for rows that are measured, not for --predict: --json has predictions";
    if (f->tile && f->tensor)
        return "--reproducible needs --weights replicated: sums over ranks have another order";
    if (f->tile && f->prefill == PREFILL_GRID)
        return "--reproducible needs --prefill chunks or none";
    if (f->tile && (f->algorithms.count != 1 || f->algorithms.values[0] != 0))
        return "--reproducible needs --algo tree: rings have no order of their own to keep";
    if (f->tile && f->matmul && strcmp(f->matmul, "own") != 0)
        return "--reproducible needs --matmul own";
    if (f->tile && f->block % f->tile != 0)
        return "--block must be a multiple of --reproducible";
    if (llama_flags_algorithms(f) > DECODER_ALGORITHMS)
        return "--algo has more than 4 values, with --ring expanded more than 3";
    if (f->expanded && f->tensor)
        return "--ring expanded needs --weights replicated: it repeats all heads on every rank";
    if (f->expanded && f->tile)
        return "--ring expanded has no --reproducible: rings have no order of their own to keep";
    if (f->group == RANK_GROUP_CCL && !llama_flags_gpu_each(f))
        return "--group is ccl, but --device must then be a kind of GPU, such as cuda or rocm, of "
               "which each rank takes one";
    if (f->link && launch.mpi)
        return "--link emulates nodes with threads of one process: start it once, without mpirun";
    if (f->link && llama_flags_gpu(f))
        return "--link is for --device host, not for GPUs";
    if (f->logits && (f->tokens.count > 1 || f->ranks.count > 1))
        return "--logits is for one row: give one value to --tokens and one to --ranks";
    return NULL;
}

int llama_flags_parse(int argc, char **argv, llama_flags *flags, char *error, size_t capacity)
{
    *flags = defaults();
    flags->ranks.count = 0;
    if (args_parse(tables, flags, argc, argv, error, capacity) != 0)
        return -1;
    if (sweep_use_processes(&flags->ranks, flags->ranks.count > 0, error, capacity) != 0)
        return -1;
    if (flags->ranks.count == 0)
        flags->ranks = sweep_one(1);
    const char *wrong = disagreement(flags);
    if (wrong)
        snprintf(error, capacity, "%s", wrong);
    if (flags->group == RANK_GROUP_AUTO)
        flags->group = llama_flags_gpu_each(flags) ? RANK_GROUP_CCL : RANK_GROUP_HOST;
    if (llama_flags_gpu(flags))
        flags->read = 0; /* the readers are the host's */
    if (flags->tile && !flags->matmul)
        flags->matmul = "own";
    if (flags->prefill == PREFILL_AUTO)
        flags->prefill = flags->tensor || flags->tile ? PREFILL_CHUNKS : PREFILL_GRID;
    if (wrong)
        return -1;
    return flags->link ? links_parse(flags->link, &flags->speed, error, capacity) : 0;
}

void llama_flags_help(FILE *file)
{
    llama_flags usual = defaults();
    fputs(
        "On a sharded KV cache: a prompt, then words one by one, each by all algorithms in turn.\n"
        "Weights are random unless --model has some; their values change no times.\n"
        "\n",
        file);
    args_print(file, tables, &usual);
}

decoder_prefill_kind llama_flags_prefill(const llama_flags *flags)
{
    return (decoder_prefill_kind)flags->prefill;
}

const char *llama_flags_prefill_name(const llama_flags *flags)
{
    return prefill_words[flags->prefill];
}

int llama_flags_algorithms(const llama_flags *flags)
{
    return flags->algorithms.count + (flags->expanded != 0);
}

int llama_flags_is_expanded(const llama_flags *flags, int index)
{
    return index == flags->algorithms.count;
}

ta_algorithm llama_flags_algorithm(const llama_flags *flags, int index)
{
    return llama_flags_is_expanded(flags, index) ? TA_ALGORITHM_RING_KV
                                                 : algorithms[flags->algorithms.values[index]];
}

const char *llama_flags_algorithm_word(const llama_flags *flags, int index)
{
    return llama_flags_is_expanded(flags, index) ? "expanded"
                                                 : algorithm_words[flags->algorithms.values[index]];
}

int llama_flags_gpu(const llama_flags *flags)
{
    return strcmp(flags->device, "host") != 0;
}

int llama_flags_gpu_each(const llama_flags *flags)
{
    return llama_flags_gpu(flags) && !strchr(flags->device, ':');
}
