/* How fast a device computes attention over full sequences, for ta_cluster_probe(): one forward of
 * some hundred queries and keys, timed. Devices that queue their work are left out: their rates
 * stay unknown, and a cluster file can give them. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/partial.h"
#include "base/status.h"
#include "cluster.h"
#include "device/attention.h"
#include "device/device.h"

#define TOKENS 512
#define DIM 128
#define BATCHES 4

/* Everything that the work points to, in the memory of the host. */
typedef struct rate_memory {
    float numbers[TOKENS * DIM]; /* zeros: Q, K and V at once, in any dtype */
    float records[TOKENS * (DIM + 2)];
    ta_query_run queries;
    ta_key_run keys;
    ta_token_order order;
} rate_memory;

static ta_attention_work make_work(rate_memory *m, ta_dtype dtype)
{
    ta_tensor tensor = {.data = m->numbers, .token_stride = DIM, .head_stride = DIM};
    m->queries = (ta_query_run){.visible = {0, TOKENS}}; /* every query sees every key */
    m->order = (ta_token_order){.queries = TOKENS,
                                .keys = TOKENS,
                                .query_run_count = 1,
                                .key_run_count = 1,
                                .query_runs = &m->queries,
                                .key_runs = &m->keys};
    return (ta_attention_work){.query_heads = 1,
                               .kv_heads = 1,
                               .k_dim = DIM,
                               .v_dim = DIM,
                               .dtype = dtype,
                               .scale = 1,
                               .queries = TOKENS,
                               .keys = TOKENS,
                               .q = tensor,
                               .k = tensor,
                               .v = tensor};
}

ta_status ta_cluster_time_attention(ta_device *device, ta_dtype dtype, double *flop_s)
{
    const ta_attention_ops *ops = device->ops->attention;
    void *workspace = NULL;
    *flop_s = 0;
    if (!ops || device->ops->has_streams)
        return TA_OK;
    rate_memory *m = calloc(1, sizeof *m);
    if (!m)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory to probe a device");
    ta_attention_work work = make_work(m, dtype);
    ta_status status = device->ops->alloc(device, ops->bytes(device, &work, 0) + 1, &workspace);
    for (int batch = 0; status == TA_OK && batch <= BATCHES; ++batch) { /* the first warms up */
        double begin = ta_clock_s();
        status = ops->forward(device, &work, &m->order, m->records, workspace, NULL);
        double each = (ta_clock_s() - begin) / (2.0 * TOKENS * TOKENS * 2 * DIM);
        if (batch == 1 || (batch > 1 && each < *flop_s))
            *flop_s = each;
    }
    if (workspace)
        device->ops->free(device, workspace);
    free(m);
    return status;
}
