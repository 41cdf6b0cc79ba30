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
 * Presets are h100, a100, mi300x, rtx4090 and local (this machine, roughly). A file has lines
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

/* What one decode step of a plan would cost on a cluster, in one of the ways of doing it. */
typedef struct ta_prediction {
    size_t size;
    const char *algorithm;     /* "tree", "ring pass-KV", "ring pass-Q" or "one device" */
    const char *exchange;      /* how a tree merges its partials; "" elsewhere */
    int possible;              /* 0: this way cannot do this work; the numbers mean nothing */
    int fits;                  /* into the memory of the devices */
    double seconds;            /* of the step */
    double attend_seconds;     /* of them, reading K and V with nothing else going on */
    uint64_t messages_sent;    /* by the rank that sends most of them */
    uint64_t bytes_sent;       /* likewise */
    uint64_t total_bytes_sent; /* by all ranks */
    double memory_bytes;       /* of the fullest rank: K and V, and what the step needs */
} ta_prediction;
#define TA_PREDICTION_INIT                                                                         \
    {                                                                                              \
        sizeof(ta_prediction), "", "", 0, 0, 0.0, 0.0, 0, 0, 0, 0.0                                \
    }

/* Predict a step of `config` on the first `ranks` ranks of a cluster; config.max_tokens is what
 * each of them holds. No device, group or K and V are needed. Candidates are numbered from 0;
 * beyond the last one the result is TA_ERR_NOT_FOUND. */
TA_API ta_status ta_predict(const ta_cluster *cluster, const ta_plan_config *config, int ranks,
                            int candidate, ta_prediction *prediction);

/* What the calls of an attention plan would cost on a cluster, in one of the ways of doing them.
 * Numbers of messages and bytes are those of the rank that receives most. Backward's are 0 if the
 * config is forward_only. */
typedef struct ta_attention_prediction {
    size_t size;
    ta_attention_algorithm algorithm;
    int grid_rows, grid_columns; /* 0 for a ring */
    int chosen;                  /* would a plan of this config run this one? */
    int fits;                    /* into the memory of the devices */
    int reserved;
    double forward_seconds, backward_seconds;
    double forward_attend_seconds,
        backward_attend_seconds; /* of them, the busiest rank computing */
    uint64_t forward_messages_received, backward_messages_received;
    uint64_t forward_bytes_received, backward_bytes_received;
    double memory_bytes; /* of a rank: tensors, gradients and what the plan needs beside them */
} ta_attention_prediction;
#define TA_ATTENTION_PREDICTION_INIT                                                               \
    {                                                                                              \
        sizeof(ta_attention_prediction), TA_ATTENTION_GRID, 0, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0,  \
            0, 0, 0, 0.0                                                                           \
    }

/* Predict the calls of `config` on the first `ranks` ranks of a cluster, each with max_tokens
 * tokens of one sequence; as ta_predict(). */
TA_API ta_status ta_attention_predict(const ta_cluster *cluster, const ta_attention_config *config,
                                      int ranks, int candidate,
                                      ta_attention_prediction *prediction);

/* ---- Explain -------------------------------------------------------------------------------- */

/* Describe a plan: what was asked, what will run, what it needs; after a step also what the last
 * one did, as it was counted: kernel launches, times the host waited, bytes copied between host and
 * device, messages and bytes exchanged with other ranks. Text rules as ta_info(). */
TA_API ta_status ta_explain(const ta_plan *plan, char *text, size_t capacity, size_t *needed_bytes);

/* The choice alone as JSON: what was chosen and why, and with a cluster all candidates with their
 * predicted times by step. docs/model.md describes the fields. */
TA_API ta_status ta_explain_json(const ta_plan *plan, char *text, size_t capacity,
                                 size_t *needed_bytes);

/* Describe an attention plan: what it will run and why, what it needs, what its calls took on this
 * rank so far by the host's clock, and with a cluster all
 * candidates with their predicted times by step; as lines, or as JSON if `json` is 1 (docs/model.md
 * describes the fields). Text rules as ta_info(). */
TA_API ta_status ta_attention_explain(const ta_attention *attention, int json, char *text,
                                      size_t capacity, size_t *needed_bytes);

#ifdef __cplusplus
}
#endif

#endif
