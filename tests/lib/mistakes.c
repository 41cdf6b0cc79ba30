/* See mistakes.h. */
#include "mistakes.h"

#include <math.h>
#include <string.h>

#include "spoil.h"

__thread ta_append_input mistake_tokens;
__thread ta_lse_base mistake_base;

static __thread int32_t pages[SMALL_BATCH * SMALL_TOKENS];

#define SPOIL(name, change) SPOIL_FUNCTION(name, small_step *step, change)
SPOIL(nothing, (void)step)
SPOIL(one_ahead, ++step->lengths[0])
SPOIL(other_tag, step->call.tag = 5)
SPOIL(negative_length, step->lengths[1] = -1)
SPOIL(long_length, step->lengths[0] = 1000)
SPOIL(no_lengths, step->kv.lengths = NULL)
SPOIL(all_behind, --step->lengths[0])
SPOIL(no_query, step->q.data = NULL)
SPOIL(no_out, step->out.data = NULL)
SPOIL(no_keys, step->kv.k.data = NULL)
SPOIL(no_size, step->kv.size = 0)
SPOIL(newer, step->call.size = sizeof(ta_call) + 4096)
SPOIL(other_starts, small_step_ragged(step, 3); step->starts[1] = step->rank == 1 ? 1 : 2;
      step->starts[2] = 3)
SPOIL(late_starts, small_step_ragged(step, 4); step->starts[1] = step->rank == 1 ? 3 : 2)
SPOIL(layer_window, step->call.window = 3)
SPOIL(fewer_sequences, step->call.batch = 1)
SPOIL(fewer_tokens, small_step_ragged(step, step->rank == 1 ? 3 : 4);
      step->starts[2] = step->call.tokens)
SPOIL(more_tokens, small_step_ragged(step, step->rank == 1 ? 4 : 3);
      step->starts[2] = step->call.tokens)
SPOIL(many_tokens, small_step_ragged(step, 5))
SPOIL(odd_keys, step->kv.k.data = (char *)step->keys + 2)
SPOIL(narrow_out, step->out.token_stride = 8)
SPOIL(negative_stride, step->kv.v.token_stride = -16)
SPOIL(other_batch, step->config.batch = 1)
SPOIL(other_window, step->config.window = 3)
SPOIL(other_weights, step->config.weights = TA_WEIGHTS_ROUNDED)
SPOIL(unknown_weights, step->config.weights = (ta_weights)2)
SPOIL(odd_heads, step->config.kv_heads = 3)
SPOIL(stride_in_bytes, step->kv.k.token_stride = SMALL_KV_HEADS * SMALL_K_DIM * 4;
      step->kv.k_bytes = sizeof step->keys)
SPOIL(short_memory, step->kv.v_bytes = sizeof step->values / 2)
SPOIL(other_query, step->query[3] += 1)
SPOIL(out_in_keys, step->out.data = step->keys)
SPOIL(out_in_values, step->out.data = step->values)

static void local_lengths(small_step *step)
{
    for (int b = 0; b < SMALL_BATCH; ++b)
        step->lengths[b] = (step->lengths[b] + step->ranks - 1 - step->rank) / step->ranks;
}

static void bounds(small_step *step, int32_t second)
{
    step->config.map.kind = TA_SHARD_CONTIGUOUS;
    step->config.map.block = 0;
    step->kv.bounds = step->bounds;
    step->bounds[1] = second;
    step->bounds[2] = 4;
    step->bounds[3] = SMALL_TOKENS;
}

SPOIL(other_bounds, bounds(step, step->rank == 1 ? 3 : 2))
SPOIL(falling_bounds, bounds(step, step->rank == 1 ? 6 : 2))

static void page(small_step *step, int32_t entry)
{
    step->kv.page_table = pages;
    step->kv.page_table_stride = SMALL_TOKENS;
    step->kv.page_tokens = 1;
    step->kv.page_count = 2 * SMALL_TOKENS;
    pages[1] = entry;
}

SPOIL(far_page, page(step, 2 * SMALL_TOKENS))
SPOIL(stale_page, page(step, 2 * SMALL_TOKENS - 1))

/* Lists of all rows: the first three positions, which all sequences have. */
static __thread int32_t lists[SMALL_BATCH * SMALL_QUERY_TOKENS][4];

static void select_first(small_step *step, int32_t last)
{
    for (int row = 0; row < SMALL_BATCH * SMALL_QUERY_TOKENS; ++row)
        for (int i = 0; i < 4; ++i)
            lists[row][i] = i < 3 ? i : -1;
    lists[1][3] = last;
    step->call.selected = lists[0];
    step->call.selected_count = 4;
}

SPOIL(selected_twice, select_first(step, 1))
SPOIL(selected_beyond, select_first(step, SMALL_TOKENS))
SPOIL(other_selected, select_first(step, step->rank == 1 ? 6 : 5))
SPOIL(no_room_for_prefixes, step->call.prefix_groups = 1)

SPOIL(no_new_values, (void)step; mistake_tokens.v.data = NULL)
SPOIL(no_input_size, (void)step; mistake_tokens.size = 0)
SPOIL(other_dtype, (void)step; mistake_tokens.dtype = TA_F16)
SPOIL(bad_source, (void)step; mistake_tokens.source = (ta_append_source)3)
SPOIL(other_base, (void)step; mistake_base = TA_LSE_2)
SPOIL(bad_base, (void)step; mistake_base = (ta_lse_base)10)
SPOIL(a_window, step->call.window = 5)

/* Each rank has the sinks or slopes of its call; those of rank 1 are another layer's. */
static void sinks(small_step *step, int layer)
{
    for (int h = 0; h < SMALL_HEADS; ++h)
        step->sinks[h] = 0.5f * (float)(h + layer);
    step->call.sinks = step->sinks;
}

static void slopes(small_step *step, int layer)
{
    for (int h = 0; h < SMALL_HEADS; ++h)
        step->slopes[h] = 0.25f * (float)(h + layer);
    step->call.alibi_slopes = step->slopes;
}

SPOIL(other_sinks, sinks(step, step->rank == 1))
SPOIL(other_slopes, slopes(step, step->rank == 1))
SPOIL(sinks_of_one, sinks(step, 1))

/* A cache of 8 bits, with a scale for each KV head. */
static void narrow(small_step *step, ta_dtype dtype, float second)
{
    step->config.kv_dtype = dtype;
    step->config.query_dtype = TA_F32;
    step->sinks[0] = 1.0f;
    step->sinks[1] = second;
    step->kv.k_scale = step->kv.v_scale = (ta_scales){step->sinks, 0, 0, 1};
    mistake_tokens.dtype = TA_F32;
}

SPOIL(no_query_dtype, step->config.kv_dtype = TA_E4M3)
SPOIL(zero_scale, narrow(step, TA_E4M3, step->rank == 1 ? 0.0f : 1.0f))
SPOIL(nan_scale, narrow(step, TA_E4M3, step->rank == 1 ? NAN : 1.0f))
SPOIL(wide_scales, narrow(step, TA_BF16, 1.0f))
SPOIL(few_scales, narrow(step, TA_E4M3, 1.0f); mistake_tokens.make_scales = 1)

/* A scale for each token and KV head, which nobody has written on rank 1. */
static __thread float token_scales[SMALL_BATCH * SMALL_TOKENS * SMALL_KV_HEADS];

static void narrow_tokens(small_step *step, float scale)
{
    narrow(step, TA_E4M3, 1.0f);
    for (size_t i = 0; i < sizeof token_scales / sizeof *token_scales; ++i)
        token_scales[i] = scale;
    step->kv.k_scale = step->kv.v_scale =
        (ta_scales){token_scales, SMALL_TOKENS * SMALL_KV_HEADS, SMALL_KV_HEADS, 1};
}

SPOIL(no_token_scales, narrow_tokens(step, step->rank == 1 ? 0.0f : 1.0f))
SPOIL(other_dialect, narrow(step, step->rank == 1 ? TA_E4M3_FNUZ : TA_E4M3, 1.0f))
SPOIL(all_other_dialect, narrow(step, TA_E4M3, 1.0f); memset(step->keys, 0x80, sizeof step->keys))

void mistake_reset(const small_step *step)
{
    mistake_tokens = (ta_append_input)TA_APPEND_INPUT_INIT;
    mistake_tokens.source = TA_APPEND_HEADS;
    mistake_tokens.k.data = mistake_tokens.v.data = (void *)step->query;
    mistake_base = TA_LSE_E;
    for (int i = 0; i < SMALL_BATCH * SMALL_TOKENS; ++i)
        pages[i] = i;
}

const mistake mistake_list[] = {
    {"none", ONE_RANK, nothing},
    {"every rank gives the lengths of its shard", ALL_RANKS, local_lengths},
    {"one rank is a token ahead", ONE_RANK, one_ahead},
    {"one rank is in another layer's call, with tags", ONE_RANK, other_tag},
    {"other bounds", ALL_RANKS, other_bounds},
    {"bounds that fall", ALL_RANKS, falling_bounds},
    {"other starts of as many query tokens", ALL_RANKS, other_starts},
    {"fewer sequences in the call", ONE_RANK, fewer_sequences},
    {"fewer query tokens in the call", ALL_RANKS, fewer_tokens},
    {"more query tokens in the call", ALL_RANKS, more_tokens},
    {"more query tokens of a sequence than the plan has", ALL_RANKS, late_starts},
    {"more query tokens than the plan has", ALL_RANKS, many_tokens},
    {"another layer's window", ONE_RANK, layer_window},
    {"a position that is selected twice", ALL_RANKS, selected_twice},
    {"a selected position beyond the sequence", ALL_RANKS, selected_beyond},
    {"other selected positions", ALL_RANKS, other_selected},
    {"shared prefixes that the plan has no room for", ONE_RANK, no_room_for_prefixes},
    {"two plans called in another order", PLAN_ORDER, nothing},
    {"all ranks forgot to count the new token", ALL_RANKS, all_behind},
    {"a negative length", ONE_RANK, negative_length},
    {"a length that is too long", ALL_RANKS, long_length},
    {"no lengths", ONE_RANK, no_lengths},
    {"a plan for another batch", ONE_RANK, other_batch},
    {"a plan with another window", ONE_RANK, other_window},
    {"a plan that may round weights", ONE_RANK, other_weights},
    {"weights that are neither exact nor rounded", ONE_RANK, unknown_weights},
    {"KV heads that do not divide the query heads", ONE_RANK, odd_heads},
    {"no query", ONE_RANK, no_query},
    {"no output", ONE_RANK, no_out},
    {"no keys", ONE_RANK, no_keys},
    {"a struct without its size", ONE_RANK, no_size},
    {"a struct with a size that cannot be", ONE_RANK, newer},
    {"keys that are not aligned", ONE_RANK, odd_keys},
    {"an output whose rows overlap", ONE_RANK, narrow_out},
    {"a negative stride", ONE_RANK, negative_stride},
    {"a stride in bytes, with `k_bytes`", ONE_RANK, stride_in_bytes},
    {"a cache for another type or shape, with `v_bytes`", ONE_RANK, short_memory},
    {"a page that is not in the pool", ONE_RANK, far_page},
    {"a stale page that is in the pool", ONE_RANK, stale_page},
    {"another query", ONE_RANK, other_query},
    {"another query, in checked mode", CHECKED, other_query},
    {"another layer's sinks", ALL_RANKS, other_sinks},
    {"another layer's sinks, in checked mode", ALL_CHECKED, other_sinks},
    {"another layer's slopes, in checked mode", ALL_CHECKED, other_slopes},
    {"sinks on one rank alone, in checked mode", CHECKED, sinks_of_one},
    {"the output is in K, in checked mode", CHECKED, out_in_keys},
    {"the output is in V, in checked mode", CHECKED, out_in_values},
    {"8 bits, and no type of the query", ALL_RANKS, no_query_dtype},
    {"8 bits: a scale of 0", ALL_RANKS, zero_scale},
    {"8 bits: a scale that is NaN", ALL_RANKS, nan_scale},
    {"8 bits: plans for OCP's and for FNUZ", ALL_RANKS, other_dialect},
    {"8 bits: bytes of FNUZ in plans for OCP's", ALL_RANKS, all_other_dialect},
    {"scales of a cache of 16 bits", ALL_RANKS, wide_scales},
    {"append: one rank is a token ahead", APPEND, one_ahead},
    {"append: fewer sequences in the call", APPEND, fewer_sequences},
    {"append: new tokens of another type", APPEND, other_dtype},
    {"append: a length that is too long", APPEND, long_length},
    {"append: no new values", APPEND, no_new_values},
    {"append: an input without its size", APPEND, no_input_size},
    {"append: a source that there is not", APPEND, bad_source},
    {"append: scales are to be made, and there is one for all tokens", ALL_APPEND, few_scales},
    {"append: the scales of new tokens are neither there nor to be made", ALL_APPEND,
     no_token_scales},
    {"combine: one rank is in another layer's call, with tags", COMBINE, other_tag},
    {"combine: fewer sequences in the call", COMBINE, fewer_sequences},
    {"combine: no output of this rank's shard", COMBINE, no_query},
    {"combine: the base as a number", COMBINE, bad_base},
    {"combine: a natural logarithm, said to be to the base 2", COMBINE, other_base},
    {"combine: a window", COMBINE, a_window},
    {"combine: another layer's sinks, in checked mode", ALL_COMBINE, other_sinks},
    {NULL, ONE_RANK, NULL},
};
