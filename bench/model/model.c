/* `treeattn-bench model CLUSTER`: what a decode step would take, move and need on a cluster, tree
 * against both rings and one device, for a range of sequence lengths and rank counts. All numbers
 * are ta_predict()'s; docs/model.md says how they come about and what they are worth. */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "attention.h"
#include "candidate.h"
#include "common/args.h"
#include "common/bars.h"
#include "common/elements.h"
#include "common/fail.h"
#include "common/json.h"
#include "common/run_files.h"
#include "common/sweep.h"
#include "kinds.h"

static const char *const placement_words[] = {"all", "root", "heads", NULL};
static const char *const work_words[] = {"decode", "attention", NULL};
static const char *const mask_words[] = {"causal", "full", NULL};

enum { WORK_DECODE, WORK_ATTENTION };

typedef struct model_options {
    const char *cluster;
    arg_list tokens, ranks;
    int64_t heads, kv_heads, head_dim, batch, dtype, placement, work, mask, kinds, wide, bars, help;
    const char *json;
} model_options;

#define AT(field) offsetof(model_options, field)
static const arg_flag flags[] = {
    FLAG_CHOICE(0, "work", work, work_words, "WORD",
                "decode steps, or attention over full sequences"),
    FLAG_INTS(0, "tokens", tokens, 1, INT32_MAX, "LIST", "sequence lengths over all ranks",
              "80000, doubled six times; attention: 8k to 128k"),
    FLAG_INTS(0, "ranks", ranks, 1, 1 << 20, "LIST", "ranks that share the cache",
              "all of the cluster's"),
    FLAG_INT(0, "heads", heads, 1, 65536, "N", "query heads"),
    FLAG_INT(0, "kv-heads", kv_heads, 1, 65536, "N", "KV heads", "--heads"),
    FLAG_INT(0, "head-dim", head_dim, 8, 576, "N", "head dimension"),
    FLAG_INT(0, "batch", batch, 1, 1 << 20, "N", "sequences per step"),
    FLAG_CHOICE(0, "dtype", dtype, element_words, "TYPE", "of K and V"),
    FLAG_CHOICE(0, "placement", placement, placement_words, "WORD",
                "decode: of the output: all, root, heads"),
    FLAG_CHOICE(0, "mask", mask, mask_words, "KIND", "attention: causal or full"),
    FLAG_SET(0, "kinds", kinds, "decode: every kind of exchange in place of rings"),
    FLAG_SET(0, "wide", wide, "decode: also what is sent and held"),
    FLAG_SET(0, "bars", bars, "decode: a picture below the table"),
    FLAG_TEXT(
        'J', "json", json, "FILE",
        "write every candidate there; -: to standard output, and the table to standard error"),
    FLAG_HELP(help),
    {0},
};
static const arg_flag *const tables[] = {flags, NULL};
static const model_options defaults = {.heads = 16, .head_dim = 128, .batch = 1, .dtype = 2};

void model_help(FILE *file)
{
    fputs(
        "Decode steps, or attention over full sequences. CLUSTER is a preset with its size\n"
        "(h100:16x8, h200:1x8, b200:2x8, a100:16x4, mi300x:1x8, mi325x:1x8, mi355x:1x8, l40s:1x8,\n"
        "rtx4090:1x2, local:1x4) or a file; 'paper' prints the tables behind the figures of the\n"
        "Tree Attention paper, or of the Attention2D paper.\n\n",
        file);
    args_print(file, tables, &defaults);
}

static ta_plan_config plan_config(const model_options *o, int64_t tokens, int ranks)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = (int32_t)o->batch;
    config.query_heads = (int32_t)o->heads;
    config.kv_heads = (int32_t)o->kv_heads;
    config.k_dim = (int32_t)o->head_dim;
    config.kv_dtype = element_dtype(o->dtype);
    config.max_tokens = (int32_t)((tokens + ranks - 1) / ranks);
    config.out_placement = (ta_placement)o->placement;
    return config;
}

enum { MAX_CANDIDATES = 16 };

/* All candidates of one row. */
typedef struct model_row {
    int64_t tokens;
    int ranks, count;
    ta_prediction candidates[MAX_CANDIDATES];
    const ta_prediction *tree, *ring_kv, *ring_q, *one_device; /* NULL: not possible */
    const char *best; /* that fits: "tree", "ring-kv", "ring-q", "one" device, or "-" */
} model_row;

/* The fastest way that fits. */
static void find_best(model_row *row)
{
    const struct {
        const ta_prediction *p;
        const char *name;
    } ways[] = {{row->tree, "tree"},
                {row->ring_kv, "ring-kv"},
                {row->ring_q, "ring-q"},
                {row->one_device, "one"}};
    const ta_prediction *best = NULL;
    row->best = "-";
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (ways[i].p && ways[i].p->fits &&
            (!best || ways[i].p->step.seconds < best->step.seconds)) {
            best = ways[i].p;
            row->best = ways[i].name;
        }
}

static ta_status predict_row(const model_options *o, const ta_cluster *cluster, model_row *row)
{
    ta_plan_config config = plan_config(o, row->tokens, row->ranks);
    for (int i = 0; i < MAX_CANDIDATES; i++)
        row->candidates[i] = (ta_prediction)TA_PREDICTION_INIT;
    ta_status status =
        ta_predict_all(cluster, &config, row->ranks, row->candidates, MAX_CANDIDATES, &row->count);
    if (status != TA_OK)
        return status;
    for (int i = 0; i < row->count; i++) {
        ta_prediction *p = &row->candidates[i];
        if (!p->possible)
            continue;
        if (p->algorithm == TA_ALGORITHM_TREE) {
            if (!row->tree || p->step.seconds < row->tree->step.seconds)
                row->tree = p;
        } else if (p->algorithm == TA_ALGORITHM_RING_KV) {
            row->ring_kv = p;
        } else if (p->algorithm == TA_ALGORITHM_RING_Q) {
            row->ring_q = p;
        } else {
            row->one_device = p;
        }
    }
    find_best(row);
    return TA_OK;
}

static void print_header(const model_options *o, const char *name)
{
    printf(
        "# treeattn-bench model: %s, batch %lld, %lld/%lld heads x %lld, %s, output on %s\n"
        "# predicted, not measured; times of one attention layer's decode step in microseconds;\n"
        "# x: ring pass-KV over tree; one: all tokens on one device; best: the fastest that fits;\n"
        "%s",
        name, (long long)o->batch, (long long)o->heads, (long long)o->kv_heads,
        (long long)o->head_dim, element_name(element_dtype(o->dtype)),
        placement_words[o->placement],
        o->wide ? "# sent: by the busiest rank in a step; memory: of the fullest rank, ! if it has "
                  "less\n"
                : "# --wide has what is sent and held\n");
    printf("#%9s %6s %-10s %10s %10s %11s %11s %7s %11s", "tokens", "ranks", "exchange", "tree",
           "attend", "ring KV", "ring Q", "x", "one");
    if (o->wide)
        printf(" %9s %10s %9s %9s", "tree sent", "KV sent", "tree mem", "KV mem");
    printf(" best\n#%9s %6s %-10s %10s %10s %11s %11s %7s %11s", "", "", "", "us", "us", "us", "us",
           "", "us");
    if (o->wide)
        printf(" %9s %10s %9s %9s", "KB", "MB", "GB", "GB");
    printf("\n");
}

static void print_us(int width, const ta_prediction *p)
{
    if (!p)
        printf(" %*s", width, "-");
    else
        printf(" %*.1f", width, p->step.seconds * 1e6);
}

static void print_memory(const ta_prediction *p)
{
    if (!p)
        printf(" %9s", "-");
    else
        printf(" %8.2f%s", p->memory_bytes * 1e-9, p->fits ? " " : "!");
}

static void print_costs(const model_row *row)
{
    printf(" %9.1f", (double)row->tree->step.bytes_sent * 1e-3);
    if (row->ring_kv)
        printf(" %10.2f", (double)row->ring_kv->step.bytes_sent * 1e-6);
    else
        printf(" %10s", "-");
    print_memory(row->tree);
    print_memory(row->ring_kv);
}

static void print_row(const model_options *o, const model_row *row)
{
    printf("%10lld %6d %-10s %10.1f %10.1f", (long long)row->tokens, row->ranks,
           row->ranks > 1 ? ta_exchange_name(row->tree->exchange) : "-",
           row->tree->step.seconds * 1e6, row->tree->step.attend_seconds * 1e6);
    print_us(11, row->ring_kv);
    print_us(11, row->ring_q);
    if (row->ring_kv)
        printf(" %7.1f", row->ring_kv->step.seconds / row->tree->step.seconds);
    else
        printf(" %7s", "-");
    print_us(11, row->one_device && row->one_device->fits ? row->one_device : NULL);
    if (o->wide)
        print_costs(row);
    printf(" %s\n", row->best);
}

static void add_bars(bars *picture, const model_row *row)
{
    const struct {
        const ta_prediction *p;
        const char *name;
    } ways[] = {{row->tree, "tree"}, {row->ring_q, "ring-q"}, {row->ring_kv, "ring-kv"}};
    char group[48];
    snprintf(group, sizeof group, "%lld tokens", (long long)row->tokens);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (ways[i].p)
            bars_add(picture, i == 0 ? group : "", ways[i].name, ways[i].p->step.seconds * 1e6);
}

static void write_candidate(json_writer *json, const ta_prediction *p)
{
    json_open(json, NULL, '{');
    json_string(json, "algorithm", ta_algorithm_name(p->algorithm));
    json_string(json, "exchange",
                p->algorithm == TA_ALGORITHM_TREE ? ta_exchange_name(p->exchange) : "");
    json_int(json, "grid_rows", 0);
    json_int(json, "grid_columns", 0);
    model_write_cost(json, p->chosen, p->fits, p->memory_bytes, p->step.seconds);
    json_open(json, "calls", '[');
    model_write_call(json, "decode", &p->step);
    json_close(json, ']');
    json_close(json, '}');
}

static void write_row(json_writer *json, const char *cluster, const model_row *row)
{
    json_open(json, NULL, '{');
    json_string(json, "cluster", cluster);
    json_int(json, "tokens", row->tokens);
    json_int(json, "ranks", row->ranks);
    json_string(json, "best", row->best);
    json_open(json, "candidates", '[');
    for (int i = 0; i < row->count; i++)
        if (row->candidates[i].possible)
            write_candidate(json, &row->candidates[i]);
    json_close(json, ']');
    json_close(json, '}');
}

/* The number of ranks of a cluster: what its text says that nodes have. */
static int cluster_ranks(const ta_cluster *cluster, const model_options *o)
{
    ta_prediction p = TA_PREDICTION_INIT;
    ta_plan_config config = plan_config(o, 1, 1);
    int low = 1, high = 1 << 20;
    while (low < high) { /* the largest count that ta_predict() takes */
        int middle = low + (high - low + 1) / 2;
        if (ta_predict(cluster, &config, middle, MAX_CANDIDATES, &p) == TA_ERR_NOT_FOUND)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static int run_cluster(const model_options *o, const char *name, const arg_list *rank_list,
                       json_writer *json)
{
    ta_cluster *cluster = NULL;
    if (ta_cluster_create(name, &cluster) != TA_OK)
        return fail_alike("model", EXIT_USAGE, "%s", ta_last_error());
    arg_list ranks = *rank_list;
    if (ranks.count == 0)
        ranks = (arg_list){1, {cluster_ranks(cluster, o)}};
    int code = EXIT_OK;
    bars picture = {0};
    if (o->kinds)
        model_kinds_header(name);
    else
        print_header(o, name);
    for (int r = 0; r < ranks.count && code == EXIT_OK; r++)
        for (int t = 0; t < o->tokens.count && code == EXIT_OK; t++) {
            model_row row = {.tokens = o->tokens.values[t], .ranks = (int)ranks.values[r]};
            if (predict_row(o, cluster, &row) != TA_OK) {
                code = fail_alike("model", EXIT_USAGE, "%s", ta_last_error());
                continue;
            }
            if (o->kinds)
                model_kinds_row(row.tokens, row.ranks, row.candidates, row.count);
            else
                print_row(o, &row);
            if (o->bars && !o->kinds)
                add_bars(&picture, &row);
            if (json)
                write_row(json, name, &row);
        }
    if (picture.count > 0)
        bars_print(stdout, "# ", "microseconds of a step, predicted", &picture);
    ta_cluster_destroy(cluster);
    return code;
}

/* The set-ups of the paper's figures. */
static int run_paper(const model_options *o, json_writer *json)
{
    static const struct {
        const char *cluster;
        arg_list ranks;
    } figures[] = {
        {"h100:16x8", {3, {8, 64, 128}}},
        {"mi300x:1x4", {1, {4}}},
        {"rtx4090:1x2", {1, {2}}},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        int code = run_cluster(o, figures[i].cluster, &figures[i].ranks, json);
        if (code != EXIT_OK)
            return code;
        printf("\n");
    }
    return EXIT_OK;
}

static int parse(int argc, char **argv, model_options *o, char *error, size_t capacity)
{
    *o = defaults;
    if (argc > 0 && argv[0][0] != '-') {
        o->cluster = argv[0];
        argc--, argv++;
    }
    if (args_parse(tables, o, argc, argv, error, capacity) != 0)
        return -1;
    if (!o->tokens.count && o->work == WORK_ATTENTION) /* those of the papers */
        o->tokens = (arg_list){5, {1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17}};
    if (!o->tokens.count)
        o->tokens = (arg_list){7, {80000, 160000, 320000, 640000, 1280000, 2560000, 5120000}};
    if (!o->kv_heads)
        o->kv_heads = o->heads;
    if (o->cluster || o->help)
        return 0;
    snprintf(error, capacity, "model needs a cluster, such as h100:16x8");
    return -1;
}

static int run(const model_options *o, json_writer *json)
{
    int paper = strcmp(o->cluster, "paper") == 0;
    model_attention work = {o->tokens, o->heads, o->kv_heads, o->head_dim, o->dtype, o->mask};
    if (o->work == WORK_DECODE)
        return paper ? run_paper(o, json) : run_cluster(o, o->cluster, &o->ranks, json);
    return paper ? model_attention_paper(json)
                 : model_attention_cluster(&work, o->cluster, &o->ranks, json);
}

int model_command(int argc, char **argv)
{
    char error[512];
    model_options o;
    json_writer json;
    if (parse(argc, argv, &o, error, sizeof error) != 0)
        return fail_alike("model", EXIT_USAGE, "%s", error);
    if (o.help) {
        model_help(stdout);
        return EXIT_OK;
    }
    run_files files;
    if (run_files_open(&files, o.json, NULL, error, sizeof error) != EXIT_OK)
        return fail_alike("model", EXIT_USAGE, "%s", error);
    if (files.json) {
        json_init(&json, files.json);
        json_open(&json, NULL, '[');
    }
    int code = run(&o, files.json ? &json : NULL);
    if (files.json) {
        json_close(&json, ']');
        fputs("\n", files.json);
    }
    if (run_files_close(&files, error, sizeof error) != EXIT_OK)
        return fail_alike("model", EXIT_WRONG, "%s", error);
    return code;
}
