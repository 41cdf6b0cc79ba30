/* ta_group_run_threads(): one thread per rank of a new group, and one status for all of them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "group.h"

typedef struct rank_thread {
    pthread_t thread;
    ta_group *group;
    ta_rank_fn fn;
    void *context;
    ta_status status;
    int found_by_other; /* the error: another rank knows more of it */
    char error[1024];
} rank_thread;

static void *run_rank(void *argument)
{
    rank_thread *self = argument;
    self->status = self->fn(self->group, self->context);
    if (self->status != TA_OK) {
        const char *error = ta_last_error();
        self->found_by_other = error[0] && ta_error_is_other_rank_s();
        snprintf(self->error, sizeof self->error, "%s",
                 error[0] ? error : ta_status_message(self->status));
        ta_group_abort(self->group, self->error);
    }
    return NULL;
}

/* How near to the cause a rank is: it found it itself, it heard of it, it was taken down. */
static int distance(const rank_thread *thread)
{
    return thread->status == TA_ERR_ABORTED ? 2 : thread->found_by_other;
}

/* Of the lowest rank of those that are nearest to the cause. */
static ta_status first_failure(const rank_thread *threads, int ranks)
{
    int failed = -1;
    for (int rank = 0; rank < ranks; ++rank)
        if (threads[rank].status != TA_OK &&
            (failed < 0 || distance(&threads[rank]) < distance(&threads[failed])))
            failed = rank;
    if (failed < 0)
        return TA_OK;
    return ta_fail_quietly(threads[failed].status, "rank %d: %s", failed, threads[failed].error);
}

ta_status ta_group_run_threads(int ranks, const ta_group_config *config, ta_rank_fn fn,
                               void *context)
{
    ta_status status = TA_OK;
    int started = 0;
    if (!fn)
        return ta_fail(TA_ERR_INVALID, "fn is NULL: must be the function to run on each rank");
    if (ranks < 1 || ranks > TA_MAX_THREAD_RANKS) /* before memory is allocated for them */
        return ta_fail(TA_ERR_INVALID, "ranks is %d: must be from 1 to %d", ranks,
                       TA_MAX_THREAD_RANKS);
    rank_thread *threads = calloc((size_t)ranks, sizeof *threads);
    ta_group **groups = calloc((size_t)ranks, sizeof(ta_group *));
    if (!threads || !groups) {
        status = ta_fail(TA_ERR_NO_MEMORY, "no memory for %d threads", ranks);
        goto free_arrays;
    }
    TA_TRY_GOTO(ta_group_create_threads(ranks, config, groups), free_arrays);
    for (; started < ranks; ++started) {
        threads[started] = (rank_thread){.group = groups[started], .fn = fn, .context = context};
        int error = pthread_create(&threads[started].thread, NULL, run_rank, &threads[started]);
        if (error) {
            status = ta_fail(TA_ERR_SYSTEM, "thread of rank %d could not be started: %s", started,
                             strerror(error));
            ta_group_abort(groups[started], "its thread could not be started");
            break;
        }
    }
    for (int rank = 0; rank < started; ++rank)
        pthread_join(threads[rank].thread, NULL);
    if (status == TA_OK)
        status = first_failure(threads, ranks);
    for (int rank = 0; rank < ranks; ++rank)
        ta_group_destroy(groups[rank]);

free_arrays:
    free(groups);
    free(threads);
    return status;
}
