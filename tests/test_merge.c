/* The merge() and finish() slots of a device (src/host/attend/merge.c, hip/attend/): what arrives
 * is taken in, what is sent is made, and faults go with both, for every combination that a ta_merge
 * can say. Merging in finish() gives the bits of merging before. With `--device NAME` on that
 * device. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "lib/expect.h"
#include "lib/random.h"

#define RECORDS 12
#define V_DIM 8
#define MESSAGES 3
#define MOST (4 * (V_DIM + 1) + 2) /* floats of a record: a tally's */
#define PARTIAL (RECORDS * MOST + TA_FAULT_FLOATS)

static const char *device_name = "host";
static ta_device *device;
static random_source source;

/* One block of device memory, and what it should hold. */
typedef struct memory {
    float records[PARTIAL], received[MESSAGES * PARTIAL], sent[PARTIAL];
    float out[RECORDS * V_DIM], lse[RECORDS];
} memory;

static memory *on_device;
static ta_fault *report; /* pinned, or just host memory */

void setUp(void)
{
    void *pinned = NULL;
    EXPECT_OK(ta_device_open(device_name, NULL, &device));
    EXPECT_OK(ta_device_alloc(device, sizeof *on_device, (void **)&on_device));
    if (device->ops->alloc_host)
        EXPECT_OK(device->ops->alloc_host(device, sizeof *report, &pinned));
    report = pinned ? pinned : malloc(sizeof *report);
    source = random_from(7);
}

void tearDown(void)
{
    if (device->ops->free_host)
        device->ops->free_host(device, report);
    else
        free(report);
    ta_device_free(device, on_device);
    ta_device_close(device);
}

static void copy(void *to, const void *from, size_t bytes)
{
    EXPECT_OK(ta_device_copy(device, to, from, bytes, NULL));
    EXPECT_OK(ta_device_synchronize(device, NULL));
}

static int floats_of(int tallies)
{
    return tallies ? ta_tally_floats(V_DIM) : ta_record_floats(V_DIM);
}

/* Scores are whole, so that every scale is a power of two and exact everywhere. */
static void draw_partial(float *record)
{
    for (int d = 0; d < V_DIM; ++d)
        record[d] = (float)random_normal(&source);
    record[V_DIM] = random_one_in(&source, 5) ? -INFINITY : (float)random_int(&source, -40, 40);
    record[V_DIM + 1] = 1 + (float)random_unit(&source);
    if (isinf(record[V_DIM])) {
        memset(record, 0, V_DIM * sizeof *record);
        record[V_DIM + 1] = 0;
    }
}

static void draw_tally(float *tally)
{
    int64_t words[2 * (V_DIM + 1)];
    for (int i = 0; i <= V_DIM; ++i) {
        ta_tally_sum sum =
            ta_tally_add((ta_tally_sum){0, 0, 0}, i < V_DIM ? random_normal(&source) : 1.5, 0);
        ta_tally_store(sum, &words[2 * i]);
    }
    memcpy(tally, words, sizeof words);
    tally[ta_tally_anchor_at(V_DIM)] = (float)random_int(&source, -3, 3) * TA_TALLY_BITS;
    tally[ta_tally_anchor_at(V_DIM) + 1] = 0;
}

static void draw_records(int tallies, int records, float *to)
{
    for (int i = 0; i < records; ++i, to += floats_of(tallies))
        (tallies ? draw_tally : draw_partial)(to);
}

static ta_fault draw_fault(int rank)
{
    ta_fault fault = ta_fault_of(random_one_in(&source, 6) ? TA_ERR_DEVICE : TA_OK, rank);
    fault.hash = random_one_in(&source, 6) ? 2 : 1;
    return fault;
}

static ta_fault *fault_behind(float *records, int count, int tallies)
{
    return (ta_fault *)(void *)(records + count * floats_of(tallies));
}

/* A merge of messages with random ranges, in the memory `m`. */
static ta_merge draw_merge(int tallies, memory *m)
{
    int first = random_int(&source, 0, RECORDS), end = random_int(&source, first, RECORDS);
    int given = random_int(&source, 0, RECORDS), given_end = random_int(&source, given, RECORDS);
    ta_merge merge = {.records = m->records, .v_dim = V_DIM, .tallies = tallies};
    memset(m, 0xff, sizeof *m);
    draw_records(tallies, RECORDS, m->records);
    merge.fault = fault_behind(m->records, RECORDS, tallies);
    *merge.fault = draw_fault(0);
    merge.messages = random_int(&source, 0, MESSAGES);
    merge.replaces = merge.messages == 1 && random_one_in(&source, 2);
    merge.received = m->received;
    merge.stride = PARTIAL;
    merge.kept_first = first;
    merge.kept_end = end;
    merge.theirs = fault_behind(m->received, end - first, tallies);
    for (int i = 0; i < merge.messages; ++i) {
        draw_records(tallies, end - first, m->received + i * PARTIAL);
        *fault_behind(m->received + i * PARTIAL, end - first, tallies) = draw_fault(1 + i);
    }
    if (random_one_in(&source, 2))
        merge.sent = m->sent;
    merge.given_first = given;
    merge.given_end = given_end;
    return merge;
}

/* The same merge in the device's memory. */
static ta_merge there(const ta_merge *merge, const memory *m)
{
    ta_merge t = *merge;
    t.records = on_device->records;
    t.received = on_device->received;
    t.sent = merge->sent ? on_device->sent : NULL;
    t.fault = (ta_fault *)(void *)((char *)on_device + ((char *)merge->fault - (const char *)m));
    t.theirs = (const ta_fault *)(void *)((char *)on_device +
                                          ((const char *)merge->theirs - (const char *)m));
    return t;
}

static void merge_partial(float *into, const float *from)
{
    ta_merge_scales s = ta_merge_scale(into[V_DIM], from[V_DIM]);
    for (int i = 0; i < V_DIM + 2; ++i)
        into[i] = i == V_DIM ? s.m : ta_merge_add(into[i], from[i], s);
}

static void merge_tally(float *into, const float *from)
{
    int64_t a[2 * (V_DIM + 1)], b[2 * (V_DIM + 1)];
    int at = ta_tally_anchor_at(V_DIM);
    float top = ta_tally_anchor_max(into[at], from[at]);
    memcpy(a, into, sizeof a);
    memcpy(b, from, sizeof b);
    for (int i = 0; i <= V_DIM; ++i)
        ta_tally_store(
            ta_tally_plus(
                ta_tally_reanchor(ta_tally_load(&a[2 * i]), ta_tally_below(into[at], top)),
                ta_tally_reanchor(ta_tally_load(&b[2 * i]), ta_tally_below(from[at], top))),
            &a[2 * i]);
    memcpy(into, a, sizeof a);
    into[at] = top;
}

/* What the slot should do, record by record. */
static void expect_merge(const ta_merge *m)
{
    int floats = floats_of(m->tallies);
    for (int i = 0; i < m->messages; ++i) {
        const float *message = m->received + i * m->stride;
        ta_fault theirs =
            *(const ta_fault *)(const void *)(message + (m->kept_end - m->kept_first) * floats);
        *m->fault = m->replaces ? theirs : ta_fault_merge(*m->fault, theirs);
        for (int64_t r = m->kept_first; r < m->kept_end; ++r) {
            const float *from = message + (r - m->kept_first) * floats;
            float *into = m->records + r * floats;
            if (m->replaces)
                memcpy(into, from, (size_t)floats * sizeof *into);
            else
                (m->tallies ? merge_tally : merge_partial)(into, from);
        }
    }
    if (!m->sent)
        return;
    int64_t given = (m->given_end - m->given_first) * floats;
    memcpy(m->sent, m->records + m->given_first * floats, (size_t)given * sizeof(float));
    *(ta_fault *)(void *)(m->sent + given) = *m->fault;
}

/* Records count only if there is no fault. */
static void check_merge(const ta_merge *m, const memory *expected, memory *got)
{
    ptrdiff_t at = (char *)m->fault - (const char *)expected;
    ta_fault fault = *(ta_fault *)(void *)((char *)got + at);
    int64_t given = (m->given_end - m->given_first) * floats_of(m->tallies);
    TEST_ASSERT_EQUAL_MEMORY(m->fault, &fault, sizeof fault);
    if (m->sent)
        TEST_ASSERT_EQUAL_MEMORY(m->fault, got->sent + given, sizeof fault);
    if (fault.status != TA_OK)
        return;
    TEST_ASSERT_EQUAL_MEMORY(expected->records, got->records, sizeof got->records);
    TEST_ASSERT_EQUAL_MEMORY(expected->sent, got->sent, sizeof got->sent);
    TEST_ASSERT_EQUAL_MEMORY(expected->received, got->received, sizeof got->received);
}

static void test_merge(void)
{
    static memory expected, got;
    for (int turn = 0; turn < 400; ++turn) {
        ta_merge merge = draw_merge(turn % 2, &expected), device_merge = there(&merge, &expected);
        copy(on_device, &expected, sizeof expected);
        EXPECT_OK(device->ops->merge(device, &device_merge, NULL));
        copy(&got, on_device, sizeof got);
        expect_merge(&merge);
        check_merge(&merge, &expected, &got);
    }
}

/* A merge without faults, as attention over full sequences asks for. */
static void test_device_merge(void)
{
    static memory expected, got;
    memset(&expected, 0xff, sizeof expected);
    draw_records(0, RECORDS, expected.records);
    draw_records(0, RECORDS, expected.received);
    copy(on_device, &expected, sizeof expected);
    EXPECT_OK(
        ta_device_merge(device, on_device->records, on_device->received, RECORDS, V_DIM, NULL));
    copy(&got, on_device, sizeof got);
    for (int i = 0; i < RECORDS; ++i)
        merge_partial(expected.records + i * (V_DIM + 2), expected.received + i * (V_DIM + 2));
    TEST_ASSERT_EQUAL_MEMORY(expected.records, got.records, sizeof got.records);
}

static ta_finish finish_of(const ta_merge *last)
{
    ta_finish finish = {.problem = {.batch = RECORDS / 4,
                                    .rows = RECORDS / 4,
                                    .query_tokens = 1,
                                    .query_heads = 4,
                                    .kv_heads = 4,
                                    .v_dim = V_DIM,
                                    .out_dtype = TA_F32,
                                    .tally_tile = last->tallies ? 16 : 0},
                        .last = *last,
                        .first_head = 1,
                        .heads = 2,
                        .lse = on_device->lse,
                        .report = report};
    finish.out = (ta_tensor){on_device->out, 2 * V_DIM, 2 * V_DIM, V_DIM};
    return finish;
}

/* Merging first and then finishing gives the same bits; a fault writes nothing but the report. */
static void test_finish(void)
{
    static memory first, merged, got;
    int faults = 0;
    for (int turn = 0; turn < 200; ++turn) {
        ta_merge merge = draw_merge(turn % 2, &first), last = there(&merge, &first);
        last.sent = NULL;
        copy(on_device, &first, sizeof first);
        *report = ta_fault_of(TA_OK, 0);
        ta_finish finish = finish_of(&last);
        EXPECT_OK(device->ops->finish(device, &finish, NULL));
        copy(&got, on_device, sizeof got);
        TEST_ASSERT_EQUAL_MEMORY(first.records, got.records, sizeof got.records);
        EXPECT_OK(device->ops->merge(device, &last, NULL));
        copy(&merged, on_device, sizeof merged);
        ta_fault fault =
            *(ta_fault *)(void *)((char *)&merged + ((char *)last.fault - (char *)on_device));
        TEST_ASSERT_EQUAL_INT(fault.status, report->status);
        if (fault.status != TA_OK) {
            TEST_ASSERT_EQUAL_MEMORY(&fault, report, sizeof fault);
            TEST_ASSERT_EQUAL_MEMORY(first.out, got.out, sizeof got.out);
            TEST_ASSERT_EQUAL_MEMORY(first.lse, got.lse, sizeof got.lse);
            ++faults;
            continue;
        }
        last.messages = 0;
        finish = finish_of(&last);
        EXPECT_OK(device->ops->finish(device, &finish, NULL));
        copy(&merged, on_device, sizeof merged);
        TEST_ASSERT_EQUAL_MEMORY(merged.out, got.out, sizeof got.out);
        TEST_ASSERT_EQUAL_MEMORY(merged.lse, got.lse, sizeof got.lse);
        TEST_ASSERT_FALSE(memcmp(first.out, got.out, sizeof got.out) == 0);
    }
    TEST_ASSERT_TRUE(faults > 20 && faults < 180);
}

/* What the host has not taken yet stays. */
static void test_a_report_is_kept(void)
{
    static memory m;
    ta_merge merge = draw_merge(0, &m), last;
    merge.messages = 0;
    *merge.fault = ta_fault_of(TA_ERR_INVALID, 3);
    last = there(&merge, &m);
    last.sent = NULL;
    copy(on_device, &m, sizeof m);
    *report = ta_fault_of(TA_ERR_DEVICE, 5);
    ta_finish finish = finish_of(&last);
    EXPECT_OK(device->ops->finish(device, &finish, NULL));
    EXPECT_OK(ta_device_synchronize(device, NULL));
    TEST_ASSERT_EQUAL_INT(5, report->rank);
    report->status = TA_OK;
    EXPECT_OK(device->ops->finish(device, &finish, NULL));
    EXPECT_OK(ta_device_synchronize(device, NULL));
    TEST_ASSERT_EQUAL_INT(TA_ERR_INVALID, report->status);
    TEST_ASSERT_EQUAL_INT(3, report->rank);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "--device") == 0)
        device_name = argv[2];
    UNITY_BEGIN();
    RUN_TEST(test_merge);
    RUN_TEST(test_device_merge);
    RUN_TEST(test_finish);
    RUN_TEST(test_a_report_is_kept);
    return UNITY_END() != 0;
}
