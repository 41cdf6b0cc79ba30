/* The flags of `treeattn-bench decode`: their table, defaults, what must agree between them, and
 * the rows they ask for. main.c parses with it, decode.c runs the rows. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include "common/elements.h"
#include "common/exit_code.h"
#include "common/launch.h"
#include "common/sweep.h"

/* In the order of ta_shard_kind, ta_placement and ta_weights. */
static const char *const map_words[] = {"contiguous", "cyclic", NULL};
static const char *const placement_words[] = {"all", "root", "heads", NULL};
static const char *const weights_words[] = {"exact", "rounded", NULL};
/* In the order of ta_algorithm; then the tree in reproducible mode. */
static const char *const algorithm_words[] = {"auto", "tree", "ring-kv", "ring-q", "repro", NULL};
enum { ALGORITHM_REPRO = TA_ALGORITHM_RING_Q + 1, REPRO_TILE = 64 };
static const char *const layout_words[] = {"token", "head", NULL};
static const char *const pages_words[] = {"small", "huge", "both", NULL};

#define AT(field) offsetof(decode_options, field)
static const arg_flag own_flags[] = {
    {0, "algo", ARG_CHOICES, AT(algorithms), 0, 0, algorithm_words, "LIST",
     "tree, ring-kv, ring-q, auto, repro: rows are compared with the first", NULL},
    {0, "reproducible", ARG_INT, AT(tile), 16, 1 << 20, NULL, "TOKENS",
     "a row for tree in reproducible mode too, --algo repro, with tiles of so many tokens; each "
     "rank's part begins with one",
     "64 with --algo repro"},
    {0, "kv-dtype", ARG_CHOICES, AT(kv_dtypes), 0, 0, element_kv_words, "LIST",
     "element types of K and V, a row each: f32, f16, bf16, or of 8 bits e4m3, e5m2, e4m3fnuz, "
     "e5m2fnuz; query and output are of --dtype",
     "--dtype"},
    {0, "head-dim", ARG_INT, AT(head_dim), 8, 576, NULL, "N",
     "head dimension of Q and K, a multiple of 8", NULL},
    {0, "v-dim", ARG_INT, AT(v_dim), 8, 576, NULL, "N",
     "head dimension of V and the output, likewise", "--head-dim"},
    {0, "latent", ARG_SET, AT(latent), 0, 0, NULL, "",
     "V is the first --v-dim elements of K, as in the latent cache of MLA: one memory for both",
     NULL},
    {0, "batch", ARG_INT, AT(batch), 1, 65536, NULL, "N", "sequences per step", NULL},
    {0, "query-tokens", ARG_INT, AT(query_tokens), 1, 1024, NULL, "N", "query tokens per sequence",
     NULL},
    {0, "ragged", ARG_SET, AT(ragged), 0, 0, NULL, "",
     "a mixed batch in one call: 1 sequence in 32 prefills --query-tokens, 1 in 11 verifies 5, the "
     "others decode 1",
     NULL},
    {0, "selected", ARG_INT, AT(selected), 1, INT32_MAX, NULL, "N",
     "selected positions: each query row sees N keys, spread over the sequence", "all"},
    {0, "shared-prefix", ARG_INT, AT(shared_prefix), 1, INT32_MAX, NULL, "TOKENS",
     "the sequences of the batch share their first tokens, which are read once", "none"},
    {0, "group", ARG_CHOICE, AT(group), 0, 0, rank_group_words, "KIND",
     "what connects the ranks: host (threads, or MPI under mpirun), ccl for NCCL or RCCL with a "
     "GPU "
     "of --device for each rank, or auto: ccl if --device is a kind of GPU, without a number",
     NULL},
    {'G', "graph", ARG_SWITCH, AT(graph), 0, 0, NULL, "[N]",
     "capture the step and time its replays, unless N is 0: GPUs with --group ccl, or one rank",
     NULL},
    {0, "link", ARG_TEXT, AT(link), 0, 0, NULL, "DELAY,RATE",
     "put every rank on a node of its own, joined by emulated links, such as 50us,1.25GB/s", NULL},
    {0, "cluster", ARG_TEXT, AT(cluster), 0, 0, NULL, "TEXT",
     "also predict each row, on this cluster: probe (this one, measured), h100:2x8, a file … (see "
     "treeattn-bench model)",
     NULL},
    {0, "map", ARG_CHOICE, AT(map), 0, 0, map_words, "KIND", "shard map: contiguous or cyclic",
     NULL},
    {0, "block", ARG_INT, AT(block), 1, INT32_MAX, NULL, "TOKENS", "block of the cyclic shard map",
     "64"},
    {0, "layout", ARG_CHOICE, AT(layout), 0, 0, layout_words, "KIND",
     "outer axis of K and V in memory: token or head", NULL},
    {0, "weights", ARG_CHOICE, AT(weights), 0, 0, weights_words, "KIND",
     "weights of the softmax, exact or rounded to 16 bits where that saves a GPU products", NULL},
    {0, "page-tokens", ARG_INT, AT(page_tokens), 1, INT32_MAX, NULL, "TOKENS",
     "store K and V in shuffled pages of this size", "not paged"},
    {0, "pages", ARG_CHOICE, AT(pages), 0, 0, pages_words, "KIND",
     "memory of K and V: small pages, as programs have that do not ask, huge ones, or rows of both",
     NULL},
    {0, "csv", ARG_TEXT, AT(csv), 0, 0, NULL, "FILE",
     "also write the rows there, with commas between their columns", NULL},
    {0, "brief", ARG_SET, AT(brief), 0, 0, NULL, "", "fewer words around the table", NULL},
    {0, "wide", ARG_SET, AT(wide), 0, 0, NULL, "", "every column; without it 100 characters a line",
     NULL},
    {0, "bars", ARG_SET, AT(bars), 0, 0, NULL, "", "a picture of the times below the table", NULL},
    {0, "placement", ARG_CHOICE, AT(out_placement), 0, 0, placement_words, "KIND",
     "who gets the output: all, root (rank 0), or each rank some heads", NULL},
    {0, "query-placement", ARG_CHOICE, AT(query_placement), 0, 0, placement_words, "KIND",
     "who has the query, likewise", NULL},
    {0},
};
static const arg_flag *const tables[] = {sweep_flags, own_flags, NULL};

static decode_options defaults(void)
{
    return (decode_options){
        .sweep = {.lengths = {0, 64 * 1024, 4},
                  .warmup = 3,
                  .check = 1,
                  .ranks = {4, {1, 2, 4, 8}},
                  .dtypes = sweep_one(2),
                  .heads = sweep_one(32),
                  .kv_heads = sweep_one(8),
                  .device = "host"},
        .algorithms = sweep_one(TA_ALGORITHM_TREE),
        .head_dim = 128,
        .batch = 1,
        .query_tokens = 1,
    };
}

/* What no flag can check alone. */
static int check_agreement(const decode_options *o, char *error, size_t capacity)
{
    if (sweep_check(&o->sweep, error, capacity) != 0 ||
        sweep_check_dim("head-dim", o->head_dim, error, capacity) != 0 ||
        sweep_check_dim("v-dim", o->v_dim, error, capacity) != 0)
        return -1;
    if (o->latent && o->v_dim > o->head_dim) {
        snprintf(error, capacity,
                 "--v-dim is %lld, but with --latent it must be at most --head-dim, %lld",
                 (long long)o->v_dim, (long long)o->head_dim);
        return -1;
    }
    if (o->query_tokens > o->sweep.lengths.begin) {
        snprintf(error, capacity,
                 "--query-tokens is %lld, but must be at most --begin, %lld tokens",
                 (long long)o->query_tokens, (long long)o->sweep.lengths.begin);
        return -1;
    }
    if (o->tile && o->block % o->tile) {
        snprintf(error, capacity, "--block is %lld, but must be a multiple of --reproducible %lld",
                 (long long)o->block, (long long)o->tile);
        return -1;
    }
    if (o->link && launch.mpi) {
        snprintf(
            error, capacity,
            "--link emulates nodes with threads of one process: start it once, without mpirun");
        return -1;
    }
    if (o->selected > o->sweep.lengths.begin || o->shared_prefix > o->sweep.lengths.begin) {
        snprintf(error, capacity,
                 "--selected is %lld and --shared-prefix %lld, but both must be at most --begin, "
                 "%lld tokens",
                 (long long)o->selected, (long long)o->shared_prefix,
                 (long long)o->sweep.lengths.begin);
        return -1;
    }
    if (o->tile && o->shared_prefix % o->tile) {
        snprintf(error, capacity,
                 "--shared-prefix is %lld, but must be a multiple of --reproducible %lld",
                 (long long)o->shared_prefix, (long long)o->tile);
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
    *options = defaults();
    if (sweep_parse(&options->sweep, tables, argc, argv, error, capacity) != 0 ||
        fill_tile(options, error, capacity) != 0)
        return -1;
    if (options->v_dim == 0)
        options->v_dim = options->head_dim;
    if (options->map == TA_SHARD_BLOCK_CYCLIC && options->block == 0)
        options->block = 64;
    if (options->link && links_parse(options->link, &options->speed, error, capacity) != 0)
        return -1;
    return options->sweep.help ? 0 : check_agreement(options, error, capacity);
}

int options_try_device(decode_options *options, char *error, size_t capacity)
{
    decode_options *o = options;
    int code =
        rank_devices_try(&o->devices, &o->sweep.device, o->sweep.simd, &o->group, error, capacity);
    if (code == EXIT_OK && o->link && o->devices.gpu) {
        snprintf(error, capacity, "--link is for --device host and --group host, not for GPUs");
        return EXIT_USAGE;
    }
    return code;
}

static bench_case make_case(const decode_options *options, const bench_machine *machine,
                            int64_t row)
{
    const sweep_options *o = &options->sweep;
    const arg_list *algorithms = &options->algorithms;
    bench_case c = {0};
    c.algorithm = (ta_algorithm)algorithms->values[sweep_digit(&row, algorithms->count)];
    if ((int)c.algorithm == ALGORITHM_REPRO) {
        c.algorithm = TA_ALGORITHM_TREE;
        c.tile = (int32_t)options->tile;
    }
    int64_t length = sweep_digit(&row, sweep_count(&o->lengths));
    int64_t threads = o->threads.count ? o->threads.values[sweep_digit(&row, o->threads.count)] : 0;
    c.ranks = (int)o->ranks.values[sweep_digit(&row, o->ranks.count)];
    c.tokens = sweep_tokens(&o->lengths, length, o->scaling, c.ranks);
    c.kv_heads = (int32_t)o->kv_heads.values[sweep_digit(&row, o->kv_heads.count)];
    c.query_heads = (int32_t)o->heads.values[sweep_digit(&row, o->heads.count)];
    c.dtype = element_dtype(o->dtypes.values[sweep_digit(&row, o->dtypes.count)]);
    c.kv_dtype = c.dtype;
    if (options->kv_dtypes.count)
        c.kv_dtype =
            element_dtype(options->kv_dtypes.values[sweep_digit(&row, options->kv_dtypes.count)]);
    c.pages = options->pages == OPTIONS_BOTH_PAGES ? (int)sweep_digit(&row, PAGES_KINDS)
                                                   : (int)options->pages;
    c.threads = sweep_threads(threads, machine, c.ranks);
    return c;
}

bench_case *options_cases(const decode_options *options, const bench_machine *machine, int *count)
{
    const sweep_options *o = &options->sweep;
    int64_t thread_counts = o->threads.count ? o->threads.count : 1;
    int64_t rows = options->algorithms.count * sweep_count(&o->lengths) * thread_counts *
                   o->ranks.count * o->kv_heads.count * o->heads.count * o->dtypes.count *
                   (options->kv_dtypes.count ? options->kv_dtypes.count : 1) *
                   (options->pages == OPTIONS_BOTH_PAGES ? PAGES_KINDS : 1);
    bench_case *cases = calloc((size_t)rows, sizeof *cases);
    if (!cases)
        return NULL;
    for (int64_t row = 0; row < rows; row++)
        cases[row] = make_case(options, machine, row);
    *count = (int)rows;
    return cases;
}

int64_t options_query_tokens(const decode_options *options, int64_t sequence)
{
    int64_t prefills = options->batch < 32 ? 1 : options->batch / 32;
    int64_t verifies = options->batch / 11;
    if (!options->ragged || sequence < prefills)
        return options->query_tokens;
    if (sequence < prefills + verifies)
        return options->query_tokens < 5 ? options->query_tokens : 5;
    return 1;
}

int64_t options_first_row(const decode_options *options, int64_t sequence)
{
    int64_t row = 0;
    for (int64_t b = 0; b < sequence; b++)
        row += options_query_tokens(options, b);
    return row;
}

int64_t options_rows(const decode_options *options)
{
    return options_first_row(options, options->batch);
}

int32_t options_selected(const decode_options *options, int32_t tokens, int64_t token_row,
                         int64_t i)
{
    int64_t first = tokens * i / options->selected, end = tokens * (i + 1) / options->selected;
    uint64_t mixed =
        ((uint64_t)token_row * 0x9e3779b97f4a7c15u + (uint64_t)i) * 0xbf58476d1ce4e5b9u;
    return (int32_t)(first + (int64_t)((mixed >> 40) % (uint64_t)(end - first)));
}

int options_sees(const decode_options *options, int32_t tokens, int64_t token_row, int32_t position)
{
    if (!options->selected)
        return 1;
    int64_t part = position * options->selected / tokens; /* or the one after it */
    for (int64_t i = part; i <= part + 1 && i < options->selected; i++)
        if (options_selected(options, tokens, token_row, i) == position)
            return 1;
    return 0;
}

int options_same_work(const bench_case *a, const bench_case *b)
{
    return a->tokens == b->tokens && a->ranks == b->ranks && a->threads == b->threads &&
           a->pages == b->pages && a->dtype == b->dtype && a->kv_dtype == b->kv_dtype &&
           a->query_heads == b->query_heads && a->kv_heads == b->kv_heads;
}

const char *options_algorithm_name(const bench_case *row)
{
    return algorithm_words[row->tile ? ALGORITHM_REPRO : (int)row->algorithm];
}

const char *options_group_name(const decode_options *options)
{
    return rank_group_words[options->group];
}

const char *options_scaling_name(const decode_options *options)
{
    return sweep_scaling_words[options->sweep.scaling];
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

const char *options_pages_name(int64_t pages)
{
    return pages_words[pages];
}

const char *options_weights_name(const decode_options *options)
{
    return weights_words[options->weights];
}

void options_help(FILE *file)
{
    decode_options usual = defaults();
    fputs(
        "Defaults in brackets; --flag value or --flag=value. k is 1024, M is 1024² tokens. A LIST\n"
        "has commas: there is a row for each combination. docs/benchmarks.md explains the "
        "columns.\n"
        "\n",
        file);
    args_print(file, tables, &usual);
}
