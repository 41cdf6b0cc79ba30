/* See forecast.h. */
#include "forecast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "common/elements.h"
#include "paper.h"

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
static ta_status predict_attention(const forecast_job *job, int index, ta_prediction *best)
{
    ta_algorithm algorithm = llama_flags_algorithm(job->flags, index);
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_heads = job->config->heads;
    config.kv_heads =
        llama_flags_is_expanded(job->flags, index) ? job->config->heads : job->config->kv_heads;
    config.k_dim = job->config->head_dim;
    config.query_dtype = TA_F32;
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

static ta_status forecast_step(const forecast_job *job, int index, llama_forecast *f)
{
    ta_prediction best = TA_PREDICTION_INIT;
    size_t each = element_bytes(element_dtype(job->flags->dtype));
    double bytes = llama_config_step_elements(job->config) * (double)each;
    double divided = job->flags->tensor ? job->ranks : 1;
    ta_status status = predict_attention(job, index, &best);
    if (status != TA_OK)
        return status;
    f->possible = best.possible;
    f->weights_s = bytes / divided / number_of(job->text, "device.memory_bytes_per_second");
    f->attend_s = job->config->layers * best.step.attend_seconds;
    f->exchange_s = job->config->layers * best.step.seconds - f->attend_s + reduce_seconds(job, 1);
    f->step_s = f->weights_s + f->attend_s + f->exchange_s;
    f->memory_bytes = llama_config_rank_elements(job->config, divided) * (double)each +
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
    if (element_bytes(config.dtype) == 1) /* prompts are computed in 16 bits */
        config.dtype = TA_BF16;
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

/* What its devices are, if the ranks are on one node; NULL else. `name` gets it. */
static const char *gpu_of(const forecast_job *job, char *name, size_t capacity)
{
    const char *at = strstr(job->text, "\ndevice = ");
    if (!at || !strstr(job->text, "\nnodes = 1x"))
        return NULL;
    at += strlen("\ndevice = ");
    snprintf(name, capacity, "%.*s", (int)strcspn(at, "\n"), at);
    return name;
}

int llama_forecast_make(const llama_flags *flags, const llama_config *config, int ranks,
                        int32_t tokens, int index, llama_forecast *forecast, char *error,
                        size_t capacity)
{
    ta_cluster *cluster = NULL;
    llama_forecast made = {0};
    char gpu[128];
    ta_status status = ta_cluster_create(flags->cluster, &cluster);
    forecast_job job = {flags, config, cluster, NULL, ranks, tokens};
    if (status == TA_OK)
        job.text = text_of(cluster);
    if (status == TA_OK && !job.text)
        status = TA_ERR_NO_MEMORY;
    if (status == TA_OK)
        status = forecast_step(&job, index, &made);
    if (status == TA_OK)
        status = forecast_prefill(&job, &made);
    if (status == TA_OK)
        made.paper_s =
            paper_seconds(flags, config, gpu_of(&job, gpu, sizeof gpu), ranks, tokens, index);
    else
        snprintf(error, capacity, "--cluster: the row could not be predicted: %s", ta_last_error());
    free(job.text);
    ta_cluster_destroy(cluster);
    *forecast = made;
    return status == TA_OK ? 0 : -1;
}
