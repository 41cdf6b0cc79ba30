/* A program outside the tree, as a user would write it: one sequence whose tokens are divided over
 * three ranks in blocks of 8, decoded once, and compared with attention written out in double.
 * install.sh builds it against the installed library. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <treeattn/treeattn.h>

enum { RANKS = 3, TOKENS = 100, HEADS = 2, DIM = 16 };

static float q[HEADS][DIM], k[TOKENS][DIM], v[TOKENS][DIM];
static float out[RANKS][HEADS][DIM], lse[RANKS][HEADS];

static void fill(float *values, int count, float step)
{
    for (int i = 0; i < count; ++i)
        values[i] = sinf(step * (float)(i + 1));
}

/* Work of one rank: copy the tokens it holds to a cache of its own, then decode. */
static ta_status decode(ta_group *group, void *unused)
{
    (void)unused;
    float local_k[TOKENS][DIM], local_v[TOKENS][DIM];
    int rank = ta_group_rank(group);
    int32_t length = TOKENS;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = 1;
    config.query_heads = HEADS;
    config.kv_heads = 1;
    config.k_dim = DIM;
    config.kv_dtype = TA_F32;
    config.max_tokens = TOKENS;
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = 8;

    ta_shard_map map = config.map;
    map.ranks = RANKS;
    for (int32_t token = 0; token < TOKENS; ++token) {
        int owner;
        int32_t local;
        ta_status status = ta_shard_locate(&map, token, &owner, &local);
        if (status != TA_OK)
            return status;
        if (owner == rank) {
            memcpy(local_k[local], k[token], sizeof k[token]);
            memcpy(local_v[local], v[token], sizeof v[token]);
        }
    }

    ta_kv kv = TA_KV_INIT;
    kv.k.data = local_k;
    kv.v.data = local_v;
    kv.lengths = &length;
    ta_tensor query = {q, 0, 0, 0}, result = {out[rank], 0, 0, 0};
    ta_device *device = NULL;
    ta_plan *plan = NULL;
    ta_status status = ta_device_open("host", NULL, &device);
    if (status == TA_OK)
        status = ta_plan_create(group, device, &config, &plan);
    if (status == TA_OK)
        status = ta_decode(plan, &query, &kv, &result, lse[rank], NULL, NULL);
    ta_plan_destroy(plan);
    ta_device_close(device);
    return status;
}

/* The largest difference of any rank's output or lse from attention in double. */
static double largest_error(int head)
{
    double sum = 0, right[DIM] = {0}, worst = 0;
    for (int token = 0; token < TOKENS; ++token) {
        double score = 0;
        for (int d = 0; d < DIM; ++d)
            score += (double)q[head][d] * k[token][d];
        double weight = exp(score / sqrt(DIM));
        sum += weight;
        for (int d = 0; d < DIM; ++d)
            right[d] += weight * v[token][d];
    }
    for (int rank = 0; rank < RANKS; ++rank) {
        double error = fabs(lse[rank][head] - log(sum));
        for (int d = 0; d < DIM; ++d)
            error += fabs(out[rank][head][d] - right[d] / sum);
        if (!(error <= worst)) /* a NaN is the worst error of all */
            worst = error;
    }
    return worst;
}

int main(void)
{
    fill(q[0], HEADS * DIM, 0.7f);
    fill(k[0], TOKENS * DIM, 1.3f);
    fill(v[0], TOKENS * DIM, 0.011f);
    if (ta_version() != TA_VERSION) {
        fprintf(stderr, "header %d, library %d\n", TA_VERSION, ta_version());
        return 1;
    }
    if (ta_group_run_threads(RANKS, NULL, decode, NULL) != TA_OK) {
        fprintf(stderr, "%s\n", ta_last_error());
        return 1;
    }
    for (int head = 0; head < HEADS; ++head) {
        double error = largest_error(head);
        printf("head %d: error %.1e\n", head, error);
        if (!(error < 1e-5))
            return 1;
    }
    return 0;
}
