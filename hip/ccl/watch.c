/* What goes wrong after a call has returned, and how groups end.
 *
 * The worlds of this process are in one list. A thread looks at their groups every few
 * milliseconds, as long as there are any: has the library found an error, is a mark on a stream
 * older than the timeout? Then the world is broken: all its communicators in this process are
 * aborted, which ends what they have on the devices. The same thread finalizes groups that were
 * destroyed, as that can take as long as the other ranks want, and aborts those that take longer
 * than the timeout. */
#include "ccl.h"

#include <stdarg.h>
#include <stdlib.h>

#define LOOK_EVERY_MS 20
#define LOCK_PATIENCE_MS 200

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    ta_ccl_world *worlds;
    ta_ccl_group *leaving;
    pthread_t thread;
    int runs, stop;
    int slow; /* threads in destroy_blocking() */
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- Breaking: with the registry's lock ---------------------------------------------------- */

/* A thread that holds the lock for long hangs in the library, where only the abort can reach it. */
static void abort_communicator(ta_ccl_group *g)
{
    struct timespec patience = ta_clock_after_ms(CLOCK_REALTIME, LOCK_PATIENCE_MS);
    int locked = pthread_mutex_timedlock(&g->calls, &patience) == 0;
    ncclComm_t comm = g->comm;
    g->comm = NULL;
    if (comm && !g->adopted)
        (void)g->nccl->ncclCommAbort(comm);
    if (locked)
        pthread_mutex_unlock(&g->calls);
}

static void break_world(ta_ccl_world *world, ta_status status, const char *reason)
{
    if (atomic_load(&world->broken))
        return;
    world->status = status;
    snprintf(world->reason, sizeof world->reason, "%s", reason);
    atomic_store(&world->broken, 1);
    for (ta_ccl_group *g = world->members; g; g = g->next)
        abort_communicator(g);
}

ta_status ta_ccl_broken(const ta_ccl_group *g)
{
    if (!atomic_load(&g->world->broken))
        return TA_OK;
    return ta_gpu_core->found_by_other(
        ta_gpu_core->fail_quietly(g->world->status, "%s", g->world->reason));
}

ta_status ta_ccl_break(ta_ccl_group *g, ta_status status, const char *format, ...)
{
    char reason[sizeof g->world->reason];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&registry.mutex);
    int first = !atomic_load(&g->world->broken);
    break_world(g->world, status, reason);
    pthread_mutex_unlock(&registry.mutex);
    return first ? ta_gpu_core->fail(status, "%s", reason) : ta_ccl_broken(g);
}

void ta_ccl_abort(ta_group *group, const char *reason)
{
    ta_ccl_world *world = ta_ccl_of(group)->world;
    char sentence[sizeof world->reason];
    snprintf(sentence, sizeof sentence, "rank %d aborted the group: %s", group->rank, reason);
    pthread_mutex_lock(&registry.mutex);
    break_world(world, TA_ERR_ABORTED, sentence);
    pthread_mutex_unlock(&registry.mutex);
}

/* ---- Looking: with the registry's lock, on the thread -------------------------------------- */

/* Is what was marked first done? Asked late, so that a healthy group costs nothing. */
static void look_at_mark(ta_ccl_group *g, char *trouble, size_t capacity)
{
    int64_t age = ta_clock_ms() - g->since_ms;
    if (g->marked == 0 || age < g->group.timeout_ms / 2)
        return;
    hipError_t error = hipEventQuery(g->marks[0].event);
    if (error != hipErrorNotReady) { /* an error is for the next call on the device to tell */
        ta_ccl_mark done = g->marks[0];
        g->marks[0] = g->marks[1];
        g->marks[1] = done;
        g->marked--;
        g->since_ms = ta_clock_ms();
    } else if (age > g->group.timeout_ms && g->marks[0].peer >= 0) {
        snprintf(trouble, capacity,
                 "rank %d of %d waits since %d ms on its device for rank %d, or for one that this "
                 "one waits for",
                 g->group.rank, g->group.size, (int)age, g->marks[0].peer);
    } else if (age > g->group.timeout_ms) {
        snprintf(trouble, capacity, "rank %d of %d waits since %d ms on its device for the others",
                 g->group.rank, g->group.size, (int)age);
    }
    (void)hipGetLastError();
}

static void look_at(ta_ccl_world *world, ta_ccl_group *g)
{
    char trouble[256] = "";
    ta_status status = TA_ERR_TIMEOUT;
    ncclResult_t state = ncclSuccess;
    if (pthread_mutex_trylock(&g->calls) != 0)
        return; /* its own thread is about to find out */
    if (g->comm && g->nccl->ncclCommGetAsyncError(g->comm, &state) == ncclSuccess &&
        state != ncclSuccess && state != ncclInProgress) {
        status = TA_ERR_DEVICE;
        snprintf(trouble, sizeof trouble,
                 "rank %d of a " TA_CCL_NAME " group had an asynchronous error: %.160s",
                 g->group.rank, ta_ccl_words(g->nccl, g->comm, state));
    } else if (g->comm) {
        look_at_mark(g, trouble, sizeof trouble);
    }
    pthread_mutex_unlock(&g->calls);
    if (trouble[0])
        break_world(world, status, trouble);
}

/* Has the device come past all that was queued? */
static int marks_passed(const ta_ccl_group *g)
{
    int done = 1;
    for (int i = 0; i < g->marked; i++)
        done = hipEventQuery(g->marks[i].event) != hipErrorNotReady && done;
    (void)hipGetLastError();
    return done;
}

/* One step on the way out. Returns 1 when nothing is left of the group. */
static int let_go(ta_ccl_group *g)
{
    ncclResult_t state = ncclSuccess;
    int late = registry.stop || ta_clock_ms() - g->since_ms > g->group.timeout_ms;
    if (g->comm && !g->finalizing) {
        state = g->nccl->ncclCommFinalize(g->comm);
        g->finalizing = 1;
    }
    if (g->comm && (state == ncclSuccess || state == ncclInProgress) &&
        g->nccl->ncclCommGetAsyncError(g->comm, &state) != ncclSuccess)
        state = ncclInternalError;
    int done = marks_passed(g);
    if (!late && ((g->comm && state == ncclInProgress) || !done))
        return 0;
    if (g->comm && state == ncclSuccess)
        (void)g->nccl->ncclCommDestroy(g->comm);
    else if (g->comm)
        (void)g->nccl->ncclCommAbort(g->comm);
    ta_ccl_free(g, done);
    return 1;
}

static void let_go_of_all(void)
{
    for (ta_ccl_group **link = &registry.leaving; *link;) {
        ta_ccl_group *g = *link, *next = g->next;
        if (hipSetDevice(g->index) == hipSuccess && let_go(g))
            *link = next;
        else
            link = &g->next;
    }
}

static void *watch(void *unused)
{
    /* Asking about an event disturbs nobody's capture. */
    hipStreamCaptureMode mode = hipStreamCaptureModeRelaxed;
    (void)unused;
    (void)hipThreadExchangeStreamCaptureMode(&mode);
    pthread_mutex_lock(&registry.mutex);
    while (!registry.stop) {
        for (ta_ccl_world *world = registry.worlds; world; world = world->next)
            for (ta_ccl_group *g = world->members; g && !atomic_load(&world->broken); g = g->next)
                if (hipSetDevice(g->index) == hipSuccess)
                    look_at(world, g);
        let_go_of_all();
        struct timespec next = ta_clock_after_ms(CLOCK_REALTIME, LOOK_EVERY_MS);
        if (!registry.worlds && !registry.leaving)
            pthread_cond_wait(&registry.changed, &registry.mutex);
        else
            pthread_cond_timedwait(&registry.changed, &registry.mutex, &next);
    }
    let_go_of_all();
    pthread_mutex_unlock(&registry.mutex);
    return NULL;
}

/* The process ends, and what the thread uses ends after this: atexit() handlers run in reverse, and
 * the library was there first. Groups that are still leaving are aborted. */
static void stop_watching(void)
{
    struct timespec patience = ta_clock_after_ms(CLOCK_REALTIME, 1000);
    pthread_mutex_lock(&registry.mutex);
    registry.stop = 1;
    pthread_cond_broadcast(&registry.changed);
    while (registry.slow > 0 &&
           pthread_cond_timedwait(&registry.changed, &registry.mutex, &patience) == 0)
        continue;
    pthread_mutex_unlock(&registry.mutex);
    pthread_join(registry.thread, NULL);
}

/* ---- Coming and going ---------------------------------------------------------------------- */

static ta_ccl_world *find_world(const char *id, int size)
{
    for (ta_ccl_world *world = registry.worlds; world; world = world->next)
        if (!memcmp(world->id, id, sizeof world->id) && world->size == size)
            return world;
    ta_ccl_world *made = calloc(1, sizeof *made);
    unsigned char *joined = calloc((size_t)size, 1);
    if (!made || !joined) {
        free(made);
        free(joined);
        return NULL;
    }
    memcpy(made->id, id, sizeof made->id);
    made->size = size;
    made->joined = joined;
    made->next = registry.worlds;
    registry.worlds = made;
    return made;
}

static ta_status enter_world(ta_ccl_group *g, const char *id)
{
    if (!registry.runs) {
        int error = pthread_create(&registry.thread, NULL, watch, NULL);
        if (error)
            return ta_gpu_core->fail(TA_ERR_SYSTEM, "can't start a thread: %s", strerror(error));
        registry.runs = 1;
        atexit(stop_watching);
    }
    ta_ccl_world *world = find_world(id, g->group.size);
    if (!world)
        return ta_gpu_core->fail(TA_ERR_NO_MEMORY, "no memory for a group of %d ranks",
                                 g->group.size);
    if (world->joined[g->group.rank])
        return ta_gpu_core->fail(TA_ERR_INVALID, "rank %d of this id joined already",
                                 g->group.rank);
    world->joined[g->group.rank] = 1;
    world->references++;
    g->world = world;
    g->next = world->members;
    world->members = g;
    pthread_cond_broadcast(&registry.changed);
    return TA_OK;
}

ta_status ta_ccl_register(ta_ccl_group *g, const char *id)
{
    pthread_mutex_lock(&registry.mutex);
    ta_status status = enter_world(g, id);
    pthread_mutex_unlock(&registry.mutex);
    return status;
}

void ta_ccl_describe_joined(ta_ccl_world *world, char *text, size_t capacity)
{
    int joined = 0, used = 0;
    pthread_mutex_lock(&registry.mutex);
    for (int r = 0; r < world->size; r++)
        joined += world->joined[r];
    used = snprintf(text, capacity, "%d of %d came from this process", joined, world->size);
    for (int r = 0, named = 0; r < world->size && named < 8; r++)
        if (!world->joined[r] && (size_t)used < capacity)
            used += snprintf(text + used, capacity - (size_t)used, "%s %d",
                             named++ ? "," : "; not rank", r);
    pthread_mutex_unlock(&registry.mutex);
}

static void leave_world(ta_ccl_group *g)
{
    ta_ccl_world *world = g->world, **link = &registry.worlds;
    ta_ccl_group **member = &world->members;
    while (*member != g)
        member = &(*member)->next;
    *member = g->next;
    if (--world->references > 0)
        return;
    while (*link != world)
        link = &(*link)->next;
    *link = world->next;
    free(world->joined);
    free(world);
}

/* A library that can't finalize waits for the other ranks in its call, on a thread that nobody
 * waits for. */
static void *destroy_blocking(void *argument)
{
    ta_ccl_group *g = argument;
    int done =
        hipSetDevice(g->index) == hipSuccess && g->nccl->ncclCommDestroy(g->comm) == ncclSuccess;
    for (int i = 0; i < g->marked; i++)
        done = done && hipEventSynchronize(g->marks[i].event) == hipSuccess;
    ta_ccl_free(g, done);
    pthread_mutex_lock(&registry.mutex);
    registry.slow--;
    pthread_cond_broadcast(&registry.changed);
    pthread_mutex_unlock(&registry.mutex);
    return NULL;
}

void ta_ccl_destroy(ta_group *group)
{
    ta_ccl_group *g = ta_ccl_of(group);
    pthread_t thread;
    pthread_mutex_lock(&registry.mutex);
    if (g->world)
        leave_world(g);
    g->group.device = NULL; /* the device may be closed now */
    g->since_ms = ta_clock_ms();
    if (g->adopted)
        g->comm = NULL;
    if (g->comm && !g->nccl->ncclCommFinalize &&
        pthread_create(&thread, NULL, destroy_blocking, g) == 0) {
        pthread_detach(thread);
        registry.slow++;
    } else {
        if (g->comm && !g->nccl->ncclCommFinalize)
            abort_communicator(g);
        g->next = registry.leaving;
        registry.leaving = g;
        pthread_cond_broadcast(&registry.changed);
    }
    pthread_mutex_unlock(&registry.mutex);
}
