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
const char *const options_map_words[] = {"contiguous", "cyclic", NULL};
const char *const options_placement_words[] = {"all", "root", "heads", NULL};
const char *const options_weights_words[] = {"exact", "rounded", NULL};
/* In the order of ta_algorithm; then the tree in reproducible mode. */
static const char *const algorithm_words[] = {"auto", "tree", "ring-kv", "ring-q", "repro", NULL};
enum { ALGORITHM_REPRO = TA_ALGORITHM_RING_Q + 1, REPRO_TILE = 64 };
const char *const options_layout_words[] = {"token", "head", NULL};
const char *const options_pages_words[] = {"small", "huge", "both", NULL};

#define AT(field) offsetof(decode_options, field)
static const arg_flag own_flags[] = {
    FLAG_CHOICES(0, "algo", algorithms, algorithm_words, "LIST",
                 "tree, ring-kv, ring-q, auto, repro: rows are compared with the first"),
    FLAG_INT(0, "reproducible", tile, 16, 1 << 20, "TOKENS",
             "a row for tree in reproducible mode too, --algo repro, with tiles of so many tokens; "
             "each rank's part begins with one",
             "64 with --algo repro"),
    FLAG_CHOICES(0, "kv-dtype", kv_dtypes, element_kv_words, "LIST",
                 "element types of K and V, a row each: f32, f16, bf16, or of 8 bits e4m3, e5m2, "
                 "e4m3fnuz, e5m2fnuz; query and output are of --dtype",
                 "--dtype"),
    FLAG_INT(0, "head-dim", head_dim, 8, 576, "N", "head dimension of Q and K, a multiple of 8"),
    FLAG_INT(0, "v-dim", v_dim, 8, 576, "N", "head dimension of V and the output, likewise",
             "--head-dim"),
    FLAG_SET(
        0, "latent", latent,
        "V is the first --v-dim elements of K, as in the latent cache of MLA: one memory for both"),
    FLAG_INT(0, "batch", batch, 1, 65536, "N", "sequences per step"),
    FLAG_INT(0, "query-tokens", query_tokens, 1, 1024, "N", "query tokens per sequence"),
    FLAG_SET(0, "ragged", ragged,
             "a mixed batch in one call: 1 sequence in 32 prefills --query-tokens, 1 in 11 "
             "verifies 5, the others decode 1"),
    FLAG_INT(0, "selected", selected, 1, INT32_MAX, "N",
             "selected positions: each query row sees N keys, spread over the sequence", "all"),
    FLAG_INT(0, "shared-prefix", shared_prefix, 1, INT32_MAX, "TOKENS",
             "the sequences of the batch share their first tokens, which are read once", "none"),
    FLAG_GROUP(group, "if --device is a kind of GPU, without a number"),
    FLAG_SWITCH(
        'G', "graph", graph,
        "capture the step and time its replays, unless N is 0: GPUs with --group ccl, or one rank"),
    FLAG_LINK(link),
    FLAG_TEXT(0, "cluster", cluster, "TEXT",
              "also predict each row, on this cluster: probe (this one, measured), h100:2x8, a "
              "file … (see treeattn-bench model)"),
    FLAG_CHOICE(0, "map", map, options_map_words, "KIND", "shard map: contiguous or cyclic"),
    FLAG_INT(0, "block", block, 1, INT32_MAX, "TOKENS", "block of the cyclic shard map", "64"),
    FLAG_CHOICE(0, "layout", layout, options_layout_words, "KIND",
                "outer axis of K and V in memory: token or head"),
    FLAG_CHOICE(
        0, "weights", weights, options_weights_words, "KIND",
        "weights of the softmax, exact or rounded to 16 bits where that saves a GPU products"),
    FLAG_INT(0, "page-tokens", page_tokens, 1, INT32_MAX, "TOKENS",
             "store K and V in shuffled pages of this size", "not paged"),
    FLAG_CHOICE(0, "pages", pages, options_pages_words, "KIND",
                "memory of K and V: small pages, as programs have that do not ask, huge ones, or "
                "rows of both"),
    FLAG_CSV(csv),
    FLAG_SET(0, "brief", brief, "fewer words around the table"),
    FLAG_WIDE(wide),
    FLAG_SET(0, "bars", bars, "a picture of the times below the table"),
    FLAG_CHOICE(0, "placement", out_placement, options_placement_words, "KIND",
                "who gets the output: all, root (rank 0), or each rank some heads"),
    FLAG_CHOICE(0, "query-placement", query_placement, options_placement_words, "KIND",
                "who has the query, likewise"),
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
