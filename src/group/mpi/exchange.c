/* Messages between MPI processes. A message is cut into pieces that go through the group's own
 * buffers, some of them on their way at any time: so a message may be larger than MPI's counts, the
 * copies overlap with the network, and after a failure MPI holds no pointer to the caller's memory.
 * See mpi.h. */
#include <string.h>

#include "base/status.h"
#include "group/label.h"
#include "mpi.h"

static ta_mpi_flow make_flow(int peer, void *data, size_t bytes)
{
    ta_mpi_flow f = {peer, data, bytes, 0, 0, 0};
    if (peer >= 0)
        f.pieces = bytes ? (bytes - 1) / TA_MPI_PIECE_BYTES + 1 : 1;
    return f;
}

static size_t piece_bytes(const ta_mpi_flow *f, size_t piece)
{
    size_t left = f->bytes - piece * TA_MPI_PIECE_BYTES;
    return left < TA_MPI_PIECE_BYTES ? left : TA_MPI_PIECE_BYTES;
}

static int can_start(const ta_mpi_flow *f)
{
    return f->started < f->pieces && f->started - f->finished < TA_MPI_SLOTS;
}

static ta_status start_sends(ta_mpi_group *g, ta_mpi_flow *f)
{
    for (; can_start(f); ++f->started) {
        int at = (int)(f->started % TA_MPI_SLOTS);
        ta_mpi_slot *slot = &g->memory->out[at];
        size_t bytes = piece_bytes(f, f->started);
        slot->message_bytes = f->bytes;
        slot->label = g->group.label;
        if (bytes)
            memcpy(slot->data, f->data + f->started * TA_MPI_PIECE_BYTES, bytes);
        TA_TRY(ta_mpi_try(g,
                          MPI_Isend(slot, (int)(TA_MPI_SLOT_HEADER + bytes), MPI_BYTE,
                                    g->wire_ranks[f->peer], g->tag, g->wire->comm,
                                    &ta_mpi_out(g->memory)[at]),
                          "MPI_Isend"));
    }
    return TA_OK;
}

static ta_status start_receives(ta_mpi_group *g, ta_mpi_flow *f)
{
    for (; can_start(f); ++f->started) {
        int at = (int)(f->started % TA_MPI_SLOTS);
        TA_TRY(ta_mpi_try(g,
                          MPI_Irecv(&g->memory->in[at], sizeof(ta_mpi_slot), MPI_BYTE,
                                    g->wire_ranks[f->peer], g->tag, g->wire->comm,
                                    &ta_mpi_in(g->memory)[at]),
                          "MPI_Irecv"));
    }
    return TA_OK;
}

static ta_status finish_sends(ta_mpi_group *g, ta_mpi_flow *f)
{
    int done = 1;
    while (f->finished < f->started && done) {
        MPI_Request *request = &ta_mpi_out(g->memory)[f->finished % TA_MPI_SLOTS];
        TA_TRY(ta_mpi_try(g, MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test of a send"));
        f->finished += (size_t)done;
    }
    return TA_OK;
}

/* Take a piece that has arrived. */
static ta_status take(ta_mpi_group *g, ta_mpi_flow *f, const ta_mpi_slot *slot, int count)
{
    size_t bytes = piece_bytes(f, f->finished);
    if (slot->label != g->group.label) {
        char sentence[TA_LABEL_SENTENCE];
        ta_label_difference(g->group.rank, g->group.label, f->peer, slot->label, sentence);
        return ta_mpi_fail(g, TA_ERR_MISMATCH, "%s", sentence);
    }
    if (slot->message_bytes != f->bytes || (size_t)count != TA_MPI_SLOT_HEADER + bytes)
        return ta_mpi_fail(g, TA_ERR_MISMATCH,
                           "rank %d sent %llu bytes where rank %d expected %zu: the ranks are not "
                           "in the same call",
                           f->peer, (unsigned long long)slot->message_bytes, g->group.rank,
                           f->bytes);
    if (bytes)
        memcpy(f->data + f->finished * TA_MPI_PIECE_BYTES, slot->data, bytes);
    ++f->finished;
    return TA_OK;
}

static ta_status finish_receives(ta_mpi_group *g, ta_mpi_flow *f)
{
    int done = 1, count = 0;
    while (f->finished < f->started && done) {
        size_t at = f->finished % TA_MPI_SLOTS;
        MPI_Status status;
        TA_TRY(ta_mpi_try(g, MPI_Test(&ta_mpi_in(g->memory)[at], &done, &status),
                          "MPI_Test of a receive"));
        if (!done)
            return TA_OK;
        MPI_Get_count(&status, MPI_BYTE, &count);
        TA_TRY(take(g, f, &g->memory->in[at], count));
    }
    return TA_OK;
}

static ta_status run_flows(ta_mpi_group *g, ta_mpi_flow *out, ta_mpi_flow *in)
{
    ta_mpi_wait wait = ta_mpi_wait_begin(g->group.timeout_ms);
    while (out->finished < out->pieces || in->finished < in->pieces) {
        size_t before = out->finished + in->finished;
        TA_TRY(start_receives(g, in));
        TA_TRY(start_sends(g, out));
        TA_TRY(finish_receives(g, in));
        TA_TRY(finish_sends(g, out));
        if (out->finished + in->finished != before)
            wait = ta_mpi_wait_begin(g->group.timeout_ms); /* it goes on: the clock starts anew */
        else
            TA_TRY(ta_mpi_wait_round(g, &wait, in->finished < in->pieces ? in->peer : out->peer));
    }
    return TA_OK;
}

/* After a failure: MPI gives up what has not arrived. */
static void cancel_receives(ta_mpi_group *g)
{
    for (; g->in.finished < g->in.started; ++g->in.finished) {
        MPI_Request *request = &ta_mpi_in(g->memory)[g->in.finished % TA_MPI_SLOTS];
        if (*request != MPI_REQUEST_NULL)
            MPI_Cancel(request);
    }
}

ta_status ta_mpi_start(ta_group *group, const void *send, size_t send_bytes, int to, void *receive,
                       size_t receive_bytes, int from, void *stream)
{
    ta_mpi_group *g = (ta_mpi_group *)group;
    ta_status status;
    (void)stream;
    atomic_store(&g->owner, pthread_self());
    TA_TRY(ta_mpi_check(g));
    g->out = make_flow(to, (void *)send, send_bytes);
    g->in = make_flow(from, receive, receive_bytes);
    TA_TRY_GOTO(start_receives(g, &g->in), cancel_started);
    TA_TRY_GOTO(start_sends(g, &g->out), cancel_started);
    return TA_OK;

cancel_started:
    cancel_receives(g);
    return status;
}

ta_status ta_mpi_finish(ta_group *group, void *stream)
{
    ta_mpi_group *g = (ta_mpi_group *)group;
    (void)stream;
    ta_status status = run_flows(g, &g->out, &g->in);
    g->waits_for = -1;
    if (status != TA_OK)
        cancel_receives(g);
    return status;
}

ta_status ta_mpi_exchange(ta_group *group, const void *send, size_t send_bytes, int to,
                          void *receive, size_t receive_bytes, int from, void *stream)
{
    TA_TRY(ta_mpi_start(group, send, send_bytes, to, receive, receive_bytes, from, stream));
    return ta_mpi_finish(group, stream);
}
