/* Exchanges as a user has them: steps of plans that only combine, so that nothing but making the
 * records, the exchange with its merges and finishing is in them. Every rank gives small whole
 * numbers with equal weights, whose mean is known. Ways alternate, some steps of each at a time. */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <treeattn/collectives.h>

#include "common/launch.h"

/* A sum of small whole numbers is exact; their mean is rounded, and so is its weight. */
#define TOLERANCE (4 * 0x1p-24 * 64)

typedef struct rank_state {
    exchange_row *row;
    ta_group *group;
    ta_device *device;
    ta_plan *plans[WAYS];
    float *part, *lse, *out, *other; /* other: what MPI's calls write */
    int64_t values;
    double *us[WAYS]; /* this rank's */
} rank_state;

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static float part_value(int64_t i, int rank)
{
    return (float)((i * 7 + rank * 5) % 64);
}

static int make_memory(rank_state *s)
{
    const exchange_row *row = s->row;
    size_t records = (size_t)row->heads * ((size_t)row->dim + 2);
    s->values = (int64_t)row->heads * row->dim;
    s->part = malloc((size_t)s->values * sizeof(float));
    s->out = malloc((size_t)s->values * sizeof(float));
    s->lse = calloc((size_t)row->heads, sizeof(float));
    s->other = calloc(records * ((size_t)row->ranks + 1), sizeof(float));
    for (int i = 0; i < row->ways; i++)
        s->us[i] = calloc((size_t)row->iterations, sizeof(double));
    if (!s->part || !s->out || !s->lse || !s->other)
        return -1;
    for (int64_t i = 0; i < s->values; i++)
        s->part[i] = part_value(i, ta_group_rank(s->group));
    return 0;
}

static ta_status make_plans(rank_state *s)
{
    for (int i = 0; i < s->row->ways; i++) {
        ta_plan_config config = TA_PLAN_CONFIG_INIT;
        if (s->row->way[i] > TA_EXCHANGE_DIRECT)
            continue;
        config.batch = 1;
        config.query_heads = s->row->heads;
        config.v_dim = s->row->dim;
        config.query_dtype = config.out_dtype = TA_F32;
        config.combine_only = 1;
        config.out_placement = s->row->placement;
        config.exchange = (ta_exchange)s->row->way[i];
        ta_status status = ta_plan_create(s->group, s->device, &config, &s->plans[i]);
        if (status != TA_OK)
            return status;
    }
    return TA_OK;
}

/* One step of way number i. */
static ta_status step(rank_state *s, int i)
{
    int64_t floats = (int64_t)s->row->heads * (s->row->dim + 2);
    if (s->row->way[i] == WAY_ALL_REDUCE)
        launch_all_reduce(s->other, (int)floats);
    else if (s->row->way[i] == WAY_ALL_GATHER)
        launch_all_gather(s->other, s->other + floats, (int)floats);
    else {
        ta_tensor part = {.data = s->part}, out = {.data = s->out};
        return ta_combine(s->plans[i], &part, s->lse, TA_LSE_E, &out, NULL, NULL, NULL);
    }
    return TA_OK;
}

static int64_t count_wrong(const rank_state *s, int64_t first, int64_t end)
{
    int64_t wrong = 0;
    for (int64_t i = first; i < end; i++) {
        double mean = 0;
        for (int rank = 0; rank < s->row->ranks; rank++)
            mean += (double)part_value(i, rank) / s->row->ranks;
        wrong += !(fabs((double)s->out[i - first] - mean) <= TOLERANCE);
    }
    return wrong;
}

/* Counts of one step, and whether its results are right, on this rank. */
static ta_status look_at(rank_state *s, int i, double *told)
{
    ta_group_stats before = TA_GROUP_STATS_INIT, after = TA_GROUP_STATS_INIT;
    int rank = ta_group_rank(s->group), heads = s->row->heads;
    int64_t first = 0, end = s->values;
    memset(s->out, 0xff, (size_t)s->values * sizeof(float));
    ta_status status = ta_group_get_stats(s->group, &before);
    if (status == TA_OK)
        status = step(s, i);
    if (status == TA_OK)
        status = ta_group_get_stats(s->group, &after);
    if (s->row->placement == TA_PLACE_HEADS) {
        first = (int64_t)heads * rank / s->row->ranks * s->row->dim;
        end = (int64_t)heads * (rank + 1) / s->row->ranks * s->row->dim;
    } else if (s->row->placement == TA_PLACE_ROOT && rank != 0) {
        end = 0;
    }
    told[0] = (double)(after.bytes_received - before.bytes_received);
    told[1] = (double)(after.messages_received - before.messages_received);
    told[2] = status == TA_OK && s->row->check && s->row->way[i] <= TA_EXCHANGE_DIRECT
                  ? (double)count_wrong(s, first, end)
                  : 0;
    return status;
}

static ta_status measure(rank_state *s)
{
    const exchange_row *row = s->row;
    for (int n = -row->warmup; n < row->iterations; n++)
        for (int i = 0; i < row->ways; i++) {
            ta_status status = ta_barrier(s->group, s->device, NULL);
            double begin = now_us();
            for (int k = 0; k < row->repeat && status == TA_OK; k++)
                status = step(s, i);
            if (status != TA_OK)
                return status;
            if (n >= 0)
                s->us[i][n] = (now_us() - begin) / row->repeat;
        }
    return TA_OK;
}

/* What this rank says to all: of each way its counts, then its times. */
static ta_status gather(rank_state *s, double *told)
{
    exchange_row *row = s->row;
    size_t each = (size_t)(3 + row->iterations), count = each * (size_t)row->ways;
    double *own = calloc(count * (size_t)(row->ranks + 1), sizeof *own), *all = own + count;
    if (!own)
        return TA_ERR_NO_MEMORY;
    for (int i = 0; i < row->ways; i++) {
        memcpy(own + each * (size_t)i, told + 3 * i, 3 * sizeof *own);
        memcpy(own + each * (size_t)i + 3, s->us[i], (size_t)row->iterations * sizeof *own);
    }
    ta_status status =
        ta_all_gather(s->group, s->device, own, all, count * sizeof *own, TA_ELEMENT_BYTE, NULL);
    for (int i = 0; status == TA_OK && ta_group_rank(s->group) == 0 && i < row->ways; i++)
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
    rank_state s = {.row = context, .group = group};
    double told[3 * WAYS] = {0};
    ta_device_config one = TA_DEVICE_CONFIG_INIT;
    one.threads = 1;
    ta_status status = ta_device_open("host", &one, &s.device);
    if (status == TA_OK && make_memory(&s) != 0)
        status = TA_ERR_NO_MEMORY;
    if (status == TA_OK)
        status = make_plans(&s);
    for (int i = 0; i < s.row->ways && status == TA_OK; i++)
        status = look_at(&s, i, told + 3 * i);
    if (status == TA_OK)
        status = measure(&s);
    if (status == TA_OK)
        status = gather(&s, told);
    for (int i = 0; i < s.row->ways; i++) {
        ta_plan_destroy(s.plans[i]);
        free(s.us[i]);
    }
    free(s.part);
    free(s.out);
    free(s.lse);
    free(s.other);
    ta_device_close(s.device);
    return status;
}

ta_status exchange_run(exchange_row *row)
{
    row->checked = row->placement == TA_PLACE_ALL ? row->ranks : 1;
    row->checked *= (int64_t)row->heads * row->dim;
    return launch_run(row->ranks, run_rank, row);
}
