/* Measures every exchange on the cluster that it is started on, and asks the planner which one it
 * would take: one line for each size of the partial and kind of exchange. An MPI program; run.sh
 * starts it on emulated clusters and makes a table of its lines:
 *
 *     cluster KEY = VALUE                                          what the probe found
 *     exchange BYTES NAME MEASURED_US PREDICTED_US CHOSEN          CHOSEN is 1 for the planner's
 *
 * A time is that of a decode step with one token per rank, of the slowest rank. The kinds take
 * rounds, so that other work on the machine hits all alike, and the median of the rounds counts. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <treeattn/cluster.h>

#define HEADS 32
#define DIM 128
#define ROUNDS 7
#define ROUND_S 0.1 /* a round takes as many steps as fit into this, from 1 to STEPS */
#define STEPS 5
#define TIMEOUT_MS 30000

static const int batches[] = {1, 4, 16, 64}; /* partials of 16 KB to 1 MB */
enum { KINDS = TA_EXCHANGE_MULTI_LEVEL + 1, CANDIDATES = 2 * KINDS };

typedef struct run {
    ta_group *group;
    ta_device *device;
    ta_cluster *cluster;
    int batch;
    double predicted_s[KINDS]; /* 0: not possible on this cluster */
    ta_plan *plans[KINDS];     /* the first is the planner's own choice */
    double rounds_s[KINDS][ROUNDS];
    int rounds[KINDS];
    double measured_s[KINDS]; /* their median */
    float *memory;            /* q, K, V and the output share it: only times matter here */
    int32_t *lengths;
} run;

static void check(ta_status status, const char *what)
{
    if (status == TA_OK)
        return;
    fprintf(stderr, "measure: %s: %s: %s\n", what, ta_status_name(status), ta_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static ta_plan_config config_of(const run *r, int kind)
{
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    config.batch = r->batch;
    config.query_heads = HEADS;
    config.kv_heads = 1;
    config.k_dim = DIM;
    config.kv_dtype = TA_F32;
    config.max_tokens = 1;
    config.map.kind = TA_SHARD_BLOCK_CYCLIC;
    config.map.block = 1;
    config.algorithm = TA_ALGORITHM_TREE;
    config.exchange = (ta_exchange)kind;
    config.cluster = r->cluster;
    return config;
}

static void step(run *r, int kind)
{
    ta_kv kv = TA_KV_INIT;
    size_t rows = (size_t)r->batch * HEADS * DIM;
    ta_tensor q = {r->memory, 0, 0, 0}, out = {r->memory + rows, 0, 0, 0};
    kv.k.data = kv.v.data = r->memory + 2 * rows;
    kv.lengths = r->lengths;
    check(ta_decode(r->plans[kind], &q, &kv, &out, NULL, NULL, NULL),
          ta_exchange_name((ta_exchange)kind));
}

/* The slowest rank's seconds per step, of a few steps. */
static double time_steps(run *r, int kind, int steps)
{
    double slowest, begin;
    MPI_Barrier(MPI_COMM_WORLD);
    begin = MPI_Wtime();
    for (int i = 0; i < steps; i++)
        step(r, kind);
    double own = (MPI_Wtime() - begin) / steps;
    MPI_Allreduce(&own, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

/* Is a kind out of the race, so that its exact time does not matter? All ranks agree on times. */
static int is_hopeless(const run *r, int kind)
{
    double best = r->measured_s[kind];
    for (int other = 1; other < KINDS; other++)
        if (r->plans[other] && r->measured_s[other] < best)
            best = r->measured_s[other];
    return r->measured_s[kind] > 2 * best;
}

static int steps_of(double seconds)
{
    int steps = (int)(ROUND_S / seconds);
    return steps < 1 ? 1 : steps > STEPS ? STEPS : steps;
}

/* Keep a kind's rounds sorted. */
static void add_turn(run *r, int kind, double seconds)
{
    double *rounds = r->rounds_s[kind];
    int at = r->rounds[kind]++;
    for (; at > 0 && rounds[at - 1] > seconds; at--)
        rounds[at] = rounds[at - 1];
    rounds[at] = seconds;
    r->measured_s[kind] = rounds[r->rounds[kind] / 2];
}

static void measure(run *r)
{
    int steps[KINDS];
    memset(r->rounds, 0, sizeof r->rounds);
    for (int round = 0; round <= ROUNDS; round++)
        for (int kind = 1; kind < KINDS; kind++) {
            if (!r->plans[kind] || (round > 2 && is_hopeless(r, kind)))
                continue;
            if (round > 0)
                add_turn(r, kind, time_steps(r, kind, steps[kind]));
            else /* warms up, and tells how many steps */
                steps[kind] = steps_of(time_steps(r, kind, 1));
        }
}

/* The planner's choice, as ta_explain() names it. */
static int chosen_kind(const ta_plan *plan)
{
    char text[16384], line[64];
    check(ta_explain(plan, text, sizeof text, NULL), "explain");
    for (int kind = 1; kind < KINDS; kind++) {
        snprintf(line, sizeof line, "\nexchange: %s, ", ta_exchange_name((ta_exchange)kind));
        if (strstr(text, line))
            return kind;
    }
    fprintf(stderr, "measure: the planner chose an exchange that is not known here:\n%s", text);
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 0;
}

/* What each kind would take. A config that asks for one that is not possible on this cluster is
 * refused, so the question leaves the kind open. */
static void predict(run *r)
{
    int count;
    ta_prediction all[CANDIDATES];
    ta_plan_config config = config_of(r, TA_EXCHANGE_AUTO);
    for (int i = 0; i < CANDIDATES; i++)
        all[i] = (ta_prediction)TA_PREDICTION_INIT;
    check(ta_predict_all(r->cluster, &config, ta_group_size(r->group), all, CANDIDATES, &count),
          "predict");
    memset(r->predicted_s, 0, sizeof r->predicted_s);
    for (int i = 0; i < count && i < CANDIDATES; i++)
        if (all[i].algorithm == TA_ALGORITHM_TREE && all[i].possible)
            r->predicted_s[all[i].exchange] = all[i].step.seconds;
}

static void make_plans(run *r)
{
    predict(r);
    for (int kind = 0; kind < KINDS; kind++) {
        ta_plan_config config = config_of(r, kind);
        if (kind == TA_EXCHANGE_AUTO || r->predicted_s[kind] > 0)
            check(ta_plan_create(r->group, r->device, &config, &r->plans[kind]),
                  ta_exchange_name((ta_exchange)kind));
    }
}

static void run_batch(run *r)
{
    size_t rows = (size_t)r->batch * HEADS * DIM;
    r->memory = calloc(3 * rows, sizeof *r->memory);
    r->lengths = calloc((size_t)r->batch, sizeof *r->lengths);
    if (!r->memory || !r->lengths) {
        fprintf(stderr, "measure: no memory for a batch of %d\n", r->batch);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int b = 0; b < r->batch; b++)
        r->lengths[b] = ta_group_size(r->group);
    make_plans(r);
    measure(r);
    int chosen = chosen_kind(r->plans[0]);
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind > 0 && r->plans[kind] && ta_group_rank(r->group) == 0)
            printf("exchange %zu %s %.1f %.1f %d\n",
                   (size_t)r->batch * HEADS * (DIM + 2) * sizeof(float),
                   ta_exchange_name((ta_exchange)kind), r->measured_s[kind] * 1e6,
                   r->predicted_s[kind] * 1e6, kind == chosen);
        ta_plan_destroy(r->plans[kind]);
        r->plans[kind] = NULL;
    }
    fflush(stdout);
    free(r->memory);
    free(r->lengths);
}

static void print_cluster(const ta_cluster *cluster)
{
    char text[8192];
    check(ta_cluster_text(cluster, text, sizeof text, NULL), "text");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        printf("cluster %s\n", line);
}

int main(int argc, char **argv)
{
    run r = {0};
    int level;
    MPI_Comm world = MPI_COMM_WORLD;
    ta_group_config group_config = TA_GROUP_CONFIG_INIT;
    ta_device_config device_config = TA_DEVICE_CONFIG_INIT;
    group_config.timeout_ms = TIMEOUT_MS;
    device_config.threads = 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    check(ta_group_create_mpi(&world, &group_config, &r.group), "group");
    check(ta_device_open("host", &device_config, &r.device), "device");
    check(ta_cluster_probe(r.group, r.device, &r.cluster), "probe");
    if (ta_group_rank(r.group) == 0)
        print_cluster(r.cluster);
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        r.batch = batches[i];
        run_batch(&r);
    }
    ta_cluster_destroy(r.cluster);
    ta_device_close(r.device);
    ta_group_destroy(r.group);
    MPI_Finalize();
    return 0;
}
