/* The signals of ranks that share memory: see signals.h. */
#include "signals.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

static void free_signals(ta_signals *signals)
{
    if (signals->shared)
        signals->shared->release(signals->shared);
    free(signals->ranks);
    free(signals);
}

static ta_signals *find(const ta_group *group, const int *ranks, int count)
{
    for (ta_signals *s = group->signals; s; s = s->next)
        if (s->count == count && memcmp(s->ranks, ranks, (size_t)count * sizeof *ranks) == 0)
            return s;
    return NULL;
}

ta_status ta_signals_open(ta_group *group, const int *ranks, int count, ta_signals **signals)
{
    ta_signals *s = find(group, ranks, count);
    if (s) {
        *signals = s;
        return TA_OK;
    }
    ta_shared *shared;
    TA_TRY(group->ops->share(group, ranks, count, (size_t)count * sizeof(ta_signal), &shared));
    s = calloc(1, sizeof *s);
    int *copy = calloc((size_t)count, sizeof *copy);
    if (!s || !copy) {
        shared->release(shared);
        free(copy);
        free(s);
        return ta_fail(TA_ERR_NO_MEMORY, "no memory for the signals of %d ranks", count);
    }
    memcpy(copy, ranks, (size_t)count * sizeof *copy);
    *s = (ta_signals){.group = group,
                      .count = count,
                      .ranks = copy,
                      .shared = shared,
                      .of = shared->memory,
                      .next = group->signals};
    for (int i = 0; i < count; ++i)
        if (ranks[i] == group->rank)
            s->index = i;
    group->signals = s;
    *signals = s;
    return TA_OK;
}

void ta_signals_start(ta_signals *signals, uint32_t epoch)
{
    signals->epoch = epoch;
    ta_word_set(&signals->of[signals->index].ready, epoch);
    ta_word_set(&signals->of[signals->index].merged, epoch);
}

void ta_signals_drop(ta_group *group, ta_signals *signals)
{
    for (ta_signals **link = &group->signals; *link; link = &(*link)->next)
        if (*link == signals) {
            *link = signals->next;
            free_signals(signals);
            return;
        }
}

static void wake_others(const ta_signals *s)
{
    for (int i = 0; i < s->count; ++i)
        if (i != s->index)
            s->group->ops->wake(s->group, s->ranks[i]);
}

void ta_signal_ready(ta_signals *signals, const ta_fault *fault)
{
    ta_signal *own = &signals->of[signals->index];
    uint32_t epoch = ++signals->epoch;
    /* Not every exchange merges parts: its word follows, so that it is never far behind. */
    __atomic_store_n(&own->merged, epoch - 1, __ATOMIC_RELAXED);
    own->faults[epoch & 1] = *fault;
    ta_word_set(&own->ready, epoch);
    wake_others(signals);
}

void ta_signal_merged(ta_signals *signals, const ta_fault *all)
{
    ta_signal *own = &signals->of[signals->index];
    own->all = *all;
    ta_word_set(&own->merged, signals->epoch);
    wake_others(signals);
}

ta_status ta_await_ready(ta_signals *signals, int index)
{
    return signals->group->ops->await(signals->group, signals->ranks[index], signals->count,
                                      &signals->of[index].ready, signals->epoch);
}

ta_status ta_await_merged(ta_signals *signals, int index)
{
    return signals->group->ops->await(signals->group, signals->ranks[index], signals->count,
                                      &signals->of[index].merged, signals->epoch);
}

const ta_fault *ta_signal_fault(const ta_signals *signals, int index)
{
    return &signals->of[index].faults[signals->epoch & 1];
}
