/* Clusters, predictions and explanations: what a plan would cost on machines that need not be here,
 * and why a plan does what it does. A program that only decodes can do without this header; one
 * that leaves choices to the planner gives it a cluster (ta_plan_config, ta_attention_config).
 * docs/model.md has the cost model. */
#ifndef TREEATTN_CLUSTER_H
#define TREEATTN_CLUSTER_H

#include "attention.h"
#include "treeattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Clusters ------------------------------------------------------------------------------- */

/* Make a cluster from a description, which is one of
 *
 *     PRESET:NODESxRANKS [KEY=VALUE …]     "h100:16x8": 16 nodes of 8 devices, one rank on each
 *     PRESET:RACKSxNODESxRANKS [KEY=…]     "mi300x:4x16x8 network.latency_seconds=4e-6"
 *     the path of a file                   has a '/' in it or ends with ".cluster"
 *
 * Presets are h100, a100, mi300x, l40s, rtx4090 and local (this machine, roughly). A file has lines
 * `key = value` as ta_cluster_text() writes them; docs/model.md lists the keys. */
TA_API ta_status ta_cluster_create(const char *description, ta_cluster **cluster);

/* Measure the cluster that a group runs on: which ranks share a host, and with hwloc a package;
 * latencies and bandwidths of messages inside and between them; the memory of `device`, and on the
 * host how fast it computes attention. Takes some hundreds of messages of up to 768 KB each.
 * Collective: every rank calls it, and all get the same cluster; a bad argument on one rank aborts
 * the group. */
TA_API ta_status ta_cluster_probe(ta_group *group, ta_device *device, ta_cluster **cluster);

/* The cluster as the text of such a file. Text rules as ta_info(). */
TA_API ta_status ta_cluster_text(const ta_cluster *cluster, char *text, size_t capacity,
                                 size_t *needed_bytes);

/* NULL is allowed. */
TA_API void ta_cluster_destroy(ta_cluster *cluster);

/* ---- Predict -------------------------------------------------------------------------------- */

/* What one call of a plan would cost: a decode step, or attention forward or backward. It stands in
 * other structs and never grows. */
typedef struct ta_predicted_call {
    double seconds;        /* of the call */
    double attend_seconds; /* of them, attending with nothing else going on: the busiest rank's */
    uint64_t messages_sent, messages_received; /* each by the rank with the most of them */
    uint64_t bytes_sent, bytes_received;       /* likewise */
    uint64_t total_bytes_sent;                 /* by all ranks */
} ta_predicted_call;
#define TA_PREDICTED_CALL_INIT                                                                     \
    {                                                                                              \
        0.0, 0.0, 0, 0, 0, 0, 0                                                                    \
    }

/* What a decode step of a plan would cost on a cluster, in one of the ways of doing it. */
typedef struct ta_prediction {
    size_t size;
    ta_algorithm algorithm; /* TA_ALGORITHM_ONE_DEVICE too */
    ta_exchange exchange;   /* how a tree merges its partials; TA_EXCHANGE_AUTO elsewhere */
    int possible;           /* 0: this way cannot do this work; the numbers mean nothing */
    int chosen;             /* would a plan of this config run this one? */
    int fits;               /* into the memory of the devices */
    int reserved;           /* 0 */
    ta_predicted_call step;
    double memory_bytes; /* of the fullest rank: K and V, and what the step needs */
} ta_prediction;
#define TA_PREDICTION_INIT                                                                         \
    {                                                                                              \
        sizeof(ta_prediction), TA_ALGORITHM_AUTO, TA_EXCHANGE_AUTO, 0, 0, 0, 0,                    \
            TA_PREDICTED_CALL_INIT, 0.0                                                            \
    }

/* Predict a step of `config` on the first `ranks` ranks of a cluster; config.max_tokens is what
 * each of them holds, config.cluster is not looked at. No device, group or K and V are needed.
 * Candidates are numbered from 0; beyond the last one the result is TA_ERR_NOT_FOUND. */
TA_API ta_status ta_predict(const ta_cluster *cluster, const ta_plan_config *config, int ranks,
                            int candidate, ta_prediction *prediction);

/* All candidates at once, which takes as long as one of them: the first `room` go into
 * `predictions`, an array whose elements were all set to TA_PREDICTION_INIT, and how many there are
 * into `count`. On clusters of tens of thousands of ranks that is a second, or many. */
TA_API ta_status ta_predict_all(const ta_cluster *cluster, const ta_plan_config *config, int ranks,
                                ta_prediction *predictions, int room, int *count);

/* What the calls of an attention plan would cost on a cluster, in one of the ways of doing them. */
typedef struct ta_attention_prediction {
    size_t size;
    ta_attention_algorithm algorithm;
    int grid_rows, grid_columns; /* 0 for a ring */
    int possible, chosen, fits;  /* as in ta_prediction */
    ta_predicted_call forward;
    ta_predicted_call backward; /* zeros if the config is forward_only */
    double memory_bytes; /* of a rank: tensors, gradients and what the plan needs beside them */
} ta_attention_prediction;
#define TA_ATTENTION_PREDICTION_INIT                                                               \
    {                                                                                              \
        sizeof(ta_attention_prediction), TA_ATTENTION_AUTO, 0, 0, 0, 0, 0, TA_PREDICTED_CALL_INIT, \
            TA_PREDICTED_CALL_INIT, 0.0                                                            \
    }

/* Predict the calls of `config` on the first `ranks` ranks of a cluster, each with max_tokens
 * tokens of one sequence; as ta_predict(). */
TA_API ta_status ta_attention_predict(const ta_cluster *cluster, const ta_attention_config *config,
                                      int ranks, int candidate,
                                      ta_attention_prediction *prediction);

/* Names of algorithms and exchanges, as ta_explain() and its JSON have them: "tree", "ring
 * pass-KV", "two-level", "grid overlap", … Static; "unknown" for other values. */
TA_API const char *ta_algorithm_name(ta_algorithm algorithm);
TA_API const char *ta_exchange_name(ta_exchange exchange);
TA_API const char *ta_attention_algorithm_name(ta_attention_algorithm algorithm);

/* ---- Explain -------------------------------------------------------------------------------- */

/* Describe a plan: what was asked, what will run, what it needs; with a cluster all candidates with
 * their predicted times by step; after a step also what the last one did, as it was counted: kernel
 * launches, times the host waited, bytes copied between host and device, messages and bytes
 * exchanged with other ranks. Text rules as ta_info(). */
TA_API ta_status ta_explain(const ta_plan *plan, char *text, size_t capacity, size_t *needed_bytes);

/* The choice alone as JSON: what was chosen and why, and with a cluster all candidates with their
 * predicted times by step. docs/model.md describes the fields. */
TA_API ta_status ta_explain_json(const ta_plan *plan, char *text, size_t capacity,
                                 size_t *needed_bytes);

/* The same for attention plans; after calls also how long they took on this rank. */
TA_API ta_status ta_attention_explain(const ta_attention *attention, char *text, size_t capacity,
                                      size_t *needed_bytes);
TA_API ta_status ta_attention_explain_json(const ta_attention *attention, char *text,
                                           size_t capacity, size_t *needed_bytes);

#ifdef __cplusplus
}
#endif

#endif
