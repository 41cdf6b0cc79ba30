/* The part of the conformance suite about time and about several groups: barrier, split, split of a
 * split, and calls on two groups at the same time. See conformance.h. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "conformance.h"

static ta_status max_over_ranks(conformance *c, int64_t *value)
{
    area a;
    TA_TRY(area_make(c, sizeof *value, &a));
    memcpy(a.host, value, sizeof *value);
    TA_TRY(area_write(c, &a));
    TA_TRY(ta_group_all_reduce(c->group, a.memory, a.memory, 1, TA_ELEMENT_I64, TA_REDUCE_MAX,
                               c->stream));
    TA_TRY(area_read(c, &a));
    memcpy(value, a.host, sizeof *value);
    area_free(c, &a);
    return TA_OK;
}

/* Each rank in turn is late. Nobody may have left before it came. All ranks are on one machine and
 * have one clock. */
ta_status conformance_barrier(conformance *c)
{
    struct timespec delay = {0, 10000000};
    for (int late = 0; late < c->group->size; ++late) {
        snprintf(c->what, sizeof c->what, "barrier with rank %d late", late);
        if (late == c->group->rank)
            nanosleep(&delay, NULL);
        int64_t last_entry = ta_clock_ns();
        TA_TRY(ta_group_barrier(c->group, c->stream));
        TA_TRY(c->memory->finish(c->memory->context, c->stream));
        int64_t first_exit = -ta_clock_ns();
        TA_TRY(max_over_ranks(c, &last_entry));
        TA_TRY(max_over_ranks(c, &first_exit));
        CONFORM(c, -first_exit >= last_entry);
    }
    return TA_OK;
}

/* A part works like any group, and has the ranks that it should. */
static ta_status check_part(conformance *c, ta_group *part, int rank, int size, size_t bytes)
{
    CONFORM(c, part && part != c->group);
    CONFORM(c, ta_group_rank(part) == rank && ta_group_size(part) == size);
    conformance inner = *c;
    inner.group = part;
    TA_TRY(conformance_moves(&inner, bytes));
    return conformance_reductions(&inner, bytes);
}

/* Two parts, the ranks of one in reverse; then each of them in two again. */
static ta_status check_split_of_split(conformance *c, size_t bytes)
{
    int rank = c->group->rank, size = c->group->size, odd = rank % 2;
    int members = odd ? size / 2 : (size + 1) / 2, own_rank = rank / 2;
    ta_group *part = NULL, *quarter = NULL;
    snprintf(c->what, sizeof c->what, "split in two");
    TA_TRY(ta_group_split(c->group, odd ? 7 : 0, odd ? -rank : 0, &part));
    own_rank = odd ? members - 1 - own_rank : own_rank;
    TA_TRY(check_part(c, part, own_rank, members, bytes));
    snprintf(c->what, sizeof c->what, "split of a split");
    TA_TRY(ta_group_split(part, own_rank % 2, 0, &quarter));
    int in_quarter = own_rank % 2 ? members / 2 : (members + 1) / 2;
    TA_TRY(check_part(c, quarter, own_rank / 2, in_quarter, bytes));
    TA_TRY(conformance_moves(c, bytes)); /* the whole is as good as before */
    ta_group_destroy(part);
    TA_TRY(check_part(c, quarter, own_rank / 2, in_quarter, bytes));
    ta_group_destroy(quarter);
    return TA_OK;
}

/* One rank is left out; every rank by itself; all of them, backwards. */
static ta_status check_other_splits(conformance *c, size_t bytes)
{
    int rank = c->group->rank, size = c->group->size, out = size / 2;
    ta_group *part = c->group;
    snprintf(c->what, sizeof c->what, "split that leaves out rank %d", out);
    TA_TRY(ta_group_split(c->group, rank == out ? -1 : 3, 0, &part));
    if (rank == out)
        CONFORM(c, part == NULL);
    else
        TA_TRY(check_part(c, part, rank - (rank > out), size - 1, bytes));
    ta_group_destroy(part);
    snprintf(c->what, sizeof c->what, "split in single ranks");
    TA_TRY(ta_group_split(c->group, rank, 0, &part));
    TA_TRY(check_part(c, part, 0, 1, bytes));
    ta_group_destroy(part);
    snprintf(c->what, sizeof c->what, "split that turns all around");
    TA_TRY(ta_group_split(c->group, 0, size - rank, &part));
    TA_TRY(check_part(c, part, size - 1 - rank, size, bytes));
    ta_group_destroy(part);
    return TA_OK;
}

ta_status conformance_split(conformance *c, size_t bytes)
{
    TA_TRY(check_split_of_split(c, bytes));
    return check_other_splits(c, bytes);
}

/* Calls on two groups in turn, whose work may still be under way on two streams. */
static ta_status interleave(conformance *c, conformance *other, size_t bytes)
{
    conformance *both[] = {c, other};
    area areas[2];
    for (int i = 0; i < 2; ++i)
        TA_TRY(area_make(both[i], bytes, &areas[i]));
    for (int root = 0; root < c->group->size; ++root) {
        for (int i = 0; i < 2; ++i) {
            snprintf(both[i]->what, sizeof c->what, "two groups in turn, root %d", root);
            pattern_fill(areas[i].host, bytes, both[i]->group->rank == root ? i : 9, root);
            TA_TRY(area_write(both[i], &areas[i]));
        }
        for (int i = 0; i < 2; ++i)
            TA_TRY(
                ta_group_broadcast(both[i]->group, areas[i].memory, bytes, root, both[i]->stream));
        for (int i = 1; i >= 0; --i) {
            TA_TRY(area_read(both[i], &areas[i]));
            CONFORM(both[i], pattern_is(areas[i].host, bytes, i, root));
        }
    }
    for (int i = 0; i < 2; ++i)
        area_free(both[i], &areas[i]);
    return TA_OK;
}

/* The second thread of a rank. */
typedef struct second {
    conformance c;
    size_t bytes;
    ta_status status;
    char error[512];
} second;

static ta_status use_group(conformance *c, size_t bytes)
{
    for (int round = 0; round < 3; ++round) {
        TA_TRY(conformance_moves(c, bytes));
        TA_TRY(conformance_reductions(c, bytes));
    }
    return TA_OK;
}

static void *run_second(void *argument)
{
    second *s = argument;
    s->status = use_group(&s->c, s->bytes);
    if (s->status != TA_OK)
        snprintf(s->error, sizeof s->error, "%s", ta_last_error());
    return NULL;
}

/* Two groups of the same ranks, numbered differently, on two threads of each rank. */
static ta_status use_both_at_once(conformance *c, const conformance *other, size_t bytes)
{
    second s = {.c = *other, .bytes = bytes};
    pthread_t thread;
    CONFORM(c, pthread_create(&thread, NULL, run_second, &s) == 0);
    ta_status status = use_group(c, bytes);
    pthread_join(thread, NULL);
    TA_TRY(status);
    return s.status == TA_OK ? TA_OK : ta_fail(s.status, "on the second thread: %s", s.error);
}

ta_status conformance_overlap(conformance *c, size_t bytes)
{
    conformance other = *c;
    other.stream = c->memory->streams[1];
    TA_TRY(ta_group_split(c->group, 0, -c->group->rank, &other.group));
    TA_TRY(interleave(c, &other, bytes));
    if (c->memory->threads)
        TA_TRY(use_both_at_once(c, &other, bytes));
    ta_group_destroy(other.group);
    return TA_OK;
}
