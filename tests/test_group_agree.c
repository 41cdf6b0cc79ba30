/* Agreement between ranks (src/group/agree.c): every kind of field, ranks that failed, ranks that
 * leave in the middle, and numbers that no two agreements share. What plans and calls compare is
 * the matter of test_agree.c and test_attention_agree.c. */
#include "group/agree.h"

#include <pthread.h>
#include <string.h>

#include <treeattn/cluster.h>

#include "base/status.h"
#include "lib/expect.h"

#define RANKS 3

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- Fields ---------------------------------------------------------------------------------- */

typedef struct values {
    int integer;
    float real;
    const int32_t *integers;
    const float *reals;
    int count;
} values;

static const int32_t integers[] = {4, -5, 6}, other_integers[] = {4, -5, -7};
static const float reals[] = {0.5f, 1.5f, 2.5f}, other_reals[] = {0.5f, 1.25f, 2.0f};
static const values good = {7, 1.5f, integers, reals, 3};

typedef struct difference {
    values other;
    const char *said;
} difference;

static const difference differences[] = {
    {{8, 1.5f, integers, reals, 3}, "integer is 8 on rank 2 and 7 on rank 0"},
    {{7, 1.25f, integers, reals, 3}, "real is 1.25 on rank 2 and 1.5 on rank 0"},
    {{7, 1.5f, other_integers, reals, 3}, "integers[2] is -7 on rank 2 and 6 on rank 0"},
    {{7, 1.5f, NULL, reals, 3}, "integers is NULL on rank 2 and of 3 elements on rank 0"},
    {{7, 1.5f, integers, other_reals, 3}, "reals[1] is 1.25 on rank 2 and 1.5 on rank 0"},
    {{7, 1.5f, integers, NULL, 3}, "reals is NULL on rank 2 and of 3 elements on rank 0"},
    {{7, 1.5f, integers, reals, 2}, "integers is of 2 elements on rank 2 and of 3 elements on"},
    {{8, 1.25f, other_integers, other_reals, 3}, "integer is 8 on rank 2"}, /* the first */
};

/* Ranks that failed may have fields, or none. */
static ta_status agree_with(ta_group *group, const values *v, ta_status status, int has_fields,
                            ta_agreement *agreement)
{
    const ta_field fields[] = {
        TA_FIELD_OF_INTEGER("integer", v->integer),
        TA_FIELD_OF_REAL("real", v->real),
        TA_FIELD_OF_INTEGERS("integers", v->integers, v->count),
        TA_FIELD_OF_REALS("reals", v->reals, v->count),
    };
    agreement->what = "tests";
    agreement->failed = "failed in a test";
    agreement->fields = has_fields ? fields : NULL;
    agreement->field_count = has_fields ? 4 : 0;
    status = ta_agree(group, agreement, status);
    agreement->fields = NULL;
    return status;
}

static ta_status agree_on(ta_group *group, const values *v, ta_status status,
                          ta_agreement *agreement)
{
    return agree_with(group, v, status, status == TA_OK, agreement);
}

static ta_status differing_rank(ta_group *group, void *context)
{
    const difference *d = context;
    ta_agreement agreement = {0};
    int differs = ta_group_rank(group) == 2;
    RANK_EXPECT(agree_on(group, differs ? &d->other : &good, TA_OK, &agreement) == TA_ERR_MISMATCH);
    if (!strstr(ta_last_error(), d->said) || !strstr(ta_last_error(), "tests differ: "))
        return ta_fail(TA_ERR_SYSTEM, "expected '%s', not '%s'", d->said, ta_last_error());
    RANK_EXPECT(agree_on(group, &good, TA_OK, &agreement) == TA_OK); /* the group still works */
    return TA_OK;
}

static void test_each_kind_of_field(void)
{
    for (size_t i = 0; i < sizeof differences / sizeof *differences; ++i)
        EXPECT_OK(
            ta_group_run_threads(RANKS, NULL, differing_rank, (void *)(uintptr_t)&differences[i]));
}

/* ---- Ranks that failed ----------------------------------------------------------------------- */

typedef struct failure {
    int rank;
    ta_status others;
    int has_fields;
} failure;

static ta_status failing_rank(ta_group *group, void *context)
{
    const failure *f = context;
    int rank = ta_group_rank(group);
    ta_agreement agreement = {.others = f->others};
    values differs = good;
    differs.integer += rank; /* which is of no interest then */
    ta_status status = rank == f->rank ? ta_fail_quietly(TA_ERR_NO_MEMORY, "no more paper") : TA_OK;
    status = agree_with(group, &differs, status, status == TA_OK || f->has_fields, &agreement);
    RANK_EXPECT(status == (rank == f->rank || f->others == TA_OK ? TA_ERR_NO_MEMORY : f->others));
    RANK_EXPECT(strstr(ta_last_error(), "no more paper"));
    RANK_EXPECT(rank == f->rank || strstr(ta_last_error(), "failed in a test"));
    return agree_on(group, &good, TA_OK, &agreement);
}

static void test_a_rank_that_failed(void)
{
    for (int rank = 0; rank < RANKS; ++rank) {
        failure same = {rank, TA_OK, 0}, mismatch = {rank, TA_ERR_MISMATCH, 0};
        failure with_fields = {rank, TA_OK, 1};
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, failing_rank, &same));
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, failing_rank, &mismatch));
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, failing_rank, &with_fields));
    }
}

static pthread_barrier_t all_here;

/* A rank that takes part in the first round, in which all hear that something differs, and then
 * leaves: the others do not wait for it for ever. */
static ta_status leaving_rank(ta_group *group, void *context)
{
    ta_agreement agreement = {0};
    int64_t numbers[TA_AGREE_NUMBERS] = {1, INT64_MIN, INT64_MIN, 0, 0};
    int leaves = *(int *)context;
    pthread_barrier_wait(&all_here);
    if (ta_group_rank(group) == leaves) {
        TA_TRY(ta_group_max_host(group, numbers, TA_AGREE_NUMBERS, NULL, NULL));
        return TA_OK;
    }
    ta_status status = agree_on(group, &good, TA_OK, &agreement);
    RANK_EXPECT(status != TA_OK && status != TA_ERR_MISMATCH);
    return TA_OK;
}

static void test_a_rank_that_leaves_in_the_middle(void)
{
    ta_group_config config = TA_GROUP_CONFIG_INIT;
    config.timeout_ms = 1000;
    pthread_barrier_init(&all_here, NULL, RANKS);
    for (int rank = 0; rank < RANKS; ++rank)
        EXPECT_OK(ta_group_run_threads(RANKS, &config, leaving_rank, &rank));
    pthread_barrier_destroy(&all_here);
}

/* ---- Groups that break in the middle --------------------------------------------------------- */

/* The exchanges of one rank stop working at some number, without a word to the others: it has left,
 * between two collectives of a call or within one. */
typedef struct departure {
    int rank, number; /* who, and at which exchange */
    int plans;        /* of what: a plan, otherwise an agreement that has something to say */
} departure;

static _Thread_local int exchanges_left;
static const ta_group_ops *threads_ops;

static ta_status leaving_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                                  void *receive, size_t receive_bytes, int from, void *stream)
{
    if (exchanges_left <= 0)
        return ta_fail(TA_ERR_SYSTEM, "this rank has left");
    --exchanges_left;
    return threads_ops->exchange(group, send, send_bytes, to, receive, receive_bytes, from, stream);
}

static void silent_abort(ta_group *group, const char *reason)
{
    (void)group;
    (void)reason;
}

/* A plan whose exchange follows rank 0 in three collectives before the agreement. */
static ta_status plan_something(ta_group *group)
{
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    ta_plan_config config = TA_PLAN_CONFIG_INIT;
    ta_device *device = NULL;
    ta_cluster *cluster = NULL;
    ta_plan *plan = NULL;
    one_thread.threads = 1;
    config.batch = config.query_heads = 1;
    config.k_dim = 8;
    config.kv_dtype = TA_F32;
    config.max_tokens = config.map.block = 4;
    config.exchange = TA_EXCHANGE_TWO_LEVEL;
    TA_TRY(ta_cluster_create("h100:2x2", &cluster));
    TA_TRY(ta_device_open("host", &one_thread, &device));
    config.cluster = cluster;
    ta_status status = ta_plan_create(group, device, &config, &plan);
    ta_plan_destroy(plan);
    ta_device_close(device);
    ta_cluster_destroy(cluster);
    return status;
}

typedef struct member {
    pthread_t thread;
    ta_group *group;
    departure *departure;
    ta_status status;
    char said[512];
} member;

/* Every rank destroys its handle when its call has returned, which the others notice. */
static void *take_part(void *argument)
{
    member *m = argument;
    ta_agreement agreement = {0};
    const ta_group_ops *before = m->group->ops;
    ta_group_ops ops = *before;
    int rank = m->group->rank;
    ops.exchange = leaving_exchange;
    ops.start = NULL;
    ops.abort = silent_abort;
    exchanges_left = m->departure->number;
    if (rank == m->departure->rank)
        m->group->ops = &ops;
    if (m->departure->plans)
        m->status = plan_something(m->group);
    else
        m->status =
            agree_on(m->group, rank == 1 ? &differences[2].other : &good, TA_OK, &agreement);
    snprintf(m->said, sizeof m->said, "%s", ta_last_error());
    m->group->ops = before;
    ta_group_destroy(m->group);
    return NULL;
}

/* Returns whether the rank has left in this one. */
static int depart(departure *d)
{
    ta_group *groups[RANKS];
    member members[RANKS];
    ta_status well = d->plans ? TA_OK : TA_ERR_MISMATCH;
    EXPECT_OK(ta_group_create_threads(RANKS, NULL, groups));
    threads_ops = groups[0]->ops;
    for (int rank = 0; rank < RANKS; ++rank) {
        members[rank] = (member){.group = groups[rank], .departure = d};
        pthread_create(&members[rank].thread, NULL, take_part, &members[rank]);
    }
    for (int rank = 0; rank < RANKS; ++rank)
        pthread_join(members[rank].thread, NULL);
    int left = members[d->rank].status == TA_ERR_SYSTEM;
    for (int rank = 0; rank < RANKS; ++rank) {
        const member *m = &members[rank];
        /* Who leaves at the end may have told the others all that they need. */
        if (rank == d->rank || m->status == well)
            TEST_ASSERT_TRUE_MESSAGE(left || m->status == well, m->said);
        else
            TEST_ASSERT_NOT_NULL_MESSAGE(strstr(m->said, "destroyed its group"), m->said);
    }
    return left;
}

static void test_a_rank_that_leaves_at_each_exchange(void)
{
    for (int i = 0; i < 2 * RANKS; ++i) {
        departure d = {.rank = i % RANKS, .plans = i / RANKS};
        while (depart(&d))
            ++d.number;
        TEST_ASSERT_TRUE(d.number > 2 && d.number < 40);
    }
}

static ta_status other_rank(ta_group *group, void *context)
{
    ta_agreement agreement = {.what = ta_group_rank(group) ? "apples" : "pears", .failed = ""};
    (void)context;
    RANK_EXPECT(ta_agree(group, &agreement, TA_OK) != TA_OK);
    RANK_EXPECT(strstr(ta_last_error(), "pears") && strstr(ta_last_error(), "apples"));
    return TA_OK;
}

static void test_ranks_that_agree_on_different_things(void)
{
    EXPECT_OK(ta_group_run_threads(2, NULL, other_rank, NULL));
}

/* ---- Results --------------------------------------------------------------------------------- */

static ta_status numbering_rank(ta_group *group, void *context)
{
    int64_t *ids = context, last = 0;
    int rank = ta_group_rank(group);
    for (int i = 0; i < 20; ++i) {
        ta_agreement agreement = {.any = rank == i % RANKS ? i : -1};
        TA_TRY(agree_on(group, &good, TA_OK, &agreement));
        RANK_EXPECT(agreement.any == i);
        RANK_EXPECT(agreement.id > last);
        last = agreement.id;
        if (rank == 0)
            ids[i] = agreement.id;
        ta_agreement alone = {0};
        TA_TRY(agree_on(NULL, &good, TA_OK, &alone)); /* as plans of one rank do beside it */
        RANK_EXPECT(alone.id != agreement.id);
        TA_TRY(ta_group_barrier(group, NULL));
        RANK_EXPECT(ids[i] == agreement.id);
    }
    return TA_OK;
}

static void test_numbers(void)
{
    int64_t ids[20];
    EXPECT_OK(ta_group_run_threads(RANKS, NULL, numbering_rank, ids));
    ta_agreement alone = {0};
    EXPECT_ERROR(TA_ERR_INVALID, agree_on(NULL, &good, ta_fail(TA_ERR_INVALID, "its own"), &alone),
                 "its own", NULL);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_each_kind_of_field);
    RUN_TEST(test_a_rank_that_failed);
    RUN_TEST(test_a_rank_that_leaves_in_the_middle);
    RUN_TEST(test_a_rank_that_leaves_at_each_exchange);
    RUN_TEST(test_ranks_that_agree_on_different_things);
    RUN_TEST(test_numbers);
    return UNITY_END() != 0;
}
