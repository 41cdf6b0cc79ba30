/* See rank.h. */
#include "rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>
#include <treeattn/extension.h>

#include "common/launch.h"
#include "common/machine.h"
#include "common/rank_device.h"

float exchange_value(int64_t i, int rank)
{
    return (float)((i * 7 + rank * 5) % 64);
}

static size_t record_floats(const exchange_row *row)
{
    return (size_t)row->heads * ((size_t)row->dim + 2);
}

/* On the host with one thread: what is measured is no computing. */
static ta_status open_device(exchange_rank *r)
{
    const exchange_row *row = r->row;
    rank_device_config config = {row->device, row->gpu, row->ccl, 1, NULL};
    r->group = r->launched;
    return rank_device_open(&config, r->launched, &r->device, &r->group);
}

static ta_status find_cluster(exchange_rank *r)
{
    const char *name = r->row->cluster;
    if (!name)
        return TA_OK;
    if (strcmp(name, "probe") == 0)
        return ta_cluster_probe(r->group, r->device, &r->cluster);
    return ta_cluster_create(name, &r->cluster);
}

/* NCCL's own calls, for the row that shows them. */
static ta_status find_ccl_own(exchange_rank *r)
{
    const void *table = NULL;
    if (!r->row->ccl)
        return TA_OK;
    ta_status status = ta_device_extension(r->device, TA_CCL_OWN_NAME, TA_CCL_OWN_VERSION, &table);
    r->ccl_own = table;
    return status;
}

/* ---- Memory ---- */

static ta_status take(exchange_rank *r, size_t floats, float **memory)
{
    void *taken = NULL;
    ta_status status = ta_device_alloc(r->device, floats * sizeof(float), &taken);
    *memory = taken;
    return status;
}

static ta_status copy(exchange_rank *r, float *to, const float *from, int64_t floats)
{
    ta_status status = ta_device_copy(r->device, to, from, (size_t)floats * sizeof(float), NULL);
    return status == TA_OK ? ta_device_synchronize(r->device, NULL) : status;
}

static ta_status make_host_memory(exchange_rank *r)
{
    const exchange_row *row = r->row;
    bench_machine machine;
    r->values = (int64_t)row->heads * row->dim;
    r->results = malloc((size_t)r->values * sizeof(float));
    int lacks = !r->results;
    for (int i = 0; i < row->ways; i++) {
        r->us[i] = calloc((size_t)row->iterations, sizeof(double));
        lacks |= !r->us[i];
    }
    machine_read(&machine);
    r->bare = (bare_rank){.memory = row->shared,
                          .rank = r->rank,
                          .ranks = row->ranks,
                          .spins = row->ranks <= machine.cpus ? 4096 : 0,
                          .floats = record_floats(row)};
    return lacks ? TA_ERR_NO_MEMORY : TA_OK;
}

static ta_status make_memory(exchange_rank *r)
{
    const exchange_row *row = r->row;
    size_t values = (size_t)r->values, heads = (size_t)row->heads;
    size_t others = record_floats(row) * ((size_t)row->ranks + 1);
    float *zeros = calloc(others, sizeof *zeros);
    ta_status status = zeros ? take(r, values, &r->part) : TA_ERR_NO_MEMORY;
    for (int64_t i = 0; i < r->values; i++)
        r->results[i] = exchange_value(i, r->rank);
    if (status == TA_OK)
        status = copy(r, r->part, r->results, r->values);
    if (status == TA_OK)
        status = take(r, values, &r->out);
    if (status == TA_OK)
        status = take(r, heads, &r->lse);
    if (status == TA_OK)
        status = copy(r, r->lse, zeros, row->heads);
    if (status == TA_OK)
        status = take(r, others, &r->other);
    if (status == TA_OK)
        status = copy(r, r->other, zeros, (int64_t)others);
    free(zeros);
    return status;
}

ta_status exchange_rank_fetch(exchange_rank *r)
{
    return copy(r, r->results, r->out, r->values);
}

ta_status exchange_rank_poison(exchange_rank *r)
{
    memset(r->results, 0xff, (size_t)r->values * sizeof(float));
    return copy(r, r->out, r->results, r->values);
}

/* ---- Plans ---- */

/* All ranks get the same verdict on a plan, so they leave out the same ones. */
static ta_status make_plan(exchange_rank *r, int i)
{
    exchange_row *row = r->row;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_heads = row->heads;
    config.v_dim = row->dim;
    config.query_dtype = config.out_dtype = TA_F32;
    config.combine_only = 1;
    config.out_placement = row->placement;
    config.exchange = (ta_exchange)row->way[i];
    config.cluster = r->cluster;
    ta_status status = ta_plan_create(r->group, r->device, &config, &r->plans[i]);
    if (!row->optional[i] || (status != TA_ERR_UNSUPPORTED && status != TA_ERR_INVALID))
        return status;
    r->left_out[i] = 1;
    if (r->rank == 0)
        snprintf(row->why[i], sizeof row->why[i], "%.199s", ta_last_error());
    return TA_OK;
}

ta_status exchange_rank_open(exchange_rank *r, exchange_row *row, ta_group *launched)
{
    *r = (exchange_rank){.row = row, .rank = ta_group_rank(launched), .launched = launched};
    ta_status status = open_device(r);
    if (status == TA_OK)
        status = find_cluster(r);
    if (status == TA_OK)
        status = find_ccl_own(r);
    if (status == TA_OK)
        status = make_host_memory(r);
    if (status == TA_OK)
        status = make_memory(r);
    for (int i = 0; i < row->ways && status == TA_OK; i++)
        if (row->way[i] < WAY_BARE)
            status = make_plan(r, i);
    return status;
}

void exchange_rank_close(exchange_rank *r)
{
    float *memory[] = {r->part, r->lse, r->out, r->other};
    for (int i = 0; i < r->row->ways; i++) {
        ta_plan_destroy(r->plans[i]);
        free(r->us[i]);
    }
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            ta_device_free(r->device, memory[i]);
    free(r->results);
    ta_cluster_destroy(r->cluster);
    if (r->group != r->launched)
        ta_group_destroy(r->group);
    ta_device_close(r->device);
}
