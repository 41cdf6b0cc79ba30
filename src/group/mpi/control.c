/* Waiting for other MPI processes: in rounds, for a bounded time, while listening on the group's
 * control tag. A rank whose time is up asks all others whom they wait for, and follows the answers
 * from the one that it waits for: the first that gave none is the one to name, and others that gave
 * none are named with it. Before it does so it looks once more: with a short timeout what it waits
 * for may have come meanwhile. See mpi.h. */
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "mpi.h"

/* How a wait goes on: some rounds at full speed, some that give up the CPU, then short sleeps. The
 * ranks may share cores. */
#define BUSY_ROUNDS 100
#define YIELD_ROUNDS 2000
#define SLEEP_NS 50000
/* How often a busy wait looks for control messages and at the clock. */
#define LISTEN_EVERY 16

ta_mpi_wait ta_mpi_wait_begin(int timeout_ms)
{
    return (ta_mpi_wait){ta_clock_ns() + (int64_t)timeout_ms * TA_NS_PER_MS, 0, -1, 0};
}

void ta_mpi_rest(ta_mpi_wait *wait)
{
    const struct timespec nap = {0, SLEEP_NS};
    if (wait->rounds < BUSY_ROUNDS + YIELD_ROUNDS)
        ++wait->rounds;
    if (wait->rounds >= BUSY_ROUNDS + YIELD_ROUNDS)
        nanosleep(&nap, NULL);
    else if (wait->rounds >= BUSY_ROUNDS)
        sched_yield();
}

/* ---- Breaking a group ---- */

/* Before the group is seen to be broken: its communicator is not to be freed. */
void ta_mpi_break(ta_mpi_group *g, ta_status status, const char *reason)
{
    atomic_store(&g->wire->broken, 1);
    ta_break(&g->broken, status, "%s", reason);
}

static ta_status broken_status(ta_mpi_group *g)
{
    ta_status status = ta_broken_status(&g->broken);
    if (status == TA_OK)
        return TA_OK;
    return ta_mpi_core->found_by_other(ta_mpi_core->fail_quietly(status, "%s", g->broken.reason));
}

void ta_mpi_tell(ta_mpi_group *g)
{
    ta_mpi_memory *memory = g->memory;
    MPI_Request *requests = ta_mpi_notices(memory);
    int size = g->group.size, done = 0;
    if (ta_broken_status(&g->broken) == TA_OK || atomic_exchange(&g->told, 1))
        return;
    memory->notice =
        (ta_mpi_control){TA_MPI_BROKEN, g->group.rank, ta_broken_status(&g->broken), 0, ""};
    snprintf(memory->notice.reason, sizeof memory->notice.reason, "%s", g->broken.reason);
    for (int rank = 0; rank < size; ++rank)
        if (rank != g->group.rank)
            MPI_Isend(&memory->notice, sizeof memory->notice, MPI_BYTE, g->wire_ranks[rank],
                      g->tag + 1, g->wire->comm, &requests[rank]);
    /* Some rounds, so that MPI gets to put them on the network. */
    for (int round = 0; round < 50 && !done; ++round)
        done = ta_mpi_all_done(requests, size);
}

ta_status ta_mpi_fail(ta_mpi_group *g, ta_status status, const char *format, ...)
{
    va_list arguments;
    atomic_store(&g->wire->broken, 1); /* as in ta_mpi_break() */
    va_start(arguments, format);
    int first = ta_break_with(&g->broken, status, format, arguments);
    va_end(arguments);
    ta_mpi_tell(g);
    return first ? ta_mpi_core->fail(status, "%s", g->broken.reason) : broken_status(g);
}

ta_status ta_mpi_try(ta_mpi_group *g, int code, const char *function)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (code == MPI_SUCCESS)
        return TA_OK;
    MPI_Error_string(code, text, &length);
    return ta_mpi_fail(g, TA_ERR_SYSTEM, "%s failed on rank %d: %.300s", function, g->group.rank,
                       text);
}

/* ---- Questions and answers ---- */

/* A question or an answer. If the last one to that rank is still on its way, this one is left out;
 * returns whether it was sent. */
static int say(ta_mpi_group *g, int rank, ta_mpi_control_kind kind, int value)
{
    MPI_Request *request = &ta_mpi_controls(g->memory, g->group.size)[rank];
    ta_mpi_control *message = &g->memory->controls[rank];
    int done = 0;
    if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
        return 0;
    *message = (ta_mpi_control){kind, g->group.rank, value, 0, ""};
    MPI_Isend(message, sizeof *message, MPI_BYTE, g->wire_ranks[rank], g->tag + 1, g->wire->comm,
              request);
    return 1;
}

/* Ranks that ask each other at the same time each have a question on its way to the other: answers
 * wait for that. */
static void answer_all(ta_mpi_group *g)
{
    for (int rank = 0; rank < g->group.size && g->questions > 0; ++rank)
        if (g->owes[rank] && say(g, rank, TA_MPI_ANSWER, g->waits_for)) {
            g->owes[rank] = 0;
            g->questions--;
        }
}

static void hear(ta_mpi_group *g, const ta_mpi_control *message)
{
    switch (message->kind) {
    case TA_MPI_BROKEN:
        ta_mpi_break(g, (ta_status)message->value, message->reason);
        atomic_store(&g->told, 1); /* who says it says it to all */
        break;
    case TA_MPI_ASK:
        if (message->rank >= 0 && message->rank < g->group.size && !g->owes[message->rank]) {
            g->owes[message->rank] = 1;
            g->questions++;
        }
        break;
    case TA_MPI_ANSWER:
        if (message->rank >= 0 && message->rank < g->group.size)
            g->answers[message->rank] = message->value;
        break;
    }
}

static ta_status listen_to_all(ta_mpi_group *g)
{
    for (;;) {
        int there = 0;
        MPI_Status status;
        ta_mpi_control message;
        TA_TRY(ta_mpi_try(g, MPI_Iprobe(MPI_ANY_SOURCE, g->tag + 1, g->wire->comm, &there, &status),
                          "MPI_Iprobe"));
        if (!there) {
            answer_all(g);
            return TA_OK;
        }
        TA_TRY(ta_mpi_try(g,
                          MPI_Recv(&message, sizeof message, MPI_BYTE, status.MPI_SOURCE,
                                   g->tag + 1, g->wire->comm, &status),
                          "MPI_Recv"));
        message.reason[sizeof message.reason - 1] = '\0';
        hear(g, &message);
    }
}

ta_status ta_mpi_check(ta_mpi_group *g)
{
    TA_TRY(listen_to_all(g));
    ta_mpi_tell(g); /* if another thread aborted it, and could not say so */
    return broken_status(g);
}

/* What a rank answered: whom it waits for, nobody, or nothing at all; or it was not asked yet. */
enum { NOBODY = -1, SILENT = -2, UNASKED = -3 };

static int all_answered(const ta_mpi_group *g)
{
    for (int rank = 0; rank < g->group.size; ++rank)
        if (g->answers[rank] <= SILENT)
            return 0;
    return 1;
}

static void ask(ta_mpi_group *g)
{
    for (int rank = 0; rank < g->group.size; ++rank)
        if (g->answers[rank] == UNASKED && say(g, rank, TA_MPI_ASK, 0))
            g->answers[rank] = SILENT;
}

/* Ask all ranks, and give them some time. Others must not be kept waiting for our answer. */
static void ask_all(ta_mpi_group *g, int peer)
{
    int timeout = g->group.timeout_ms / 2;
    ta_mpi_wait wait = ta_mpi_wait_begin(timeout < 100 ? 100 : timeout > 2000 ? 2000 : timeout);
    for (int rank = 0; rank < g->group.size; ++rank)
        g->answers[rank] = rank == g->group.rank ? peer : UNASKED;
    while (!all_answered(g) && ta_clock_ns() < wait.deadline) {
        ask(g);
        if (listen_to_all(g) != TA_OK || ta_broken_status(&g->broken) != TA_OK)
            return;
        ta_mpi_rest(&wait);
    }
}

/* The rank that holds everybody up: follow who waits for whom to one that does not wait. */
static int find_missing(const ta_mpi_group *g, int peer)
{
    int missing = peer;
    for (int hops = 0; hops < g->group.size; ++hops) {
        int next = g->answers[missing];
        if (next < 0 || next >= g->group.size)
            return missing;
        if (next == g->group.rank)
            return peer; /* they wait in a circle */
        missing = next;
    }
    return peer;
}

/* Of others that did not answer: "; ranks 2 and 3 did not answer either". */
static void name_silent(ta_mpi_group *g, int missing, char *text, size_t capacity)
{
    char ranks[TA_RANK_LIST_BYTES];
    for (int rank = 0; rank < g->group.size; ++rank)
        g->silent[rank] = rank != missing && g->answers[rank] <= SILENT;
    text[0] = '\0';
    if (ta_rank_list(ranks, g->silent, 1, g->group.size))
        snprintf(text, capacity, "; %s did not answer either", ranks);
}

/* The time is up: whose fault is it? Asked twice, since the first answer may be older than what a
 * rank has sent meanwhile; a rank that is on its way into a call gets as much time again. */
static ta_status end_wait(ta_mpi_group *g, ta_mpi_wait *wait, int peer)
{
    char others[TA_RANK_LIST_BYTES + 40];
    ask_all(g, peer);
    TA_TRY(broken_status(g));
    int missing = find_missing(g, peer);
    if ((missing != wait->suspect || g->answers[missing] == NOBODY) &&
        wait->reprieves++ <= g->group.size) {
        wait->suspect = missing;
        return TA_OK;
    }
    name_silent(g, missing, others, sizeof others);
    return ta_mpi_fail(g, TA_ERR_TIMEOUT,
                       "rank %d did not arrive within %d ms: rank %d waited for it%s", missing,
                       g->group.timeout_ms, g->group.rank, others);
}

ta_status ta_mpi_wait_round(ta_mpi_group *g, ta_mpi_wait *wait, int peer)
{
    g->waits_for = peer;
    ta_mpi_rest(wait);
    if (wait->rounds < BUSY_ROUNDS + YIELD_ROUNDS && wait->rounds % LISTEN_EVERY)
        return TA_OK;
    TA_TRY(ta_mpi_check(g));
    return ta_clock_ns() < wait->deadline ? TA_OK : end_wait(g, wait, peer);
}
