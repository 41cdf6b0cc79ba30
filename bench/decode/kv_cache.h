/* The KV cache that a row reads. One allocation serves all rows: each row divides it into the
 * shards of its ranks anew. Its contents do not depend on the row, only on the element type, so
 * that filling it is needed once per type.
 *
 * A row's cache is kv_cache_layout; addresses in it are worked out here for ta_decode() and, in
 * kv_cache_token(), for the check. */
#ifndef BENCH_KV_CACHE_H
#define BENCH_KV_CACHE_H

#include <stdint.h>

#include <treeattn/treeattn.h>

#include "common/read_loops.h"
#include "options.h"

typedef struct kv_arena {
    char *data;
    size_t bytes;
    int pages;       /* the kind that it asked for, see common/pages.h */
    ta_dtype filled; /* the type of its contents, TA_DTYPE_NONE at first */
} kv_arena;

/* What one rank holds, and where. */
typedef struct kv_shard {
    char *k, *v;
    int32_t tokens;      /* of each sequence */
    int32_t *page_table; /* [batch][pages_per_sequence], NULL if not paged */
} kv_shard;

typedef struct kv_layout {
    const bench_case *row;
    int32_t batch, k_dim, v_dim;
    int32_t v_own;  /* elements of V that are not K's: v_dim, or 0 */
    int32_t v_step; /* elements from one vector of V to the next: v_dim, or k_dim */
    int cyclic;
    int32_t block;       /* of a cyclic map */
    int32_t *bounds;     /* [ranks + 1], of a contiguous map */
    int32_t *lengths;    /* [batch] */
    int32_t max_tokens;  /* the most that one rank holds of a sequence */
    int32_t page_tokens; /* 0: not paged */
    int32_t pages_per_sequence;
    /* Strides of K in elements of K divided by k_dim; those of V are the same times v_step. */
    int64_t batch_stride, token_stride, head_stride;
    int64_t shard_vectors; /* head vectors that one rank's K has room for; V has the same */
    kv_shard *shards;      /* [ranks] */
    const char *arena;     /* where the first one begins */
} kv_layout;

/* The most tokens of a sequence that one rank holds. */
int32_t kv_most_tokens(const decode_options *options, const bench_case *row);

/* Bytes that a row's cache takes, as a double because a request may be absurd. */
double kv_layout_bytes(const decode_options *options, const bench_case *row);

/* Bytes of K and V of all sequences; and what of them one step must read: every key and value
 * once, a shared prefix once for all, and of selected positions what each row sees. */
double kv_whole_bytes(const decode_options *options, const bench_case *row);
double kv_read_bytes(const decode_options *options, const bench_case *row);

/* In pages of this kind. Returns -1 without memory. */
int kv_arena_alloc(kv_arena *arena, size_t bytes, int pages);
void kv_arena_free(kv_arena *arena);

/* Fill the whole arena with values of this type in [-1, 1], unless it is so already. Returns -1
 * if a thread could not be made. */
int kv_arena_fill(kv_arena *arena, ta_dtype dtype, int threads);

/* With MPI, after kv_layout_make(): fill the shard of this process. The others' have addresses but
 * no memory. */
int kv_shard_fill(const kv_layout *layout, int threads);

/* Bytes of one rank's K and V. */
size_t kv_shard_bytes(const kv_layout *layout);

/* Divide the arena into a row's shards. Returns -1 without memory; then there is nothing to
 * free. */
int kv_layout_make(kv_layout *layout, const decode_options *options, const bench_case *row,
                   kv_arena *arena);
void kv_layout_free(kv_layout *layout);

/* What a step reads of the ranks [first, end), as pieces of memory: all of it at once, or what is
 * together in each page, sequence by sequence in their order. Free with free(). NULL without
 * memory. */
read_piece *kv_layout_pieces(const kv_layout *layout, int first, int end, size_t *count);

/* Elements of K or V at an address of kv_layout_at(): with MPI, those of other processes are
 * computed. */
void kv_layout_read(const kv_layout *layout, const void *at, int64_t count, double *values);

/* The cache of one rank as ta_decode() takes it. */
void kv_layout_view(const kv_layout *layout, int rank, ta_kv *kv);

/* The position in the whole sequence of a rank's token at `local`. */
int32_t kv_layout_position(const kv_layout *layout, int rank, int32_t local);

/* K and V of one token and KV head: the first of k_dim and of v_dim elements. */
typedef struct kv_vectors {
    const void *k, *v;
} kv_vectors;
kv_vectors kv_layout_at(const kv_layout *layout, int rank, int32_t sequence, int32_t local,
                        int32_t kv_head);

#endif
