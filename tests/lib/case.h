/* A decode case: one call of ta_decode() on every rank, with all its options, layouts and inputs,
 * compared with the oracle on every rank that gets a result.
 *
 * case.c        the parameters: random from a seed, and as one line of text
 * case_data.c   the whole sequences, the expected results and their bounds
 * case_shard.c  the buffers of one rank: poisoned, then filled with what the rank holds
 * case_device.c their copies in the device's memory, where that is not the host's
 * case_run.c    the calls and the checks
 *
 * Programs use case_random() or fill in a decode_case themselves, then case_run(). */
#ifndef TESTS_CASE_H
#define TESTS_CASE_H

#include <stdbool.h>
#include <stdint.h>

#include <treeattn/treeattn.h>

#include "bound.h"
#include "random.h"

#define CASE_MAX_BATCH 8
#define CASE_MAX_RANKS 16
#define CASE_MAX_HEADS 128

/* How the axes of a tensor lie in memory, and the unused elements between them. */
typedef struct case_layout {
    int order; /* 0 to 5: a permutation of batch (or page), token, head; 0 is the dense order */
    int pad_head, pad_token, pad_batch;
    int offset;         /* elements by which the data is moved off its alignment */
    bool strides_given; /* if not, they are left at 0; only for order 0 without padding */
} case_layout;

typedef enum case_bounds {
    CASE_BOUNDS_NONE,
    CASE_BOUNDS_SHARED, /* one row for all sequences */
    CASE_BOUNDS_EACH
} case_bounds;

typedef enum case_special {
    CASE_SPECIAL_NONE,
    CASE_NAN_QUERY,
    CASE_NAN_KEY,
    CASE_NAN_VALUE,
    CASE_INFINITE_KEY, /* of either sign: scores become +inf, -inf or NaN */
    CASE_INFINITE_VALUE
} case_special;

/* Scales of K or V of 8 bits. */
typedef enum case_scales {
    CASE_SCALES_NONE,
    CASE_SCALES_TENSOR,
    CASE_SCALES_HEADS,
    CASE_SCALES_TOKENS /* one for each token and KV head */
} case_scales;

typedef struct decode_case {
    uint64_t seed; /* of the inputs */
    int ranks;
    int threads;   /* of the device */
    char simd[16]; /* "": the best */
    /* Rank r runs on device[r % 2]; NULL: all on the device that the program was told to use. */
    const char *device[2];
    /* As the ranks will give it, but for alibi_slopes, sinks, workspace and max_tokens. */
    ta_plan_config plan;
    int spare_tokens; /* max_tokens beyond what the fullest rank holds */
    bool alibi, sinks;
    /* What the call adds. plan.batch is the call's; the plan is given spare_batch more. */
    int spare_batch;
    bool ragged;
    int32_t tokens[CASE_MAX_BATCH]; /* ragged: query tokens of each sequence, up to the plan's */
    int spare_call_tokens;          /* max_call_tokens beyond the call's; -1: it is left at 0 */
    /* These come with the call, in place of others that the plan is given. */
    bool call_window, call_softcap, call_alibi, call_sinks;
    /* Selected positions: places of a list; 0: none are selected. And has each KV head a list? */
    int32_t selected;
    bool selected_each, selected_reversed;
    /* Shared prefixes: sequence b begins with the first prefix[b] tokens of sequence group[b],
     * which is b itself or one before it. Groups are neighbours and have the same prefix. */
    bool prefixes;
    int group[CASE_MAX_BATCH];
    int32_t prefix[CASE_MAX_BATCH];
    int32_t weights[CASE_MAX_RANKS]; /* of a weighted shard map */
    int32_t lengths[CASE_MAX_BATCH];
    case_bounds bounds;
    bool paged;
    int32_t page_tokens, spare_pages;
    int orderly_pages; /* one page in so many is out of order; 0: all are */
    case_layout k, v, q, out;
    bool v_in_k; /* V is part of K's memory, from k_dim element `v_offset` on */
    int v_offset;
    bool own_workspace; /* the caller's */
    bool want_lse;
    bool absent_null;       /* a rank without a query or output passes NULL, not an empty tensor */
    double query_deviation; /* of the random query elements */
    double key_deviation;
    double value_mean;
    int value_binades;    /* values are multiplied by 2^-n … 2^n, of each element at random */
    case_special special; /* put one such number into the inputs */
    /* Some keys, never the first, have scores below the range of binary32: their weight is 0. Needs
     * a type with the range of binary32, and no window. */
    bool far_keys;
    case_scales k_scale, v_scale; /* only with 8 bits */
} decode_case;

/* The smallest whole case: one of everything, dense. */
decode_case case_plain(void);

/* The same with 4 query heads over 2 KV heads of `dim`. */
decode_case case_grouped(int dim, int tokens);

/* Everything from one number. Seeds below CASE_LARGE_SEEDS give up to some dozens of tokens, those
 * from it on give thousands, so that tiles and splits are crossed. */
#define CASE_LARGE_SEEDS 1000000
decode_case case_random(uint64_t seed);

/* The same on a given number of ranks; 0: random. */
decode_case case_random_on(uint64_t seed, int ranks);

/* 8 bits with scales of every kind, pages, a window and sinks at once, often a ragged call; some in
 * checked mode, some reproducible, and on GPUs some that are replayed. */
decode_case case_combined(uint64_t seed, int ranks);

/* Can so many ranks have this kind, with the output there? The one place that says what a kind can
 * not do; the kinds are those below TA_EXCHANGE_KINDS (exchange/kinds.h). */
bool case_exchange_possible(ta_exchange kind, int ranks, ta_placement out);

/* Query tokens of a sequence; its first row; and all rows, of one head. */
int case_query_tokens(const decode_case *c, int sequence);
int64_t case_first_row(const decode_case *c, int sequence);
int64_t case_rows(const decode_case *c);

/* Draw lists, or prefixes, from the case's seed, for a case that has none. */
void case_select(decode_case *c);
void case_share_prefixes(decode_case *c);

/* How many of a sequence's tokens are another's: 0 of the first one of a group. */
int32_t case_borrowed(const decode_case *c, int sequence);

/* Make it reproducible, with tiles of so many tokens: a tree, and blocks that are multiples. */
void case_reproducible(decode_case *c, int32_t tile);

/* The parameters in one line. */
void case_describe(const decode_case *c, char *text, size_t capacity);

/* Run it. Returns false if anything is wrong, and then `failure` says what, where, and the case.
 * The worst ratios of the results to their bounds are included in `worst`. A case of more ranks
 * than the options allow is left out. */
bool case_run(const decode_case *c, bound_worst *worst, char *failure, size_t capacity);

/* All results of a case, by the oracle's index, and their bounds. Free with case_kept_free(). */
typedef struct case_kept {
    int64_t out_count, lse_count;
    double *out, *out_bound, *lse, *lse_bound;
} case_kept;

/* As case_run(), and keep what came out. */
bool case_run_keep(const decode_case *c, bound_worst *worst, case_kept *kept, char *failure,
                   size_t capacity);
void case_kept_free(case_kept *kept);

/* Are types of 8 bits drawn? True unless a program sets it. */
extern bool case_draws_narrow;

/* How the ranks of a case are run; threads of this process unless a program sets it. Like
 * ta_group_run_threads(). */
typedef ta_status (*case_launch_fn)(int ranks, const ta_group_config *config, ta_rank_fn fn,
                                    void *context);
extern case_launch_fn case_launch;

/* Launch a case's ranks, with patience for slow machines. `found` says what went wrong; "" if
 * nothing did. */
void case_launch_ranks(int ranks, ta_rank_fn fn, void *context, char *found, size_t capacity);

/* Steps of each case: 2 unless a program sets it. Every one finds what the last left behind. */
extern int case_steps;

/* Do all ranks have the same kind of device, so that they end with the same bits? True unless a
 * program sets it. */
extern bool case_same_bits;

/* ---- Inside the case ----------------------------------------------------------------------- */

/* What all ranks together have, and what must come out. */
typedef struct case_data {
    oracle_problem problem;
    float alibi[CASE_MAX_HEADS], sinks[CASE_MAX_HEADS];
    int32_t bounds[CASE_MAX_BATCH][CASE_MAX_RANKS + 1];
    int32_t max_tokens;
    double *q[CASE_MAX_BATCH], *k[CASE_MAX_BATCH], *v[CASE_MAX_BATCH]; /* as oracle_sequence */
    void *q_stored[CASE_MAX_BATCH], *k_stored[CASE_MAX_BATCH], *v_stored[CASE_MAX_BATCH];
    float *k_scales[CASE_MAX_BATCH], *v_scales[CASE_MAX_BATCH]; /* [position][kv_heads] */
    int32_t *selected;                                          /* [row][list][place], or NULL */
    int64_t selected_words;
    double *out, *out_bound; /* [row][query_heads][v_dim], row after row of all sequences */
    double *lse, *lse_bound; /* [row][query_heads] */
} case_data;

void case_data_make(const decode_case *c, case_data *data);
void case_data_free(const decode_case *c, case_data *data);

/* Which rank holds this position of this sequence. */
int case_owner(const decode_case *c, const case_data *data, int sequence, int32_t position);

/* Memory of a tensor: `count` elements of `dtype`, the data of the tensor somewhere inside. */
typedef struct case_buffer {
    void *memory;
    int64_t count;
    ta_dtype dtype;
    ta_tensor tensor;  /* as given to the library */
    int64_t stride[3]; /* as they really are: batch, token, head */
    bool *used;        /* out: the elements that must be written */
} case_buffer;

/* The element's index in `memory`. */
int64_t case_buffer_index(const case_buffer *buffer, int batch, int token, int head, int d);

/* Of a query or output: element 0 of a head of a sequence's query token. */
int64_t case_row_index(const decode_case *c, const case_buffer *buffer, int sequence, int token,
                       int head);

/* A copy of a buffer in the device's memory. */
typedef struct case_copy {
    void *host, *device;
    size_t bytes;
} case_copy;

#define CASE_MAX_COPIES 18

/* The buffers of one rank. */
typedef struct case_shard {
    int query_first, query_count, out_first, out_count; /* heads */
    case_buffer q, k, v, out;
    float *lse; /* guarded by CASE_GUARD floats at either end */
    int64_t lse_count;
    int32_t *lengths, *page_table, *bounds;
    size_t lengths_count, page_table_count, bounds_count;
    int32_t *starts; /* [batch + 1], or NULL */
    int32_t *selected, *prefix_starts, *prefix_lengths;
    float *slopes, *sinks;
    size_t starts_count, head_count, selected_count;
    float *k_scales, *v_scales;
    size_t k_scales_count, v_scales_count;
    ta_kv kv;
    ta_call call;
    ta_device *device; /* what the copies belong to */
    case_copy copies[CASE_MAX_COPIES];
    int copy_count;
} case_shard;

#define CASE_GUARD 16

void case_shard_make(const decode_case *c, const case_data *data, int rank, case_shard *shard);
void case_shard_free(case_shard *shard);

/* Move the shard's buffers to the device: afterwards its tensors and `kv` point there. On the host
 * they stay where they are. */
ta_status case_shard_to_device(case_shard *shard, ta_device *device);

/* This rank's group, as the options say, and its device: `name`, or one of that name for each rank;
 * case_group.c. On failure close them too. */
ta_status case_rank_open(ta_group *threads, const char *name, const ta_device_config *config,
                         ta_device **device, ta_group **group);
void case_rank_close(ta_group *threads, ta_device *device, ta_group *group);

/* One rank between the two: `use` with its group and device, then, whatever came of it, `release`
 * of what `use` made. The group of a rank that failed is aborted before: the others wait for it. On
 * the host the device has so many threads. */
ta_status case_rank_run(ta_group *threads, int device_threads,
                        ta_status (*use)(ta_group *group, ta_device *device, void *context),
                        void (*release)(void *context), void *context);

/* The device's address for a host address inside one of the buffers. */
void *case_on_device(const case_shard *shard, const void *host);

/* Bring all buffers up to date on the device, or back on the host. */
ta_status case_copy_all(const case_shard *shard, bool to_device);

/* The plan of this rank, in *workspace, the caller's, if the case says so. */
ta_status case_plan_make(const decode_case *c, const case_data *data, ta_group *group,
                         ta_device *device, void **workspace, ta_plan **plan);

/* One rank of a case with all that it has: its group and device (case_rank_open()), its shard there
 * and its plan, which are released whatever came of `use`. */
typedef ta_status case_plan_user(ta_group *group, ta_plan *plan, case_shard *shard, void *context);
ta_status case_plan_use(const decode_case *c, const case_data *data, ta_group *threads,
                        const char *name, const ta_device_config *config, case_plan_user *use,
                        void *context);

/* The parts of one step: poison the results and bring all to the device; ta_decode(), which on a
 * GPU has only been queued when it returns. */
ta_status case_fill(case_shard *shard);
ta_status case_queue(const decode_case *c, ta_plan *plan, const case_shard *shard, void *stream);

/* Compare the results of a rank, on the host again, with the oracle's. Returns what is wrong, or
 * NULL; valid until the next call. */
const char *case_check(const decode_case *c, const case_data *data, const case_shard *shard);

#endif
