/* What a device does: memory, and the local parts of a decode step. A device knows nothing of other
 * ranks. host/ implements it in C; the GPU modules implement the same table.
 *
 * Work is ordered on a stream (NULL and synchronous on the host). A slot that fails has called
 * ta_fail() and has written nothing that a caller may look at. */
#ifndef TA_DEVICE_H
#define TA_DEVICE_H

#include <treeattn/treeattn.h>

#include "base/dtype.h"
#include "base/fault.h"
#include "base/inline.h"
#include "base/partial.h"
#include "base/shard.h"
#include "base/tally.h"
#include "base/text.h"
#include "problem.h"

/* Where rank `rank`'s piece of the gathered new tokens begins, in bytes: its fault, then K of its
 * KV heads, [head][row][k_dim], then V likewise. The last one ends where that of rank `ranks` would
 * begin. */
TA_INLINE int64_t ta_gathered_piece(const ta_problem *p, int64_t rows, int64_t element_bytes,
                                    int32_t rank)
{
    int64_t heads = (int64_t)p->kv_heads * rank / p->shard.ranks;
    return rank * (int64_t)TA_FAULT_BYTES + heads * rows * (p->k_dim + p->v_dim) * element_bytes;
}

/* Where the rows of a KV head are in it: of K, or of V. */
TA_INLINE int64_t ta_gathered_head(const ta_problem *p, int64_t rows, int64_t element_bytes,
                                   int32_t head, int values)
{
    int32_t ranks = p->shard.ranks;
    int32_t rank = (int32_t)(((int64_t)ranks * (head + 1) - 1) / p->kv_heads);
    int64_t first = (int64_t)p->kv_heads * rank / ranks;
    int64_t heads = (int64_t)p->kv_heads * (rank + 1) / ranks - first;
    int64_t before =
        values ? heads * p->k_dim + (head - first) * p->v_dim : (head - first) * p->k_dim;
    return ta_gathered_piece(p, rows, element_bytes, rank) + TA_FAULT_BYTES +
           before * rows * element_bytes;
}

/* What a merge takes in, and the message that it makes. A message is some records and the fault
 * record behind them (fault.h). Records are numbered from the first one of `records`. With no
 * message that arrived, and with none to send, there is nothing to do but for faults. */
typedef struct ta_merge {
    float *records;         /* of this rank: partials, or tallies */
    int32_t v_dim, tallies; /* what they are */
    ta_fault *fault;        /* of this rank and all that it heard of; NULL: nobody has any */

    /* What arrived: records [kept_first, kept_end) in each of some messages. */
    const float *received;  /* of the first message */
    const ta_fault *theirs; /* its fault record; NULL: it has none */
    int64_t stride;         /* floats from one message to the next, and so from fault to fault */
    int32_t messages;       /* how many; 0: nothing arrived */
    int32_t replaces;       /* the message, one, takes the place of `records` and `fault` */
    int64_t kept_first, kept_end;

    /* The message to make: records [given_first, given_end) as they are afterwards, and the fault
     * behind them. */
    float *sent; /* NULL: none */
    int64_t given_first, given_end;
} ta_merge;

/* The records [*first, *end) that a merge takes in or sends. */
TA_INLINE void ta_merge_range(const ta_merge *m, int64_t *first, int64_t *end)
{
    *first = m->messages ? m->kept_first : m->given_first;
    *end = m->messages ? m->kept_end : m->given_end;
    if (m->sent && m->given_first < *first)
        *first = m->given_first;
    if (m->sent && m->given_end > *end)
        *end = m->given_end;
}

/* How merged records become output and lse. */
typedef struct ta_finish {
    ta_problem problem;
    /* The records, from the first one of head 0 on, and what is merged into them first, without
     * changing them; nothing is sent. */
    ta_merge last;
    int32_t first_head, heads; /* the query heads to finish */
    ta_tensor out;             /* with filled strides, its head 0 is first_head; data NULL: none */
    float *lse;                /* or NULL */
    ta_fault *report;          /* pinned host memory, see finish() */
} ta_finish;

/* What a device tells the other ranks of a step whose lengths, starts and bounds are in its memory:
 * `own`, with their hashes added (TA_COMMON_LENGTHS and so on), is written to `to`. */
typedef struct ta_tell {
    ta_fault own;
    ta_fault *to; /* device memory; NULL: nothing is told */
    /* The lists of the whole step, which may be attended to in parts; NULL: it has none. */
    const int32_t *selected;
    uint64_t selected_words;
} ta_tell;

/* The attention of a rank's own keys, as somebody's kernel left it: what a rank brings to a
 * combine. */
typedef struct ta_shard_output {
    ta_tensor out;    /* normalised, all query heads, in the query's dtype; strides are filled in */
    const float *lse; /* device memory [row][query_heads]; -inf: no key, and `out` is not read */
    int32_t base_2;   /* the log-sum-exp's base is 2; 0: e */
} ta_shard_output;

/* New tokens of a cache, and where they come from. A sequence's are its last ones, as many as it
 * has query tokens. */
typedef struct ta_new_tokens {
    ta_tensor k, v; /* [row][kv_heads][dim] as the query's rows are; strides are filled in */
    ta_dtype dtype; /* of them */
    int32_t local;  /* 1: only those that this rank holds, one after the other from 0 on: in each
                     * sequence if calls are uniform, of all sequences if they are ragged */
    /* Instead of k and v: what all ranks gathered, a piece of each rank, see ta_gathered_piece().
     * */
    const void *gathered;
    ta_fault *report; /* pinned host memory; the pieces' faults are looked at as finish() does;
                       * NULL: they have been */
    /* Of a cache of 8 bits whose type is not theirs: 1: the new tokens' scales are made and written
     * (device/new_token.h); 0: they are there. */
    int32_t make_scales;
    int32_t reserved;
} ta_new_tokens;

typedef struct ta_device_ops ta_device_ops;

/* What a device was told to do since it was opened, counted by its slots where they do it. */
typedef struct ta_device_stats {
    uint64_t launches;                           /* kernels queued; the host has none */
    uint64_t copies;                             /* queued; the host counts none */
    uint64_t waits;                              /* times the host waited for a stream */
    uint64_t bytes_to_device, bytes_from_device; /* copied between host and device memory */
    uint64_t bytes_held, bytes_held_most;        /* of ta_device_alloc(): now, and at most so far */
    uint64_t attend_ns;                          /* of attend(), by the device's stopwatch */
} ta_device_stats;

/* Add to a count. Two groups of one device may be at work on two threads. */
static inline void ta_device_count(uint64_t *counter, uint64_t more)
{
    (void)__atomic_fetch_add(counter, more, __ATOMIC_RELAXED);
}

/* A copy of the counts as they are now. */
ta_device_stats ta_device_stats_of(const ta_device *device);

/* Memory of ta_device_alloc(), so that freeing it can be counted. */
typedef struct ta_device_block {
    void *memory;
    size_t bytes;
    struct ta_device_block *next;
} ta_device_block;

struct ta_device {
    const ta_device_ops *ops;
    char name[32];
    ta_device_stats stats;
    ta_device_block *blocks;
    void *stage;        /* see ta_device_stage() */
    int timing;         /* the stopwatch runs */
    int64_t started_ns; /* the stopwatch of a device that has no clock of its own */
    int users;          /* plans and groups; atomic, see ta_device_hold(); -1: closed, and freed */
};

/* Plans and groups hold the device that they use, so that one that is closed before them goes on to
 * exist until the last of them is destroyed. */
void ta_device_hold(ta_device *device);
void ta_device_let_go(ta_device *device);

struct ta_device_ops {
    int has_streams; /* 0: `stream` is always NULL and slots return when their work is done */

    void (*close)(ta_device *device);

    /* The device's address on the PCI bus, "0000:17:00.0"; fails if there is none. NULL: it is
     * not on that bus. */
    ta_status (*bus_id)(ta_device *device, char *text, size_t capacity);

    /* Lines "key: value" about this device for ta_info() and ta_explain(). */
    void (*describe)(const ta_device *device, ta_text *text);

    /* Device memory, 64-byte aligned. */
    ta_status (*alloc)(ta_device *device, size_t bytes, void **memory);
    void (*free)(ta_device *device, void *memory);

    /* Host memory that copies to and from the device fast and in stream order (pinned). NULL: the
     * device's memory is host memory and needs no staging. */
    ta_status (*alloc_host)(ta_device *device, size_t bytes, void **memory);
    void (*free_host)(ta_device *device, void *memory);

    /* Wait until the work on `stream` is done; returns an error that any of it had, with the name
     * of the kernel. NULL on a device without streams. */
    ta_status (*synchronize)(ta_device *device, void *stream);

    /* Is work on `stream` recorded for later (stream capture) instead of run? Waiting for it is an
     * error then. NULL: the device has no capture. */
    int (*capturing)(ta_device *device, void *stream);

    /* Copy between any two of host and device memory, in stream order. `to` is written when the
     * copy runs. `from` in device memory or in memory of alloc_host() must stay as it is until
     * then. Any other host memory has been read when this returns, which means that the host waits
     * for the stream; while the stream is captured that is TA_ERR_UNSUPPORTED. */
    ta_status (*copy)(ta_device *device, void *to, const void *from, size_t bytes, void *stream);

    /* Has the device what it takes to read or write elements of this type as what `role` says (one
     * of them)? Plans ask before anything else; ta_device_check_dtype() has the sentence. */
    int (*has_dtype)(const ta_device *device, ta_dtype dtype, ta_dtype_role role);

    /* Bytes of workspace that attend() needs for this problem. */
    size_t (*attend_bytes)(const ta_device *device, const ta_problem *problem);

    /* Check what can be checked without waiting: pointers, alignment, and on the host also lengths,
     * bounds and page indices. Strides are filled in. */
    ta_status (*check_kv)(ta_device *device, const ta_problem *problem, const ta_kv *kv);

    /* Copy heads [0, heads) of a query tensor with filled strides to dense [head][row][k_dim], in
     * the query's dtype. */
    ta_status (*pack_query)(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                            int32_t heads, void *packed, void *stream);

    /* Copy what the queries see of the slice that problem->shard names to one dense block, K as
     * [batch][kv_heads][slots][k_dim] and then V likewise, in their dtype: what a ring sends. Of
     * 8 bits the scales of K and those of V follow, floats [batch][kv_heads][slots], 1 where
     * there are none. `kv` and max_tokens are those of the whole shard; strides are filled in.
     * `slots` is at least the end of what any query sees; tokens that none sees are neither read
     * nor written. */
    ta_status (*pack_kv)(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                         int32_t slots, void *packed, void *stream);

    /* The partials of all query heads and rows over the tokens of this shard: query_heads · rows
     * records (see partial.h, or base/tally.h if the problem has tiles). The result does not depend
     * on the thread count. All strides are filled in. Sinks are left to finish(). Devices that have
     * tell() also tell what is to be told, in the same launch. */
    ta_status (*attend)(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                        const ta_kv *kv, float *records, void *workspace, const ta_tell *tell,
                        void *stream);

    /* attend() into finish->last.records, and then finish(), where nothing is exchanged in between
     * and nobody is told: a launch less where pieces are merged. NULL: the device gains nothing. */
    ta_status (*attend_and_finish)(ta_device *device, const ta_problem *problem, const ta_tensor *q,
                                   const ta_kv *kv, void *workspace, const ta_finish *finish,
                                   void *stream);

    /* Tell it without attending: for a rank that has nothing to attend with. NULL: the device's
     * memory is host memory, where the host tells. */
    ta_status (*tell)(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                      const ta_tell *tell, void *stream);

    /* Make the partials of a combine: query_heads · rows records, whose l is 1. Tells what is to be
     * told as attend() does, though there are no lengths. */
    ta_status (*make_records)(ta_device *device, const ta_problem *problem,
                              const ta_shard_output *given, float *records, const ta_tell *tell,
                              void *stream);

    /* Store the new tokens that the shard holds in the cache, `kv`, whose lengths count them. A
     * token that is not held, or to which the arguments give no place, is left out. */
    ta_status (*append)(ta_device *device, const ta_problem *problem, const ta_kv *kv,
                        const ta_new_tokens *tokens, void *stream);

    /* Take in what arrived, message after message, and make the next one, in one pass: one kernel
     * on a GPU. Faults are merged too. Where they say that a rank has one, `records` may be left as
     * they are: nobody will read them. */
    ta_status (*merge)(ta_device *device, const ta_merge *merge, void *stream);

    /* Turn records into output and lse. Merges the sink, which is why a sink counts once. If there
     * is a fault, writes neither, but the fault to `report`, unless the host has not yet taken what
     * is there: it sets the status there to TA_OK when it has. */
    ta_status (*finish)(ta_device *device, const ta_finish *finish, void *stream);

    /* As ta_device_timer_start() and _read(), both or none. NULL: the host's clock will do. */
    ta_status (*timer_start)(ta_device *device, void *stream);
    ta_status (*timer_read)(ta_device *device, void *stream, double *seconds);

    /* Around attend(), `end` 0 and then 1, called while the stopwatch runs: unless the stream is
     * captured, add the time in between to stats.attend_ns when the stopwatch is read. NULL with
     * timer_start(). */
    ta_status (*span)(ta_device *device, int end, void *stream);

    /* Graphs, all four or none. record() begins to record what is queued on *stream, which is the
     * device's own, instead of running it. recorded() ends that and makes a graph of it; with graph
     * NULL it is thrown away. replay() queues a graph. drop() waits for the device and frees it. */
    ta_status (*record)(ta_device *device, void **stream);
    ta_status (*recorded)(ta_device *device, void *stream, void **graph);
    ta_status (*replay)(ta_device *device, void *graph, void *stream);
    void (*drop)(ta_device *device, void *graph);

    /* Attention over full sequences, see attention.h. NULL: this device has none. */
    const struct ta_attention_ops *attention;

    /* Devices that address each other's memory, see peers.h. NULL: this one does not. */
    const struct ta_peer_ops *peers;

    /* A decoder's operations beside attention, see model.h. NULL: this device has none. */
    const struct ta_model_ops *model;

    /* NCCL's or RCCL's own calls, see ccl_own.h. NULL: no groups of this device have them. */
    const struct ta_ccl_own_ops *ccl_own;
};

/* TA_ERR_UNSUPPORTED, with the field `name` of the config and its type, if the device lacks it. */
ta_status ta_device_check_dtype(const ta_device *device, const char *name, ta_dtype dtype,
                                ta_dtype_role role);

/* The memory of a plan: the caller's workspace, if it is right, or memory of the device that the
 * plan owns and frees. */
ta_status ta_device_workspace(ta_device *device, void *given, size_t given_bytes, size_t needed,
                              void **memory, int *owned);

/* TA_STAGE_BYTES of pinned host memory that the device keeps, for calls outside of plans; made when
 * it is first asked for. Only of a device whose memory is not host memory. */
#define TA_STAGE_BYTES ((size_t)2 << 20)
ta_status ta_device_stage(ta_device *device, void **memory);

/* Is `stream` being captured? */
static inline int ta_device_captures(ta_device *device, void *stream)
{
    return device->ops->capturing && device->ops->capturing(device, stream);
}

/* into = merge(into, from), partial by partial (device.c). */
ta_status ta_device_merge(ta_device *device, float *into, const float *from, int64_t records,
                          int32_t v_dim, void *stream);

/* check_kv() of a cache whose lengths, bounds and page table are in host memory (check_kv.c). */
ta_status ta_check_host_kv(ta_device *device, const ta_problem *problem, const ta_kv *kv);
/* The check of selected positions that are in host memory (check_selected.c). `marks` is memory of
 * so many bytes for the time of the call. */
ta_status ta_check_host_selected(const ta_problem *problem, const ta_kv *kv, uint64_t *marks);
size_t ta_selected_marks_bytes(const ta_problem *problem);

/* The host device (host/host.c). */
ta_status ta_host_open(const ta_device_config *config, ta_device **device);
/* Which SIMD levels this CPU has, best first, separated by spaces. */
const char *ta_host_simd_levels(void);

#endif
