/* The flags of `treeattn-bench attention`: their table, defaults, what must agree between them, and
 * the rows they ask for. What they share with decode is in sweep.c. */
#include "options.h"

#include <stdlib.h>
#include <string.h>

#include <treeattn/attention.h>

#include "common/elements.h"

const char *const attention_map_words[] = {"contiguous", "striped", "zigzag", NULL};
const char *const attention_mask_words[] = {"causal", "full", NULL};
/* In the order of ta_attention_algorithm. */
const char *const attention_algorithm_words[] = {"auto", "grid", "ring", "overlap", NULL};

#define AT(field) offsetof(attention_options, field)
static const arg_flag own_flags[] = {
    FLAG_CHOICES(0, "algo", algorithms, attention_algorithm_words, "LIST",
                 "grid, overlap (the grid that moves while it computes), ring, or auto for what "
                 "--cluster says; rows are compared with the first"),
    FLAG_INTS(0, "columns", columns, 0, 1024, "LIST",
              "columns of the grid of ranks; 0: the plan chooses"),
    FLAG_TEXT(0, "cluster", cluster, "CLUSTER",
              "choose columns by predicted time, and print it too; CLUSTER as in model, or probe: "
              "these ranks, measured first"),
    FLAG_CHOICES(0, "map", maps, attention_map_words, "LIST",
                 "who holds what: contiguous, striped, zigzag"),
    FLAG_INT(0, "block", block, 1, INT32_MAX, "TOKENS", "block of striped"),
    FLAG_INT(0, "head-dim", head_dim, 8, 256, "N", "head dimension, a multiple of 8"),
    FLAG_CHOICE(0, "mask", mask, attention_mask_words, "KIND", "causal or full"),
    FLAG_GROUP(group, "if --device is a kind of GPU, without a number"),
    FLAG_CSV(csv),
    FLAG_WIDE(wide),
    {0},
};
static const arg_flag *const tables[] = {sweep_flags, own_flags, NULL};

static attention_options defaults(void)
{
    return (attention_options){.sweep = {.lengths = {0, 4096, 4},
                                         .iterations = 7,
                                         .warmup = 1,
                                         .check = 1,
                                         .ranks = sweep_one(1),
                                         .dtypes = sweep_one(0),
                                         .heads = sweep_one(2),
                                         .device = "host"},
                               .algorithms = sweep_one(TA_ATTENTION_GRID),
                               .columns = sweep_one(0),
                               .maps = sweep_one(TA_SHARD_ZIGZAG),
                               .head_dim = 128,
                               .block = 1};
}

static int check_agreement(const attention_options *o, char *error, size_t capacity)
{
    if (sweep_check(&o->sweep, error, capacity) != 0)
        return -1;
    for (int i = 0; !o->cluster && i < o->algorithms.count; i++)
        if (o->algorithms.values[i] == TA_ATTENTION_AUTO) {
            snprintf(error, capacity, "--algo is auto, but there is no --cluster to choose by");
            return -1;
        }
    return sweep_check_dim("head-dim", o->head_dim, error, capacity);
}

int attention_options_parse(int argc, char **argv, attention_options *options, char *error,
                            size_t capacity)
{
    *options = defaults();
    if (sweep_parse(&options->sweep, tables, argc, argv, error, capacity) != 0)
        return -1;
    return options->sweep.help ? 0 : check_agreement(options, error, capacity);
}

int attention_options_try_device(attention_options *options, char *error, size_t capacity)
{
    attention_options *o = options;
    return rank_devices_try(&o->devices, &o->sweep.device, o->sweep.simd, &o->group, error,
                            capacity);
}

rank_device_config attention_options_device(const attention_options *options, int threads)
{
    const attention_options *o = options;
    return (rank_device_config){o->sweep.device, o->devices.each, o->group == RANK_GROUP_CCL,
                                threads, o->sweep.simd};
}

/* Returns whether there is such a row. */
static int make_row(const attention_options *o, const bench_machine *machine, int64_t number,
                    attention_row *row)
{
    const sweep_options *sweep = &o->sweep;
    *row = (attention_row){.head_dim = (int32_t)o->head_dim,
                           .mask = (ta_mask)o->mask,
                           .iterations = (int)sweep->iterations,
                           .warmup = (int)sweep->warmup,
                           .gpu = o->devices.gpu};
    int64_t column = sweep_digit(&number, o->columns.count);
    row->columns = (int)o->columns.values[column];
    row->algorithm =
        (ta_attention_algorithm)o->algorithms.values[sweep_digit(&number, o->algorithms.count)];
    int64_t length = sweep_digit(&number, sweep_count(&sweep->lengths));
    int64_t threads = sweep->threads.count
                          ? sweep->threads.values[sweep_digit(&number, sweep->threads.count)]
                          : 0;
    row->ranks = (int)sweep->ranks.values[sweep_digit(&number, sweep->ranks.count)];
    row->map = (ta_shard_kind)o->maps.values[sweep_digit(&number, o->maps.count)];
    int64_t kv_heads = sweep->kv_heads.count
                           ? sweep->kv_heads.values[sweep_digit(&number, sweep->kv_heads.count)]
                           : 0;
    row->query_heads = (int32_t)sweep->heads.values[sweep_digit(&number, sweep->heads.count)];
    row->kv_heads = kv_heads ? (int32_t)kv_heads : row->query_heads;
    row->dtype = element_dtype(sweep->dtypes.values[number]);
    row->tokens = sweep_tokens(&sweep->lengths, length, sweep->scaling, row->ranks);
    row->threads = sweep_threads(threads, machine, row->ranks);
    row->device = attention_options_device(o, row->threads);
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
    const sweep_options *sweep = &o->sweep;
    int64_t rows = (int64_t)o->columns.count * o->algorithms.count * sweep_count(&sweep->lengths) *
                   (sweep->threads.count ? sweep->threads.count : 1) * sweep->ranks.count *
                   o->maps.count * (sweep->kv_heads.count ? sweep->kv_heads.count : 1) *
                   sweep->heads.count * sweep->dtypes.count;
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

void attention_options_help(FILE *file)
{
    attention_options usual = defaults();
    fputs("On a grid or a ring of ranks. A LIST has commas: two rows for each combination.\n"
          "docs/benchmarks.md explains the columns.\n\n",
          file);
    args_print(file, tables, &usual);
}
