/* Creating a group of MPI processes. First a roll call on the caller's communicator, because the
 * duplication that follows could not tell who is missing: every rank reports to rank 0, which waits
 * for all of them and tells all what came of it. See mpi.h. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "mpi.h"

/* How much longer than rank 0 the others wait, to hear from it who is missing. */
#define VERDICT_MS 2000

typedef enum message_kind { HERE = 1, WAIT, VERDICT } message_kind;

typedef struct message {
    int32_t kind;
    int32_t missing; /* VERDICT: the rank that did not come, -1: all did */
    int32_t tag;     /* VERDICT: of the new group */
    int32_t timeout_ms;
} message;

/* A roll call: its messages and requests outlive a failed call. */
typedef struct roll {
    MPI_Comm comm;
    int rank, size, tag, timeout_ms;
    message wait, verdict; /* from rank 0; `wait` is HERE from the others */
    MPI_Request *requests; /* [2 · size] */
    char *seen;            /* [size], on rank 0 */
} roll;

static atomic_int groups_made;

/* Each process numbers the groups that it is the first rank of. The upper neighbour of a tag is for
 * control. */
ta_status ta_mpi_new_tag(const ta_wire *wire, int *tag)
{
    int64_t number = atomic_fetch_add(&groups_made, 1);
    int64_t wanted = 2 * (number * wire->size + wire->rank);
    if (wanted + 1 > wire->last_tag)
        return ta_mpi_core->fail(TA_ERR_UNSUPPORTED,
                                 "this MPI has %d tags: they do not suffice for group number %lld",
                                 wire->last_tag, (long long)number);
    *tag = (int)wanted;
    return TA_OK;
}

/* Take a message from `source`, if one has come. */
static int receive_message(roll *r, int source, message *received, int *from)
{
    int there = 0;
    MPI_Status status;
    if (MPI_Iprobe(source, r->tag, r->comm, &there, &status) != MPI_SUCCESS || !there)
        return 0;
    *from = status.MPI_SOURCE;
    return MPI_Recv(received, sizeof *received, MPI_BYTE, *from, r->tag, r->comm, &status) ==
           MPI_SUCCESS;
}

/* On rank 0: wait for all. Returns the lowest rank that did not come, -1 if all did. */
static int call_the_roll(roll *r)
{
    ta_mpi_wait wait = ta_mpi_wait_begin(r->timeout_ms);
    int present = 1, missing = -1, from;
    message received;
    r->seen[0] = 1;
    while (present < r->size && ta_clock_ns() < wait.deadline) {
        if (!receive_message(r, MPI_ANY_SOURCE, &received, &from)) {
            ta_mpi_rest(&wait);
            continue;
        }
        present += !r->seen[from];
        r->seen[from] = 1;
    }
    for (int rank = r->size - 1; rank >= 0; --rank)
        if (!r->seen[rank])
            missing = rank;
    return missing;
}

static void send_to_others(roll *r, message *sent, MPI_Request *requests)
{
    for (int rank = 1; rank < r->size; ++rank)
        MPI_Isend(sent, sizeof *sent, MPI_BYTE, rank, r->tag, r->comm, &requests[rank]);
}

/* On the other ranks: wait for rank 0's message of this kind. */
static int await_message(roll *r, message_kind kind, int milliseconds)
{
    ta_mpi_wait wait = ta_mpi_wait_begin(milliseconds);
    int from;
    while (ta_clock_ns() < wait.deadline) {
        if (!receive_message(r, 0, &r->verdict, &from))
            ta_mpi_rest(&wait);
        else if (r->verdict.kind == (int32_t)kind)
            return 1;
    }
    return 0;
}

static ta_status hold_roll_call(roll *r, const ta_wire *wire)
{
    if (r->rank == 0) {
        r->verdict = (message){VERDICT, -1, 0, r->timeout_ms};
        TA_TRY(ta_mpi_new_tag(wire, &r->verdict.tag));
        r->wait = (message){.kind = WAIT};
        send_to_others(r, &r->wait, r->requests);
        r->verdict.missing = call_the_roll(r);
        send_to_others(r, &r->verdict, r->requests + r->size);
    } else {
        r->wait = (message){.kind = HERE};
        MPI_Isend(&r->wait, sizeof r->wait, MPI_BYTE, 0, r->tag, r->comm, &r->requests[0]);
        if (!await_message(r, WAIT, r->timeout_ms) ||
            !await_message(r, VERDICT, r->timeout_ms + VERDICT_MS))
            return ta_mpi_core->fail(TA_ERR_TIMEOUT,
                                     "rank 0 did not join within %d ms: rank %d waited for it",
                                     r->timeout_ms, r->rank);
    }
    if (r->verdict.missing >= 0)
        return ta_mpi_core->fail(TA_ERR_TIMEOUT,
                                 "rank %d did not join within %d ms: rank 0 waited for it",
                                 r->verdict.missing, r->verdict.timeout_ms);
    return TA_OK;
}

static void free_roll_later(roll *r)
{
    /* One block: the roll, its requests, and who was seen. */
    ta_mpi_free_later(r->requests, 2 * r->size, r, NULL);
}

static ta_status make_roll(MPI_Comm comm, const ta_wire *wire, int timeout_ms, roll **made)
{
    size_t size = (size_t)wire->size;
    roll *r = calloc(1, sizeof *r + 2 * size * sizeof(MPI_Request) + size);
    if (!r)
        return ta_mpi_core->fail(TA_ERR_NO_MEMORY, "no memory to call %d ranks", wire->size);
    r->comm = comm;
    r->rank = wire->rank;
    r->size = wire->size;
    r->tag = wire->last_tag + 1;
    r->timeout_ms = timeout_ms;
    r->requests = (MPI_Request *)(r + 1);
    r->seen = (char *)(r->requests + 2 * size);
    for (size_t i = 0; i < 2 * size; ++i)
        r->requests[i] = MPI_REQUEST_NULL;
    *made = r;
    return TA_OK;
}

/* Everybody is here, so that this ends soon, unless somebody dies now. */
static ta_status duplicate(MPI_Comm comm, int timeout_ms, ta_wire *wire)
{
    ta_mpi_wait wait = ta_mpi_wait_begin(timeout_ms);
    MPI_Request *request = malloc(sizeof *request);
    int done = 0;
    if (!request)
        return ta_mpi_core->fail(TA_ERR_NO_MEMORY, "no memory to duplicate a communicator");
    int code = MPI_Comm_idup(comm, &wire->comm, request);
    while (code == MPI_SUCCESS && !done && ta_clock_ns() < wait.deadline) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done)
            ta_mpi_rest(&wait);
    }
    if (!done)
        return ta_mpi_core->fail(code == MPI_SUCCESS ? TA_ERR_TIMEOUT : TA_ERR_SYSTEM,
                                 "the communicator of rank %d was not duplicated within %d ms: a "
                                 "rank died or left after all had joined",
                                 wire->rank, timeout_ms);
    free(request);
    MPI_Comm_set_errhandler(wire->comm, MPI_ERRORS_RETURN);
    return TA_OK;
}

static void describe_wire(MPI_Comm comm, ta_wire *wire)
{
    int level = MPI_THREAD_SINGLE, found = 0, *last_tag = NULL;
    MPI_Comm_rank(comm, &wire->rank);
    MPI_Comm_size(comm, &wire->size);
    MPI_Query_thread(&level);
    wire->speaks = level == MPI_THREAD_MULTIPLE;
    MPI_Comm_get_attr(comm, MPI_TAG_UB, &last_tag, &found);
    wire->last_tag = found ? *last_tag - 1 : 32766; /* the last one is the roll call's */
    atomic_init(&wire->users, 1);
}

ta_status ta_mpi_join(MPI_Comm comm, int timeout_ms, ta_wire **wire, int *tag)
{
    roll *r = NULL;
    ta_status status;
    ta_wire *made = calloc(1, sizeof *made);
    if (!made)
        return ta_mpi_core->fail(TA_ERR_NO_MEMORY, "no memory for a group");
    describe_wire(comm, made);
    TA_TRY_GOTO(make_roll(comm, made, timeout_ms, &r), free_wire);
    status = hold_roll_call(r, made);
    *tag = r->verdict.tag;
    free_roll_later(r);
    if (status != TA_OK)
        goto free_wire;
    TA_TRY(duplicate(comm, timeout_ms, made)); /* on failure MPI may still write to *made */
    *wire = made;
    return TA_OK;

free_wire:
    free(made);
    return status;
}
