/* Creating a group of MPI processes. First a roll call on the caller's communicator, because the
 * duplication that follows could not tell who is missing: rank 0 calls all ranks, waits for their
 * answers and tells all what came of it. See mpi.h.
 *
 * Rank 0 numbers its roll calls. A rank that comes too late finds the messages of those that failed
 * without it, tells them by their number and by what rank 0 says of it, and waits for the next one;
 * and what it sent for an old one does not count for a new one. So ranks may try again however
 * their tries overlap. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/status.h"
#include "mpi.h"

/* How much longer than rank 0 the others wait, to hear from it who is missing. */
#define VERDICT_MS 2000
/* A timeout may be shorter than it takes to be heard. Nobody is called missing before this time. */
#define LEAST_MS 500

typedef enum message_kind { CALL = 1, HERE, VERDICT } message_kind;

typedef struct message {
    int32_t kind;
    int32_t number;  /* of the roll call */
    int32_t counted; /* VERDICT: this rank's answer came in time */
    int32_t tag;     /* VERDICT: of the new group */
    int32_t timeout_ms;
    int32_t missing_count;            /* VERDICT */
    char missing[TA_RANK_LIST_BYTES]; /* VERDICT: those that did not come */
} message;

/* A roll call: its messages and requests outlive a failed call. */
typedef struct roll {
    MPI_Comm comm;
    int rank, size, tag, patience_ms;
    message call;          /* the first message of this rank: CALL, or HERE */
    message *verdicts;     /* [size]: rank 0's to each rank, and what another rank received */
    MPI_Request *requests; /* [2 · size] */
    char *seen;            /* [size], on rank 0 */
} roll;

/* What a rank that is not the first knows while it waits. */
typedef struct wait_state {
    int32_t number; /* the last call that it answered; 0: none */
    int was_late;   /* it found a verdict that did not count it */
} wait_state;

static atomic_int roll_calls; /* on processes that are rank 0 */

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

/* On rank 0: wait until all have answered this call. */
static void hear_answers(roll *r)
{
    ta_mpi_wait wait = ta_mpi_wait_begin(r->patience_ms);
    int present = 1, from;
    message received;
    r->seen[0] = 1;
    while (present < r->size && ta_clock_ns() < wait.deadline) {
        if (!receive_message(r, MPI_ANY_SOURCE, &received, &from)) {
            ta_mpi_rest(&wait);
            continue;
        }
        if (received.kind != HERE || received.number != r->call.number || r->seen[from])
            continue; /* the answer to a call that is over */
        r->seen[from] = 1;
        ++present;
    }
}

/* On rank 0: call all, and tell all. */
static ta_status call_the_roll(roll *r, const ta_wire *wire)
{
    message verdict = {.kind = VERDICT, .timeout_ms = r->patience_ms};
    TA_TRY(ta_mpi_new_tag(wire, &verdict.tag));
    verdict.number = atomic_fetch_add(&roll_calls, 1) + 1;
    r->call = (message){.kind = CALL, .number = verdict.number};
    for (int rank = 1; rank < r->size; ++rank)
        MPI_Isend(&r->call, sizeof r->call, MPI_BYTE, rank, r->tag, r->comm, &r->requests[rank]);
    hear_answers(r);
    verdict.missing_count = ta_rank_list(verdict.missing, r->seen, 0, r->size);
    for (int rank = 0; rank < r->size; ++rank) {
        r->verdicts[rank] = verdict;
        r->verdicts[rank].counted = r->seen[rank];
        if (rank > 0)
            MPI_Isend(&r->verdicts[rank], sizeof *r->verdicts, MPI_BYTE, rank, r->tag, r->comm,
                      &r->requests[r->size + rank]);
    }
    return TA_OK;
}

static void answer_call(roll *r, int32_t number, wait_state *state)
{
    MPI_Request *request = &r->requests[0];
    int done = 0;
    /* The answer to an earlier call may still be on its way: rank 0 may never take that one. */
    if (MPI_Test(request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || !done)
        return;
    r->call = (message){.kind = HERE, .number = number};
    MPI_Isend(&r->call, sizeof r->call, MPI_BYTE, 0, r->tag, r->comm, request);
    state->number = number;
}

/* On the other ranks: answer rank 0's calls until one of them has a verdict that counts this rank.
 * What others found without it is over; there may be another call behind it. */
static ta_status await_verdict(roll *r)
{
    ta_mpi_wait wait = ta_mpi_wait_begin(r->patience_ms);
    message *heard = &r->verdicts[0];
    wait_state state = {0, 0};
    int from;
    while (ta_clock_ns() < wait.deadline) {
        if (!receive_message(r, 0, heard, &from)) {
            ta_mpi_rest(&wait);
        } else if (heard->kind == CALL) {
            answer_call(r, heard->number, &state);
            wait = ta_mpi_wait_begin(r->patience_ms + VERDICT_MS);
        } else if (heard->kind == VERDICT && heard->number == state.number) {
            if (heard->counted)
                return TA_OK;
            state.was_late = 1;
            wait = ta_mpi_wait_begin(r->patience_ms);
        }
    }
    if (state.was_late)
        return ta_mpi_core->fail(TA_ERR_TIMEOUT,
                                 "rank %d did not join in time: rank 0 gave up before it came, and "
                                 "did not call again within %d ms",
                                 r->rank, r->patience_ms);
    return ta_mpi_core->fail(TA_ERR_TIMEOUT,
                             "rank 0 did not join within %d ms: rank %d waited for it",
                             r->patience_ms, r->rank);
}

static ta_status hold_roll_call(roll *r, const ta_wire *wire)
{
    TA_TRY(r->rank == 0 ? call_the_roll(r, wire) : await_verdict(r));
    const message *verdict = &r->verdicts[0];
    if (verdict->missing_count > 0)
        return ta_mpi_core->fail(TA_ERR_TIMEOUT, "%.*s did not join within %d ms: rank 0 waited",
                                 (int)sizeof verdict->missing - 1, verdict->missing,
                                 verdict->timeout_ms);
    return TA_OK;
}

static void free_roll_later(roll *r)
{
    /* One block: the roll, its messages and requests, and who was seen. */
    ta_mpi_free_later(r->requests, 2 * r->size, r, NULL);
}

static ta_status make_roll(MPI_Comm comm, const ta_wire *wire, int patience_ms, roll **made)
{
    size_t size = (size_t)wire->size;
    roll *r = calloc(1, sizeof *r + 2 * size * sizeof(MPI_Request) + size * sizeof(message) + size);
    if (!r)
        return ta_mpi_core->fail(TA_ERR_NO_MEMORY, "no memory to call %d ranks", wire->size);
    r->comm = comm;
    r->rank = wire->rank;
    r->size = wire->size;
    r->tag = wire->last_tag + 1;
    r->patience_ms = patience_ms;
    r->requests = (MPI_Request *)(r + 1);
    r->verdicts = (message *)(r->requests + 2 * size);
    r->seen = (char *)(r->verdicts + size);
    for (size_t i = 0; i < 2 * size; ++i)
        r->requests[i] = MPI_REQUEST_NULL;
    *made = r;
    return TA_OK;
}

/* Everybody is here, so that this ends soon, unless somebody dies now. */
static ta_status duplicate(MPI_Comm comm, int patience_ms, ta_wire *wire)
{
    ta_mpi_wait wait = ta_mpi_wait_begin(patience_ms);
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
                                 wire->rank, patience_ms);
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
    int patience_ms = timeout_ms < LEAST_MS ? LEAST_MS : timeout_ms;
    roll *r = NULL;
    ta_status status;
    ta_wire *made = calloc(1, sizeof *made);
    if (!made)
        return ta_mpi_core->fail(TA_ERR_NO_MEMORY, "no memory for a group");
    describe_wire(comm, made);
    TA_TRY_GOTO(make_roll(comm, made, patience_ms, &r), free_wire);
    status = hold_roll_call(r, made);
    *tag = r->verdicts[0].tag;
    free_roll_later(r);
    if (status != TA_OK)
        goto free_wire;
    TA_TRY(duplicate(comm, patience_ms, made)); /* on failure MPI may still write to *made */
    *wire = made;
    return TA_OK;

free_wire:
    free(made);
    return status;
}
