/* The flags of `treeattn-bench decode`: their table, defaults, what must agree between them, and
 * the rows they ask for. main.c parses with it, decode.c runs the rows. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "common/sweep.h"

/* In the order of ta_shard_kind and ta_placement. */
static const char *const map_words[] = {"contiguous", "cyclic", NULL};
static const char *const placement_words[] = {"all", "root", "heads", NULL};
/* In the order of ta_algorithm; then the tree in reproducible mode. */
static const char *const algorithm_words[] = {"auto", "tree", "ring-kv", "ring-q", "repro", NULL};
enum { ALGORITHM_REPRO = TA_ALGORITHM_RING_Q + 1, REPRO_TILE = 64 };
static const char *const layout_words[] = {"token", "head", NULL};
static const char *const group_words[] = {"auto", "host", "ccl", NULL};

enum { FLAG_COUNT = 31 };

static void make_flags(decode_options *o, arg_flag flags[FLAG_COUNT])
{
    const int64_t most = INT32_MAX;
    const arg_flag table[FLAG_COUNT] = {
        {'b', "begin", ARG_INT, &o->begin, 1, most, NULL, "TOKENS",
         "shortest sequence, over all ranks (4k; with -b alone: this one length)"},
        {'e', "end", ARG_INT, &o->end, 1, most, NULL, "TOKENS", "longest sequence (64k)"},
        {'f', "factor", ARG_INT, &o->factor, 2, 1 << 20, NULL, "N",
         "from each length to the next (4)"},
        {'n', "iterations", ARG_INT, &o->iterations, 1, 1000000, NULL, "N",
         "timed steps per row (what fits into 2 s, from 3 to 20)"},
        {'w', "warmup", ARG_INT, &o->warmup, 0, 1000000, NULL, "N",
         "untimed steps before them (3)"},
        {'c', "check", ARG_INT, &o->check, 0, 1, NULL, "0|1",
         "check the results in double precision (1)"},
        {0, "algo", ARG_CHOICES, &o->algorithms, 0, 0, algorithm_words, "LIST",
         "tree, ring-kv, ring-q, auto, repro: rows are compared with the first (tree)"},
        {0, "reproducible", ARG_INT, &o->tile, 16, 1 << 20, NULL, "TOKENS",
         "a row for tree in reproducible mode too, --algo repro, with tiles of\n"
         "                           so many tokens, at which ranks begin (64)"},
        {0, "scaling", ARG_CHOICE, &o->scaling, 0, 0, sweep_scaling_words, "KIND",
         "lengths are of the sequence (strong) or of each rank's part (weak) (strong)"},
        {0, "ranks", ARG_INTS, &o->ranks, 1, 1024, NULL, "LIST",
         "ranks that share the cache, as threads of this process (1,2,4,8);\n"
         "                           under mpirun each process is one of them"},
        {0, "threads", ARG_INTS, &o->threads, 1, 1024, NULL, "LIST",
         "threads of each rank (the CPUs divided by the ranks, at least 1)"},
        {0, "heads", ARG_INTS, &o->heads, 1, 65536, NULL, "LIST", "query heads (32)"},
        {0, "kv-heads", ARG_INTS, &o->kv_heads, 1, 65536, NULL, "LIST", "KV heads (8)"},
        {0, "head-dim", ARG_INT, &o->head_dim, 8, 576, NULL, "N",
         "head dimension of Q and K, a multiple of 8 (128)"},
        {0, "v-dim", ARG_INT, &o->v_dim, 8, 576, NULL, "N",
         "head dimension of V and the output, likewise (--head-dim)"},
        {0, "dtype", ARG_CHOICES, &o->dtypes, 0, 0, sweep_dtype_words, "LIST",
         "f32, f16, bf16: of K, V, the query and the output (bf16)"},
        {0, "batch", ARG_INT, &o->batch, 1, 65536, NULL, "N", "sequences per step (1)"},
        {0, "query-tokens", ARG_INT, &o->query_tokens, 1, 1024, NULL, "N",
         "query tokens per sequence (1)"},
        {0, "device", ARG_TEXT, &o->device, 0, 0, NULL, "NAME",
         "where it runs: host, or auto for the best there is (host)"},
        {0, "group", ARG_CHOICE, &o->group, 0, 0, group_words, "KIND",
         "what connects the ranks: host (threads, or MPI under mpirun), or ccl for\n"
         "                           NCCL or RCCL with a GPU of --device for each rank (auto: ccl\n"
         "                           if --device is a kind of GPU, without a number)"},
        {'G', "graph", ARG_HELP, &o->graph, 0, 0, NULL, "",
         "capture the step and time its replays: GPUs with --group ccl, or one rank"},
        {0, "cluster", ARG_TEXT, &o->cluster, 0, 0, NULL, "TEXT",
         "also predict each row, on this cluster: probe (this one, measured), h100:2x8,\n"
         "                           a file … (see treeattn-bench model)"},
        {0, "simd", ARG_TEXT, &o->simd, 0, 0, NULL, "LEVEL",
         "host: scalar, avx2, avx512, avx512bf16 (the best this CPU has)"},
        {0, "map", ARG_CHOICE, &o->map, 0, 0, map_words, "KIND",
         "shard map: contiguous or cyclic (contiguous)"},
        {0, "block", ARG_INT, &o->block, 1, most, NULL, "TOKENS",
         "block of the cyclic shard map (64)"},
        {0, "layout", ARG_CHOICE, &o->layout, 0, 0, layout_words, "KIND",
         "outer axis of K and V in memory: token or head (token)"},
        {0, "page-tokens", ARG_INT, &o->page_tokens, 1, most, NULL, "TOKENS",
         "store K and V in shuffled pages of this size (not paged)"},
        {0, "placement", ARG_CHOICE, &o->out_placement, 0, 0, placement_words, "KIND",
         "who gets the output: all, root (rank 0), or each rank some heads (all)"},
        {0, "query-placement", ARG_CHOICE, &o->query_placement, 0, 0, placement_words, "KIND",
         "who has the query, likewise (all)"},
        {0, "json", ARG_TEXT, &o->json, 0, 0, NULL, "FILE",
         "also write every sample and column to this file"},
        {'h', "help", ARG_HELP, &o->help, 0, 0, NULL, "", "print this"},
    };
    memcpy(flags, table, sizeof table);
}

static void set_defaults(decode_options *o)
{
    *o = (decode_options){
        .factor = 4,
        .warmup = 3,
        .check = 1,
        .algorithms = sweep_one(TA_ALGORITHM_TREE),
        .ranks = {4, {1, 2, 4, 8}},
        .dtypes = sweep_one(2),
        .heads = sweep_one(32),
        .kv_heads = sweep_one(8),
        .head_dim = 128,
        .batch = 1,
        .query_tokens = 1,
        .device = "host",
    };
}

static void fill_lengths(decode_options *o)
{
    if (o->end == 0)
        o->end = o->begin ? o->begin : 64 * 1024;
    if (o->begin == 0)
        o->begin = o->end < 4096 ? o->end : 4096;
}

/* What no flag can check alone. */
static int check_agreement(const decode_options *o, char *error, size_t capacity)
{
    sweep_lengths lengths = {o->begin, o->end, o->factor};
    if (sweep_check_heads(&o->heads, &o->kv_heads, error, capacity) != 0 ||
        sweep_check_lengths(&lengths, o->scaling, &o->ranks, error, capacity) != 0)
        return -1;
    if (o->head_dim % 8 != 0 || o->v_dim % 8 != 0) {
        int is_k = o->head_dim % 8 != 0;
        snprintf(error, capacity, "--%s is %lld, but must be a multiple of 8",
                 is_k ? "head-dim" : "v-dim", (long long)(is_k ? o->head_dim : o->v_dim));
        return -1;
    }
    if (o->query_tokens > o->begin) {
        snprintf(error, capacity,
                 "--query-tokens is %lld, but must be at most --begin, %lld tokens",
                 (long long)o->query_tokens, (long long)o->begin);
        return -1;
    }
    if (o->tile && o->block % o->tile) {
        snprintf(error, capacity, "--block is %lld, but must be a multiple of --reproducible %lld",
                 (long long)o->block, (long long)o->tile);
        return -1;
    }
    if (o->block && o->map != TA_SHARD_BLOCK_CYCLIC) {
        snprintf(error, capacity, "--block is %lld, but only --map cyclic has blocks",
                 (long long)o->block);
        return -1;
    }
    return 0;
}

/* A tile asks for rows in reproducible mode, and those need a tile. */
static int fill_tile(decode_options *o, char *error, size_t capacity)
{
    arg_list *list = &o->algorithms;
    int has_rows = 0;
    for (int i = 0; i < list->count; i++)
        has_rows |= list->values[i] == ALGORITHM_REPRO;
    if (has_rows && !o->tile)
        o->tile = REPRO_TILE;
    if (has_rows || !o->tile)
        return 0;
    if (list->count == ARG_LIST_MAX) {
        snprintf(error, capacity, "--algo has %d values: leave one out for --reproducible",
                 list->count);
        return -1;
    }
    list->values[list->count++] = ALGORITHM_REPRO;
    return 0;
}

int options_parse(int argc, char **argv, decode_options *options, char *error, size_t capacity)
{
    arg_flag flags[FLAG_COUNT + 1] = {0};
    decode_options defaults;
    set_defaults(options);
    make_flags(options, flags);
    if (args_parse(flags, argc, argv, error, capacity) != 0)
        return -1;
    fill_lengths(options);
    if (fill_tile(options, error, capacity) != 0)
        return -1;
    set_defaults(&defaults);
    if (sweep_use_processes(&options->ranks, &defaults.ranks, error, capacity) != 0)
        return -1;
    if (options->v_dim == 0)
        options->v_dim = options->head_dim;
    if (options->map == TA_SHARD_BLOCK_CYCLIC && options->block == 0)
        options->block = 64;
    return options->help ? 0 : check_agreement(options, error, capacity);
}

int options_set_device(decode_options *options, const char *name, char *error, size_t capacity)
{
    decode_options *o = options;
    o->gpu = strcmp(name, "host") != 0;
    if (o->gpu && strcmp(o->device, "auto") == 0) {
        snprintf(o->device_name, sizeof o->device_name, "%.*s", (int)strcspn(name, ":"), name);
        o->device = o->device_name;
    }
    int each = o->gpu && !strchr(o->device, ':');
    if (o->group == GROUP_CCL && !each) {
        snprintf(error, capacity,
                 "--group is ccl, but --device is %s: must be a kind of GPU, such as cuda, rocm or "
                 "auto, of which each rank takes one",
                 o->device);
        return -1;
    }
    if (o->group == GROUP_AUTO)
        o->group = each ? GROUP_CCL : GROUP_HOST;
    return 0;
}

static bench_case make_case(const decode_options *o, const bench_machine *machine, int64_t row)
{
    bench_case c = {0};
    sweep_lengths lengths = {o->begin, o->end, o->factor};
    c.algorithm = (ta_algorithm)o->algorithms.values[sweep_digit(&row, o->algorithms.count)];
    if ((int)c.algorithm == ALGORITHM_REPRO) {
        c.algorithm = TA_ALGORITHM_TREE;
        c.tile = (int32_t)o->tile;
    }
    int64_t length = sweep_digit(&row, sweep_count(&lengths));
    int64_t threads = o->threads.count ? o->threads.values[sweep_digit(&row, o->threads.count)] : 0;
    c.ranks = (int)o->ranks.values[sweep_digit(&row, o->ranks.count)];
    c.tokens = sweep_tokens(&lengths, length, o->scaling, c.ranks);
    c.kv_heads = (int32_t)o->kv_heads.values[sweep_digit(&row, o->kv_heads.count)];
    c.query_heads = (int32_t)o->heads.values[sweep_digit(&row, o->heads.count)];
    c.dtype = sweep_dtype_values[o->dtypes.values[sweep_digit(&row, o->dtypes.count)]];
    c.threads = sweep_threads(threads, machine, c.ranks);
    return c;
}

bench_case *options_cases(const decode_options *options, const bench_machine *machine, int *count)
{
    sweep_lengths lengths = {options->begin, options->end, options->factor};
    int64_t thread_counts = options->threads.count ? options->threads.count : 1;
    int64_t rows = options->algorithms.count * sweep_count(&lengths) * thread_counts *
                   options->ranks.count * options->kv_heads.count * options->heads.count *
                   options->dtypes.count;
    bench_case *cases = calloc((size_t)rows, sizeof *cases);
    if (!cases)
        return NULL;
    for (int64_t row = 0; row < rows; row++)
        cases[row] = make_case(options, machine, row);
    *count = (int)rows;
    return cases;
}

int options_same_work(const bench_case *a, const bench_case *b)
{
    return a->tokens == b->tokens && a->ranks == b->ranks && a->threads == b->threads &&
           a->dtype == b->dtype && a->query_heads == b->query_heads && a->kv_heads == b->kv_heads;
}

const char *options_algorithm_name(const bench_case *row)
{
    return algorithm_words[row->tile ? ALGORITHM_REPRO : (int)row->algorithm];
}

const char *options_group_name(const decode_options *options)
{
    return group_words[options->group];
}

const char *options_scaling_name(const decode_options *options)
{
    return sweep_scaling_words[options->scaling];
}

const char *options_map_name(const decode_options *options)
{
    return map_words[options->map];
}

const char *options_layout_name(const decode_options *options)
{
    return layout_words[options->layout];
}

const char *options_placement_name(int64_t placement)
{
    return placement_words[placement];
}

void options_help(FILE *file)
{
    decode_options unused;
    arg_flag flags[FLAG_COUNT + 1] = {0};
    make_flags(&unused, flags);
    sweep_print_flags(file, flags);
}
