/* The flags of `treeattn-bench attention`: their table, defaults, what must agree between them, and
 * the rows they ask for. What they share with decode is in sweep.c. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include <treeattn/attention.h>

static const char *const map_words[] = {"contiguous", "striped", "zigzag", NULL};
static const char *const mask_words[] = {"causal", "full", NULL};
/* In the order of ta_attention_algorithm, and then one more. */
static const char *const algorithm_words[] = {"grid", "ring", "overlap", "auto", NULL};
enum { AUTOMATIC = TA_ATTENTION_GRID_OVERLAP + 1 };

enum { FLAG_COUNT = 23 };

static void make_flags(attention_options *o, arg_flag flags[FLAG_COUNT])
{
    const int64_t most = INT32_MAX;
    const arg_flag table[FLAG_COUNT] = {
        {'b', "begin", ARG_INT, &o->lengths.begin, 1, most, NULL, "TOKENS",
         "shortest sequence, over all ranks (4k)"},
        {'e', "end", ARG_INT, &o->lengths.end, 1, most, NULL, "TOKENS",
         "longest sequence (--begin)"},
        {'f', "factor", ARG_INT, &o->lengths.factor, 2, 1 << 20, NULL, "N",
         "from each length to the next (4)"},
        {'n', "iterations", ARG_INT, &o->iterations, 1, 1000000, NULL, "N",
         "timed calls per row (5)"},
        {'w', "warmup", ARG_INT, &o->warmup, 0, 1000000, NULL, "N",
         "untimed calls before them (1)"},
        {'c', "check", ARG_INT, &o->check, 0, 1, NULL, "0|1",
         "check a sample of the results in double precision (1)"},
        {0, "algo", ARG_CHOICES, &o->algorithms, 0, 0, algorithm_words, "LIST",
         "grid, overlap (the grid that moves while it computes), ring, or auto for what\n"
         "                           --cluster says; rows are compared with the first (grid)"},
        {0, "scaling", ARG_CHOICE, &o->scaling, 0, 0, sweep_scaling_words, "KIND",
         "lengths are of the sequence (strong) or of each rank's part (weak) (strong)"},
        {0, "ranks", ARG_INTS, &o->ranks, 1, 1024, NULL, "LIST",
         "ranks that share the sequence, as threads of this process (1);\n"
         "                           under mpirun each process is one of them"},
        {0, "threads", ARG_INTS, &o->threads, 1, 1024, NULL, "LIST",
         "threads of each rank (the CPUs divided by the ranks, at least 1)"},
        {0, "columns", ARG_INTS, &o->columns, 0, 1024, NULL, "LIST",
         "columns of the grid of ranks; 0: the plan chooses (0)"},
        {0, "cluster", ARG_TEXT, &o->cluster, 0, 0, NULL, "CLUSTER",
         "choose columns by predicted time, and print it too; CLUSTER as in model, or\n"
         "                           probe: these ranks, measured first"},
        {0, "map", ARG_CHOICES, &o->maps, 0, 0, map_words, "LIST",
         "who holds what: contiguous, striped, zigzag (zigzag)"},
        {0, "block", ARG_INT, &o->block, 1, most, NULL, "TOKENS", "block of striped (1)"},
        {0, "heads", ARG_INTS, &o->heads, 1, 65536, NULL, "LIST", "query heads (2)"},
        {0, "kv-heads", ARG_INTS, &o->kv_heads, 1, 65536, NULL, "LIST", "KV heads (--heads)"},
        {0, "head-dim", ARG_INT, &o->head_dim, 8, 256, NULL, "N",
         "head dimension, a multiple of 8 (128)"},
        {0, "dtype", ARG_CHOICES, &o->dtypes, 0, 0, sweep_dtype_words, "LIST",
         "f32, f16, bf16 (f32)"},
        {0, "mask", ARG_CHOICE, &o->mask, 0, 0, mask_words, "KIND", "causal or full (causal)"},
        {0, "device", ARG_TEXT, &o->device, 0, 0, NULL, "NAME",
         "where it runs: host, or auto for the best there is (host)"},
        {0, "simd", ARG_TEXT, &o->simd, 0, 0, NULL, "LEVEL",
         "host: scalar, avx2, avx512, avx512bf16 (the best this CPU has)"},
        {0, "json", ARG_TEXT, &o->json, 0, 0, NULL, "FILE", "also write every sample there"},
        {'h', "help", ARG_HELP, &o->help, 0, 0, NULL, "", "print this"},
    };
    memcpy(flags, table, sizeof table);
}

static int check_agreement(const attention_options *o, char *error, size_t capacity)
{
    if (sweep_check_lengths(&o->lengths, o->scaling, &o->ranks, error, capacity) != 0 ||
        sweep_check_heads(&o->heads, &o->kv_heads, error, capacity) != 0)
        return -1;
    for (int i = 0; !o->cluster && i < o->algorithms.count; i++)
        if (o->algorithms.values[i] == AUTOMATIC) {
            snprintf(error, capacity, "--algo is auto, but there is no --cluster to choose by");
            return -1;
        }
    if (o->head_dim % 8 == 0)
        return 0;
    snprintf(error, capacity, "--head-dim is %lld, but must be a multiple of 8",
             (long long)o->head_dim);
    return -1;
}

int attention_options_parse(int argc, char **argv, attention_options *options, char *error,
                            size_t capacity)
{
    attention_options *o = options;
    arg_flag flags[FLAG_COUNT + 1] = {0};
    const arg_list default_ranks = sweep_one(1);
    *o = (attention_options){.lengths = {4096, 0, 4},
                             .iterations = 5,
                             .warmup = 1,
                             .check = 1,
                             .ranks = default_ranks,
                             .algorithms = sweep_one(TA_ATTENTION_GRID),
                             .columns = sweep_one(0),
                             .maps = sweep_one(TA_SHARD_ZIGZAG),
                             .dtypes = sweep_one(0),
                             .heads = sweep_one(2),
                             .head_dim = 128,
                             .block = 1,
                             .device = "host"};
    make_flags(o, flags);
    if (args_parse(flags, argc, argv, error, capacity) != 0)
        return -1;
    if (o->lengths.end == 0)
        o->lengths.end = o->lengths.begin;
    if (sweep_use_processes(&o->ranks, &default_ranks, error, capacity) != 0)
        return -1;
    return o->help ? 0 : check_agreement(o, error, capacity);
}

/* Returns whether there is such a row. */
static int make_row(const attention_options *o, const bench_machine *machine, int64_t number,
                    attention_row *row)
{
    *row = (attention_row){.head_dim = (int32_t)o->head_dim,
                           .mask = (ta_mask)o->mask,
                           .iterations = (int)o->iterations,
                           .warmup = (int)o->warmup,
                           .device = o->device,
                           .simd = o->simd};
    int64_t column = sweep_digit(&number, o->columns.count);
    row->columns = (int)o->columns.values[column];
    int64_t algorithm = o->algorithms.values[sweep_digit(&number, o->algorithms.count)];
    row->automatic = algorithm == AUTOMATIC;
    row->algorithm = row->automatic ? TA_ATTENTION_GRID : (ta_attention_algorithm)algorithm;
    int64_t length = sweep_digit(&number, sweep_count(&o->lengths));
    int64_t threads =
        o->threads.count ? o->threads.values[sweep_digit(&number, o->threads.count)] : 0;
    row->ranks = (int)o->ranks.values[sweep_digit(&number, o->ranks.count)];
    row->map = (ta_shard_kind)o->maps.values[sweep_digit(&number, o->maps.count)];
    int64_t kv_heads =
        o->kv_heads.count ? o->kv_heads.values[sweep_digit(&number, o->kv_heads.count)] : 0;
    row->query_heads = (int32_t)o->heads.values[sweep_digit(&number, o->heads.count)];
    row->kv_heads = kv_heads ? (int32_t)kv_heads : row->query_heads;
    row->dtype = sweep_dtype_values[o->dtypes.values[number]];
    row->tokens = sweep_tokens(&o->lengths, length, o->scaling, row->ranks);
    row->threads = sweep_threads(threads, machine, row->ranks);
    row->block = row->map == TA_SHARD_BLOCK_CYCLIC ? (int32_t)o->block : 0;
    if (row->algorithm == TA_ATTENTION_RING) { /* it has no columns: one row */
        row->columns = 0;
        return column == 0;
    }
    return !row->columns || row->ranks % row->columns == 0;
}

attention_row *attention_options_rows(const attention_options *options,
                                      const bench_machine *machine, int *count)
{
    const attention_options *o = options;
    int64_t rows = (int64_t)o->columns.count * o->algorithms.count * sweep_count(&o->lengths) *
                   (o->threads.count ? o->threads.count : 1) * o->ranks.count * o->maps.count *
                   (o->kv_heads.count ? o->kv_heads.count : 1) * o->heads.count * o->dtypes.count;
    attention_row *made = calloc((size_t)rows, sizeof *made);
    *count = 0;
    for (int64_t i = 0; made && i < rows; i++)
        *count += make_row(o, machine, i, &made[*count]);
    return made;
}

int attention_same_work(const attention_row *a, const attention_row *b)
{
    return a->tokens == b->tokens && a->ranks == b->ranks && a->threads == b->threads &&
           a->map == b->map && a->dtype == b->dtype && a->query_heads == b->query_heads &&
           a->kv_heads == b->kv_heads;
}

const char *attention_map_name(ta_shard_kind map)
{
    return map_words[map];
}

const char *attention_mask_name(ta_mask mask)
{
    return mask_words[mask];
}

const char *attention_algorithm_name(ta_attention_algorithm algorithm)
{
    return algorithm_words[algorithm];
}

void attention_options_help(FILE *file)
{
    attention_options unused;
    arg_flag flags[FLAG_COUNT + 1] = {0};
    make_flags(&unused, flags);
    fputs("treeattn-bench attention [FLAGS]: time attention over full sequences, forward and\n"
          "backward, on a grid or a ring of ranks. A LIST has commas: two rows for each\n"
          "combination. docs/benchmarks.md explains the columns.\n\n",
          file);
    sweep_print_flags(file, flags);
}
