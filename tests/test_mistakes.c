/* The mistakes that a program can make in a decode step, made: lib/mistakes.c has them. What the
 * ranks see is the table in docs/mistakes.md, which must be the same. With the argument "print" the
 * table is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "lib/expect.h"
#include "lib/mistakes.h"
#include "lib/small_step.h"

#define RANKS 3

static int prints;

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- What is seen ---- */

typedef struct trial {
    const mistake *mistake;
    ta_status status[RANKS];
    char said[RANKS][512];
} trial;

static int is_wrong(const trial *t, int rank)
{
    mistake_way kind = t->mistake->way;
    return rank == 1 || kind == ALL_RANKS || kind == ALL_CHECKED || kind == ALL_APPEND ||
           kind == ALL_COMBINE;
}

/* New tokens of each sequence, of this rank's heads: some numbers of the query. */
static ta_status append(small_step *step, ta_plan *plan)
{
    return ta_append(plan, &mistake_tokens, &step->kv, &step->call, NULL);
}

/* Some numbers of the query as the output of this rank's shard, with equal weights. */
static ta_status combine(small_step *step, ta_plan *plan)
{
    float part_lse[SMALL_ROWS] = {0};
    return ta_combine(plan, &step->q, part_lse, mistake_base, &step->out, step->lse, &step->call,
                      NULL);
}

static void make_combine_config(ta_plan_config *config)
{
    *config = (ta_plan_config)TA_PLAN_CONFIG_INIT;
    config->combine_only = 1;
    config->batch = SMALL_BATCH;
    config->query_tokens = SMALL_QUERY_TOKENS;
    config->query_heads = SMALL_HEADS;
    config->v_dim = SMALL_V_DIM;
    config->query_dtype = TA_F32;
}

/* What the rank does, up to the first call that fails. */
static ta_status attempt(const trial *t, ta_group *group, ta_device *device, small_step *step)
{
    mistake_way kind = t->mistake->way;
    int odd = step->rank == 1;
    ta_plan *plans[2] = {NULL, NULL};
    ta_status status = TA_OK;
    for (int i = 0; i < 1 + (kind == PLAN_ORDER) && status == TA_OK; ++i)
        status = ta_plan_create(group, device, &step->config, &plans[i]);
    if (status == TA_OK)
        status = mistake_appends(kind) ? append(step, plans[0])
                 : mistake_combines(kind)
                     ? combine(step, plans[0])
                     : small_step_decode(step, plans[kind == PLAN_ORDER && odd]);
    ta_plan_destroy(plans[0]);
    ta_plan_destroy(plans[1]);
    return status;
}

static ta_status mistaken_rank(ta_group *group, void *context)
{
    trial *t = context;
    int rank = ta_group_rank(group);
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    ta_device *device;
    small_step step;
    one_thread.threads = 1;
    TA_TRY(ta_device_open("host", &one_thread, &device));
    small_step_init(&step, rank, RANKS);
    step.call.tag = 4;
    step.config.append_scattered = mistake_appends(t->mistake->way);
    if (mistake_combines(t->mistake->way))
        make_combine_config(&step.config);
    step.config.check = mistake_is_checked(t->mistake->way);
    mistake_reset(&step);
    if (is_wrong(t, rank))
        t->mistake->spoil(&step);
    t->status[rank] = attempt(t, group, device, &step);
    snprintf(t->said[rank], sizeof t->said[rank], "%s",
             t->status[rank] == TA_OK ? "" : ta_last_error());
    ta_device_close(device);
    return TA_OK;
}

/* A row of the table. Addresses are left out, which are never the same. */
static void write_row(const trial *t, char *row, size_t capacity)
{
    const char *said = t->said[1][0] ? t->said[1] : t->said[0];
    size_t at = (size_t)snprintf(row, capacity, "| %s | %s | %s | ", t->mistake->text,
                                 ta_status_name(t->status[1]), ta_status_name(t->status[0]));
    for (; *said && at + 8 < capacity; ++said) {
        row[at++] = *said;
        if (strncmp(said, "0x", 2) != 0)
            continue;
        at += (size_t)snprintf(row + at, capacity - at, "…");
        ++said;
        while (strspn(said + 1, "0123456789abcdef") > 0)
            ++said;
    }
    snprintf(row + at, capacity - at, " |");
}

static char *read_page(void)
{
    static char page[65536];
    const char *path = getenv("TA_MISTAKES");
    FILE *file = path ? fopen(path, "r") : NULL;
    TEST_ASSERT_NOT_NULL_MESSAGE(file, "TA_MISTAKES must name docs/mistakes.md");
    page[fread(page, 1, sizeof page - 1, file)] = 0;
    fclose(file);
    return page;
}

static void test_table(void)
{
    const char *table = prints ? NULL : read_page();
    for (const mistake *m = mistake_list; m->text; ++m) {
        trial t = {.mistake = m};
        char row[1024];
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, mistaken_rank, &t));
        write_row(&t, row, sizeof row);
        if (prints)
            printf("%s\n", row);
        else if (!strstr(table, row))
            TEST_FAIL_MESSAGE(row);
    }
}

int main(int argc, char **argv)
{
    prints = argc > 1 && strcmp(argv[1], "print") == 0;
    UNITY_BEGIN();
    RUN_TEST(test_table);
    return UNITY_END() != 0;
}
