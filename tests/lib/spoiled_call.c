/* Calls with a mistake in them: see spoiled_call.h. */
#include "spoiled_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "expect.h"

/* One rank's part in it: the call, on a device and a plan of its own. */
typedef struct part {
    const spoiled_call *kind;
    const mistake *mistake;
    void *call;
    ta_device *device;
    ta_plan *plan;
} part;

static ta_status part_open(part *p, const spoiled_call *kind, ta_group *group)
{
    p->kind = kind;
    p->call = malloc(kind->bytes);
    if (!p->call)
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for a call");
    kind->init(p->call);
    TA_TRY(ta_device_open("host", NULL, &p->device));
    return ta_plan_create(group, p->device, p->call, &p->plan);
}

static void part_close(part *p)
{
    ta_plan_destroy(p->plan);
    ta_device_close(p->device);
    free(p->call);
}

static ta_status part_make(part *p)
{
    return p->kind->make(p->call, p->plan);
}

/* ---- Alone ---- */

void spoiled_alone(const spoiled_call *kind, const mistake *mistakes, size_t count)
{
    part p = {0};
    EXPECT_OK(part_open(&p, kind, NULL));
    for (size_t i = 0; i < count; ++i) {
        kind->init(p.call);
        mistakes[i].spoil(p.call);
        EXPECT_ERROR(TA_ERR_INVALID, part_make(&p), mistakes[i].named, mistakes[i].value);
        TEST_ASSERT_TRUE(kind->is_untouched(p.call));
    }
    kind->init(p.call);
    EXPECT_OK(part_make(&p));
    TEST_ASSERT_TRUE(kind->is_right(p.call, 0));
    part_close(&p);
}

/* ---- In a group ---- */

typedef ta_status (*part_fn)(part *p, int rank);

typedef struct scene {
    const spoiled_call *kind;
    const mistake *mistake;
    part_fn play;
} scene;

static ta_status play_rank(ta_group *group, void *context)
{
    const scene *s = context;
    part p = {.mistake = s->mistake};
    ta_status status = part_open(&p, s->kind, group);
    if (status == TA_OK)
        status = s->play(&p, ta_group_rank(group));
    part_close(&p);
    return status;
}

static void play_all(int ranks, const spoiled_call *kind, const mistake *mistakes, size_t count,
                     part_fn play)
{
    for (size_t i = 0; i < count; ++i) {
        scene s = {kind, &mistakes[i], play};
        char message[1800];
        ta_status status = ta_group_run_threads(ranks, NULL, play_rank, &s);
        snprintf(message, sizeof message, "the mistake \"%s\": %s", mistakes[i].named,
                 ta_last_error());
        TEST_ASSERT_EQUAL_INT_MESSAGE(TA_OK, status, message);
    }
}

static ta_status be_wrong(part *p, int rank)
{
    if (rank == 1)
        p->mistake->spoil(p->call);
    RANK_EXPECT(part_make(p) == TA_ERR_INVALID);
    RANK_EXPECT(strstr(ta_last_error(), rank == 1 ? p->mistake->named : "rank 1 failed"));
    RANK_EXPECT(p->kind->is_untouched(p->call));
    p->kind->init(p->call);
    TA_TRY(part_make(p));
    RANK_EXPECT(p->kind->is_right(p->call, rank));
    return TA_OK;
}

void spoiled_on_one_rank(const spoiled_call *kind, const mistake *mistakes, size_t count)
{
    play_all(3, kind, mistakes, count, be_wrong);
}

/* Ranks differ, and this one is the one that does, or not. */
static ta_status differ(part *p, bool differs, ta_status *status)
{
    const mistake *m = p->mistake;
    if (m->before)
        m->before(p->call);
    if (differs)
        m->spoil(p->call);
    *status = part_make(p);
    RANK_EXPECT(*status != TA_OK && strstr(ta_last_error(), m->named));
    RANK_EXPECT(!m->value || strstr(ta_last_error(), m->value));
    RANK_EXPECT(p->kind->is_untouched(p->call));
    return TA_OK;
}

static ta_status be_elsewhere(part *p, int rank)
{
    ta_status status;
    TA_TRY(differ(p, rank == 2, &status));
    RANK_EXPECT(status == TA_ERR_MISMATCH);
    return TA_OK;
}

void spoiled_differently(const spoiled_call *kind, const mistake *mistakes, size_t count)
{
    play_all(3, kind, mistakes, count, be_elsewhere);
}

static ta_status be_of_another_size(part *p, int rank)
{
    ta_status status;
    TA_TRY(differ(p, rank == 1, &status));
    RANK_EXPECT(status == TA_ERR_MISMATCH && strstr(ta_last_error(), " 1 "));
    RANK_EXPECT(part_make(p) == TA_ERR_MISMATCH && p->kind->is_untouched(p->call));
    p->kind->init(p->call);
    TA_TRY(part_make(p));
    RANK_EXPECT(p->kind->is_right(p->call, rank));
    p->mistake->spoil(p->call); /* on all ranks */
    return part_make(p);
}

void spoiled_in_size(const spoiled_call *kind, const mistake *mistakes, size_t count)
{
    play_all(3, kind, mistakes, count, be_of_another_size);
}
