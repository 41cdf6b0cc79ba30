/* See forecast.h. */
#include "forecast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "common/elements.h"

typedef struct forecast_job {
    const llama_flags *flags;
    const llama_config *config;
    const ta_cluster *cluster;
    char *text; /* of the cluster */
    int ranks;
    int32_t tokens;
} forecast_job;

/* The number behind a key of the cluster's text; 0 if it is not there. */
static double number_of(const char *text, const char *key)
{
    size_t length = strlen(key);
    double number = 0;
    for (const char *line = text; line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && strncmp(line + length, " = ", 3) == 0)
            return sscanf(line + length + 3, "%lf", &number) == 1 ? number : 0;
    }
    return 0;
}

static char *text_of(const ta_cluster *cluster)
{
    size_t bytes = 0;
    if (ta_cluster_text(cluster, NULL, 0, &bytes) != TA_OK)
        return NULL;
    char *text = malloc(bytes);
    if (text && ta_cluster_text(cluster, text, bytes, NULL) == TA_OK)
        return text;
    free(text);
    return NULL;
}

/* From "nodes = 2x8 1x4". */
static int count_ranks(const char *text)
{
    const char *at = strstr(text, "\nnodes = ");
    int ranks = 0, nodes, each, used;
    for (at = at ? at + 9 : ""; sscanf(at, " %dx%d%n", &nodes, &each, &used) == 2; at += used)
        ranks += nodes * each;
    return ranks;
}

int llama_forecast_ranks(const char *description, char *error, size_t capacity)
{
    ta_cluster *cluster = NULL;
    if (ta_cluster_create(description, &cluster) != TA_OK) {
        snprintf(error, capacity, "--cluster: %s", ta_last_error());
        return 0;
    }
    char *text = text_of(cluster);
    int ranks = text ? count_ranks(text) : 0;
    if (!ranks)
        snprintf(error, capacity, "--cluster: its nodes are not a list of COUNTxRANKS");
    free(text);
    ta_cluster_destroy(cluster);
    return ranks;
}

/* ---- A step -------------------------------------------------------------------------------- */

static int32_t tokens_of_rank(const forecast_job *job)
{
    int64_t block = job->flags->block, blocks = (job->tokens + block - 1) / block;
    return (int32_t)((blocks + job->ranks - 1) / job->ranks * block);
}

/* The best of the candidates that run this algorithm, for one layer. */
static ta_status predict_attention(const forecast_job *job, ta_algorithm algorithm,
                                   ta_prediction *best)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_heads = job->config->heads;
    config.kv_heads = job->config->kv_heads;
    config.k_dim = job->config->head_dim;
    config.kv_dtype = element_dtype(job->flags->kv_dtype);
    config.max_tokens = tokens_of_rank(job);
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = (int32_t)job->flags->block;
    config.algorithm = algorithm;
    if (job->flags->tensor)
        config.query_placement = config.out_placement = TA_PLACE_HEADS;
    for (int candidate = 0;; candidate++) {
        ta_prediction p = TA_PREDICTION_INIT;
        ta_status status = ta_predict(job->cluster, &config, job->ranks, candidate, &p);
        if (status != TA_OK)
            return status == TA_ERR_NOT_FOUND ? TA_OK : status;
        int same = job->ranks == 1 || p.algorithm == algorithm;
        if (p.possible && same && (!best->possible || p.step.seconds < best->step.seconds))
            *best = p;
    }
}

/* Sums over the ranks of divided weights: two of the model's width in a layer. Each is a message
 * out and one back along a tree, and every rank sends and gets its share of the bytes. */
static double reduce_seconds(const forecast_job *job, int64_t tokens)
{
    const char *level = strstr(job->text, "\nnodes = 1x") ? "node" : "network";
    char latency[64], rate[64];
    if (!job->flags->tensor || job->ranks == 1)
        return 0;
    snprintf(latency, sizeof latency, "%s.latency_seconds", level);
    snprintf(rate, sizeof rate, "%s.rank_bytes_per_second", level);
    double bytes = (double)tokens * job->config->hidden * sizeof(float), ranks = job->ranks;
    double each = 2 * ceil(log2(ranks)) * number_of(job->text, latency) +
                  2 * bytes * (ranks - 1) / ranks / number_of(job->text, rate);
    return 2 * job->config->layers * each;
}

static ta_status forecast_step(const forecast_job *job, ta_algorithm algorithm, llama_forecast *f)
{
    ta_prediction best = TA_PREDICTION_INIT;
    size_t each = element_bytes(element_dtype(job->flags->dtype));
    double bytes = llama_config_step_elements(job->config) * (double)each;
    double divided = job->flags->tensor ? job->ranks : 1;
    ta_status status = predict_attention(job, algorithm, &best);
    if (status != TA_OK)
        return status;
    f->possible = best.possible;
    f->weights_s = bytes / divided / number_of(job->text, "device.memory_bytes_per_second");
    f->attend_s = job->config->layers * best.step.attend_seconds;
    f->exchange_s = job->config->layers * best.step.seconds - f->attend_s + reduce_seconds(job, 1);
    f->step_s = f->weights_s + f->attend_s + f->exchange_s;
    f->memory_bytes = llama_config_elements(job->config) * (double)each / divided +
                      job->config->layers * best.memory_bytes;
    f->fits = f->memory_bytes <= number_of(job->text, "device.memory_bytes");
    return TA_OK;
}

/* ---- The prompt ---------------------------------------------------------------------------- */

/* Attention of all layers on the best grid. */
static ta_status attention_seconds(const forecast_job *job, double *seconds)
{
    ta_attention_config config = TA_ATTENTION_CONFIG_INIT;
    double least = 0;
    config.query_heads = job->config->heads;
    config.kv_heads = job->config->kv_heads;
    config.k_dim = job->config->head_dim;
    config.dtype = element_dtype(job->flags->kv_dtype);
    config.max_tokens = tokens_of_rank(job);
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = (int32_t)job->flags->block;
    config.forward_only = 1;
    for (int candidate = 0;; candidate++) {
        ta_attention_prediction p = TA_ATTENTION_PREDICTION_INIT;
        ta_status status = ta_attention_predict(job->cluster, &config, job->ranks, candidate, &p);
        if (status == TA_ERR_NOT_FOUND)
            break;
        if (status != TA_OK)
            return status;
        if (p.possible && (least == 0 || p.forward.seconds < least))
            least = p.forward.seconds;
    }
    *seconds = job->config->layers * least;
    return TA_OK;
}

static ta_status forecast_prefill(const forecast_job *job, llama_forecast *f)
{
    const llama_config *c = job->config;
    double attention = 0, head = (double)c->vocabulary * c->hidden;
    double flops = 2 * (llama_config_step_elements(c) - head) * job->tokens / job->ranks;
    const char *key = element_bytes(element_dtype(job->flags->dtype)) == 2
                          ? "device.half_flops_per_second"
                          : "device.flops_per_second";
    if (llama_flags_prefill(job->flags) == PREFILL_NONE)
        return TA_OK;
    ta_status status = attention_seconds(job, &attention);
    f->prefill_s = attention + flops / number_of(job->text, key) + f->weights_s +
                   reduce_seconds(job, job->tokens);
    return status;
}

/* ---- The paper ----------------------------------------------------------------------------- */

/* Prompt and 10 words, seconds, of Tree Attention (arXiv 2408.04093), tree and its ring. */
static const struct {
    const char *model, *cluster;
    int32_t tokens;
    double tree, ring;
} published[] = {
    {"3.1-8b", "h100:1x8", 32 << 10, 0.60, 2.57},
    {"3.1-8b", "h100:1x8", 64 << 10, 1.08, 4.42},
    {"3.1-8b", "h100:1x8", 128 << 10, 2.68, 6.38},
    {"3.1-8b", "h100:1x8", 256 << 10, 2.89, 8.19},
    {"3.1-8b", "mi300x:1x4", 32 << 10, 1.05, 3.57},
    {"3.1-8b", "mi300x:1x4", 64 << 10, 2.36, 7.33},
    {"3.1-8b", "mi300x:1x4", 128 << 10, 6.43, 16.40},
    {"3.1-8b", "mi300x:1x4", 256 << 10, 15.30, 35.12},
    {"3.2-1b", "rtx4090:1x2", 8 << 10, 0.34, 1.38},
    {"3.2-1b", "rtx4090:1x2", 16 << 10, 0.58, 2.77},
    {"3.2-1b", "rtx4090:1x2", 20 << 10, 0.74, 3.47},
    {"3.2-1b", "rtx4090:1x2", 32 << 10, 1.01, 5.45},
};

static double paper_seconds(const forecast_job *job, ta_algorithm algorithm)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (strcmp(published[i].model, job->config->name) == 0 && job->flags->new_words == 10 &&
            strcmp(published[i].cluster, job->flags->cluster) == 0 &&
            published[i].tokens == job->tokens)
            return algorithm == TA_ALGORITHM_TREE      ? published[i].tree
                   : algorithm == TA_ALGORITHM_RING_KV ? published[i].ring
                                                       : 0;
    return 0;
}

int llama_forecast_make(const llama_flags *flags, const llama_config *config, int ranks,
                        int32_t tokens, ta_algorithm algorithm, llama_forecast *forecast,
                        char *error, size_t capacity)
{
    ta_cluster *cluster = NULL;
    llama_forecast made = {0};
    ta_status status = ta_cluster_create(flags->cluster, &cluster);
    forecast_job job = {flags, config, cluster, NULL, ranks, tokens};
    if (status == TA_OK)
        job.text = text_of(cluster);
    if (status == TA_OK && !job.text)
        status = TA_ERR_NO_MEMORY;
    if (status == TA_OK)
        status = forecast_step(&job, algorithm, &made);
    if (status == TA_OK)
        status = forecast_prefill(&job, &made);
    if (status == TA_OK)
        made.paper_s = paper_seconds(&job, algorithm);
    else
        snprintf(error, capacity, "--cluster: the row could not be predicted: %s", ta_last_error());
    free(job.text);
    ta_cluster_destroy(cluster);
    *forecast = made;
    return status == TA_OK ? 0 : -1;
}
