/* `treeattn-bench model CLUSTER --work attention`. */
#ifndef BENCH_MODEL_ATTENTION_H
#define BENCH_MODEL_ATTENTION_H

#include "common/args.h"
#include "common/json.h"

typedef struct model_attention {
    arg_list tokens;
    int64_t heads, kv_heads, head_dim, dtype, mask; /* dtype and mask as indices of their words */
} model_attention;

/* Print a table for one cluster: a row for each number of ranks and tokens. Without ranks: all of
 * the cluster's. `json` may be NULL. Returns an exit code. */
int model_attention_cluster(const model_attention *work, const char *cluster, const arg_list *ranks,
                            json_writer *json);

/* The set-ups of the Attention2D paper, with their own heads and lengths. */
int model_attention_paper(json_writer *json);

#endif
