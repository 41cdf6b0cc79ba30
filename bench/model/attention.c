/* Tables of predicted attention over full sequences: the grid without and with overlap against the
 * ring. All numbers are ta_attention_predict()'s; docs/model.md says what they are worth. */
#include "attention.h"

#include <stdio.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "candidate.h"
#include "common/elements.h"
#include "common/fail.h"
#include "common/sweep.h"

/* The fastest of each kind; not there if `seconds` is 0. */
typedef struct best {
    ta_attention_prediction grid, overlap, ring;
} best;

static double seconds_of(const ta_attention_prediction *p)
{
    return p->forward.seconds + p->backward.seconds;
}

static ta_attention_config config_of(const model_attention *work, int64_t tokens, int ranks)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    config.query_heads = (int32_t)work->heads;
    config.kv_heads = (int32_t)work->kv_heads;
    config.k_dim = (int32_t)work->head_dim;
    config.dtype = element_dtype(work->dtype);
    config.mask = (ta_mask)work->mask;
    config.map.kind = TA_SHARD_ZIGZAG;
    config.max_tokens = (int32_t)((tokens + ranks - 1) / ranks);
    return config;
}

static void write_candidate(json_writer *json, const ta_attention_prediction *p)
{
    json_open(json, NULL, '{');
    json_string(json, "algorithm", ta_attention_algorithm_name(p->algorithm));
    json_string(json, "exchange", "");
    json_int(json, "grid_rows", p->grid_rows);
    json_int(json, "grid_columns", p->grid_columns);
    model_write_cost(json, p->chosen, p->fits, p->memory_bytes, seconds_of(p));
    json_open(json, "calls", '[');
    model_write_call(json, "forward", &p->forward);
    model_write_call(json, "backward", &p->backward);
    json_close(json, ']');
    json_close(json, '}');
}

static ta_status find_best(const ta_cluster *cluster, const ta_attention_config *config, int ranks,
                           best *found, json_writer *json)
{
    *found = (best){{0}, {0}, {0}};
    for (int i = 0;; i++) {
        ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
        ta_status status = ta_attention_predict(cluster, config, ranks, i, &p);
        if (status != TA_OK)
            return status == TA_ERR_NOT_FOUND ? TA_OK : status;
        ta_attention_prediction *kind = p.algorithm == TA_ATTENTION_RING           ? &found->ring
                                        : p.algorithm == TA_ATTENTION_GRID_OVERLAP ? &found->overlap
                                                                                   : &found->grid;
        if (!kind->size || seconds_of(&p) < seconds_of(kind))
            *kind = p;
        if (json)
            write_candidate(json, &p);
    }
}

static void print_header(const model_attention *work, const char *name)
{
    static const char *const masks[] = {"causal", "full"};
    printf("# treeattn-bench model: %s, attention over full sequences, %lld/%lld heads x %lld, %s, "
           "%s, zigzag\n"
           "# predicted, not measured; milliseconds of one layer's forward and backward; the\n"
           "# fastest grid of each variant; fwd x, bwd x, x: ring over the grid without overlap,\n"
           "# overlap x: over the one with it, forward; received: MB in both passes; memory: of a\n"
           "# rank, ! if it has less\n",
           name, (long long)work->heads, (long long)work->kv_heads, (long long)work->head_dim,
           element_name(element_dtype(work->dtype)), masks[work->mask]);
    printf("#%9s %6s %8s %9s %9s %8s %9s %9s %9s %9s %6s %6s %6s %9s %9s %9s %9s\n", "tokens",
           "ranks", "grid", "forward", "backward", "overlap", "forward", "ring fwd", "ring bwd",
           "attend", "fwd x", "bwd x", "x", "overlap x", "received", "ring rcvd", "memory GB");
}

static void print_row(int64_t tokens, int ranks, const best *b)
{
    char grid[32], overlap[32];
    const ta_attention_prediction *ring = &b->ring;
    snprintf(grid, sizeof grid, "%dx%d", b->grid.grid_rows, b->grid.grid_columns);
    snprintf(overlap, sizeof overlap, "%dx%d", b->overlap.grid_rows, b->overlap.grid_columns);
    printf("%10lld %6d %8s %9.3f %9.3f %8s %9.3f %9.3f %9.3f %9.3f", (long long)tokens, ranks, grid,
           b->grid.forward.seconds * 1e3, b->grid.backward.seconds * 1e3,
           b->overlap.size ? overlap : "-", b->overlap.forward.seconds * 1e3,
           ring->forward.seconds * 1e3, ring->backward.seconds * 1e3,
           (b->grid.forward.attend_seconds + b->grid.backward.attend_seconds) * 1e3);
    if (ring->size)
        printf(" %6.2f %6.2f %6.2f %9.2f", ring->forward.seconds / b->grid.forward.seconds,
               ring->backward.seconds / b->grid.backward.seconds,
               seconds_of(ring) / seconds_of(&b->grid),
               ring->forward.seconds / b->overlap.forward.seconds);
    else
        printf(" %6s %6s %6s %9s", "-", "-", "-", "-");
    printf(" %9.2f %9.2f %8.2f%s\n",
           (double)(b->grid.forward.bytes_received + b->grid.backward.bytes_received) * 1e-6,
           (double)(ring->forward.bytes_received + ring->backward.bytes_received) * 1e-6,
           b->grid.memory_bytes * 1e-9, b->grid.fits ? "" : "!");
}

static int print_rows(const model_attention *work, const ta_cluster *cluster, const char *name,
                      const arg_list *ranks, json_writer *json)
{
    print_header(work, name);
    for (int r = 0; r < ranks->count; r++)
        for (int t = 0; t < work->tokens.count; t++) {
            best found;
            int64_t tokens = work->tokens.values[t];
            int count = (int)ranks->values[r];
            ta_attention_config config = config_of(work, tokens, count);
            if (json) {
                json_open(json, NULL, '{');
                json_string(json, "cluster", name);
                json_int(json, "tokens", tokens);
                json_int(json, "ranks", count);
                json_open(json, "candidates", '[');
            }
            if (find_best(cluster, &config, count, &found, json) != TA_OK)
                return fail_alike("model", EXIT_USAGE, "%s", ta_last_error());
            if (json) {
                json_close(json, ']');
                json_close(json, '}');
            }
            print_row(tokens, count, &found);
        }
    return EXIT_OK;
}

/* The number of ranks of a cluster: the most that a prediction takes. */
static int cluster_ranks(const model_attention *work, const ta_cluster *cluster)
{
    ta_attention_config config = config_of(work, 1, 1);
    ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
    int ranks = 1;
    while (ranks < 1 << 12 &&
           ta_attention_predict(cluster, &config, ranks + 1, 0, &p) != TA_ERR_INVALID)
        ranks++;
    return ranks;
}

int model_attention_cluster(const model_attention *work, const char *cluster, const arg_list *ranks,
                            json_writer *json)
{
    ta_cluster *made = NULL;
    if (ta_cluster_create(cluster, &made) != TA_OK)
        return fail_alike("model", EXIT_USAGE, "%s", ta_last_error());
    arg_list all = *ranks;
    if (all.count == 0)
        all = sweep_one(cluster_ranks(work, made));
    int code = print_rows(work, made, cluster, &all, json);
    ta_cluster_destroy(made);
    return code;
}

/* The models are GPT-3's of these sizes: heads and head dimensions of its table 2.1. */
int model_attention_paper(json_writer *json)
{
    static const struct {
        const char *what, *cluster;
        int64_t heads, head_dim;
    } figures[] = {
        {"16 A100, 2.7B", "a100:4x4", 32, 80},
        {"64 A100, 760M", "a100:16x4", 16, 96},
        {"64 A100, 2.7B", "a100:16x4", 32, 80},
        {"64 A100, 13B", "a100:16x4", 40, 128},
        {"64 H100 in 64 nodes, 13B", "h100:64x1", 40, 128},
    };
    const arg_list all = {0};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        model_attention work = {.tokens = {5, {1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17}},
                                .heads = figures[i].heads,
                                .kv_heads = figures[i].heads,
                                .head_dim = figures[i].head_dim,
                                .dtype = 2};
        printf("# %s\n", figures[i].what);
        int code = model_attention_cluster(&work, figures[i].cluster, &all, json);
        if (code != EXIT_OK)
            return code;
        printf("\n");
    }
    return EXIT_OK;
}
