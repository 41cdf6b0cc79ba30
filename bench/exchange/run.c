/* Exchanges as a user has them: steps of plans that only combine, so that nothing but making the
 * records, the exchange with its merges and finishing is in them. Ways alternate, one step of each
 * at a time, so that whatever disturbs the machine disturbs all of them, and none has the caches to
 * itself. */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/collectives.h>

#include "common/launch.h"
#include "common/machine.h"
#include "common/stats.h"
#include "rank.h"

/* A sum of small whole numbers is exact; their mean is rounded, and so is its weight. */
#define TOLERANCE (4 * 0x1p-24 * 64)

/* Way number i, until it has been queued. */
static ta_status start(exchange_rank *r, int i)
{
    size_t floats = (size_t)r->row->heads * ((size_t)r->row->dim + 2);
    float *own = r->other, *all = r->other + floats;
    ta_tensor part = {.data = r->part}, out = {.data = r->out};
    switch (r->row->way[i]) {
    case WAY_MPI_REDUCE:
        launch_all_reduce(own, (int)floats);
        return TA_OK;
    case WAY_MPI_GATHER:
        launch_all_gather(own, all, (int)floats);
        return TA_OK;
    case WAY_BARE:
        bare_step(&r->bare, own, all);
        return TA_OK;
    case WAY_GROUP_REDUCE:
        return ta_all_reduce(r->group, r->device, own, own, floats, TA_ELEMENT_F32, TA_REDUCE_SUM,
                             NULL);
    case WAY_GROUP_GATHER:
        return ta_all_gather(r->group, r->device, own, all, floats, TA_ELEMENT_F32, NULL);
    case WAY_CCL_REDUCE:
        return r->ccl_own->all_reduce_sum(r->group, own, floats, NULL);
    default:
        return ta_combine(r->plans[i], &part, r->lse, TA_LSE_E, &out, NULL, NULL, NULL);
    }
}

/* Until its results are there. */
static ta_status step(exchange_rank *r, int i)
{
    ta_status status = start(r, i);
    return status == TA_OK && r->row->gpu ? ta_device_synchronize(r->device, NULL) : status;
}

static int64_t count_wrong(const exchange_rank *r, int64_t first, int64_t end)
{
    int64_t wrong = 0;
    for (int64_t i = first; i < end; i++) {
        double mean = 0;
        for (int rank = 0; rank < r->row->ranks; rank++)
            mean += (double)exchange_value(i, rank) / r->row->ranks;
        wrong += !(fabs((double)r->results[i - first] - mean) <= TOLERANCE);
    }
    return wrong;
}

/* Counts of one step, and whether its results are right, on this rank. */
static ta_status look_at(exchange_rank *r, int i, double *told)
{
    ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
    const exchange_row *row = r->row;
    int64_t first = 0, end = r->values;
    ta_status status = exchange_rank_poison(r);
    if (status == TA_OK)
        status = ta_group_get_stats(r->group, &before);
    if (status == TA_OK)
        status = step(r, i);
    if (status == TA_OK)
        status = ta_group_get_stats(r->group, &after);
    if (status == TA_OK)
        status = exchange_rank_fetch(r);
    if (row->placement == TA_PLACE_HEADS) {
        first = (int64_t)row->heads * r->rank / row->ranks * row->dim;
        end = (int64_t)row->heads * (r->rank + 1) / row->ranks * row->dim;
    } else if (row->placement == TA_PLACE_ROOT && r->rank != 0) {
        end = 0;
    }
    told[0] = (double)(after.bytes_received - before.bytes_received);
    told[1] = (double)(after.messages_received - before.messages_received);
    told[2] = status == TA_OK && row->check && row->way[i] < WAY_BARE
                  ? (double)count_wrong(r, first, end)
                  : 0;
    return status;
}

/* One step of each way, in an order that is another one each time. */
static ta_status take_turns(exchange_rank *r, const int *ways, int count, int round, int sample)
{
    double before = machine_time_us();
    for (int turn = 0; turn < count; turn++) {
        int i = ways[stats_turn(round, turn, count)];
        ta_status status = step(r, i);
        double now = machine_time_us();
        if (status != TA_OK)
            return status;
        if (sample >= 0)
            r->us[i][sample] += (now - before) / r->row->repeat;
        before = now;
    }
    return TA_OK;
}

/* The ranks meet before each sample only: in between, the exchanges themselves hold them
 * together. */
static ta_status measure(exchange_rank *r)
{
    const exchange_row *row = r->row;
    int ways[WAYS], count = 0;
    for (int i = 0; i < row->ways; i++)
        if (!r->left_out[i])
            ways[count++] = i;
    for (int n = -row->warmup, round = 0; n < row->iterations; n++) {
        ta_status status = ta_barrier(r->launched, NULL, NULL);
        for (int k = 0; k < row->repeat && status == TA_OK; k++)
            status = take_turns(r, ways, count, round++, n);
        if (status != TA_OK)
            return status;
    }
    return TA_OK;
}

/* What this rank says to all: of each way its counts, then its times. */
static ta_status gather(exchange_rank *r, const double *told)
{
    exchange_row *row = r->row;
    size_t each = (size_t)(3 + row->iterations), count = each * (size_t)row->ways;
    double *own = calloc(count * (size_t)(row->ranks + 1), sizeof *own), *all = own + count;
    if (!own)
        return TA_ERR_NO_MEMORY;
    for (int i = 0; i < row->ways; i++) {
        memcpy(own + each * (size_t)i, told + 3 * i, 3 * sizeof *own);
        memcpy(own + each * (size_t)i + 3, r->us[i], (size_t)row->iterations * sizeof *own);
    }
    ta_status status =
        ta_all_gather(r->launched, NULL, own, all, count * sizeof *own, TA_ELEMENT_BYTE, NULL);
    for (int i = 0; status == TA_OK && r->rank == 0 && i < row->ways; i++)
        for (int rank = 0; rank < row->ranks; rank++) {
            const double *theirs = all + count * (size_t)rank + each * (size_t)i;
            row->bytes[i] = fmax(row->bytes[i], theirs[0]);
            row->messages[i] = fmax(row->messages[i], theirs[1]);
            row->wrong[i] += (int64_t)theirs[2];
            for (int n = 0; n < row->iterations; n++)
                row->us[i][n] = fmax(row->us[i][n], theirs[3 + n]);
        }
    free(own);
    return status;
}

static ta_status run_rank(ta_group *group, void *context)
{
    exchange_rank r;
    double told[3 * WAYS] = {0};
    ta_status status = exchange_rank_open(&r, context, group);
    for (int i = 0; i < r.row->ways && status == TA_OK; i++)
        if (!r.left_out[i])
            status = look_at(&r, i, told + 3 * i);
    if (status == TA_OK)
        status = measure(&r);
    if (status == TA_OK)
        status = gather(&r, told);
    exchange_rank_close(&r);
    return status;
}

ta_status exchange_run(exchange_row *row)
{
    row->checked = row->placement == TA_PLACE_ALL ? row->ranks : 1;
    row->checked *= (int64_t)row->heads * row->dim;
    for (int i = 0; i < row->ways; i++)
        if (row->way[i] == WAY_BARE && !row->shared) {
            size_t floats = (size_t)row->heads * ((size_t)row->dim + 2);
            row->shared = launch_take_shared(bare_bytes(row->ranks, floats));
            if (!row->shared)
                return TA_ERR_NO_MEMORY;
        }
    ta_status status = launch_run(row->ranks, run_rank, row);
    launch_give_shared(row->shared);
    row->shared = NULL;
    return status;
}
