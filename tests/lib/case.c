/* The parameters of a decode case: see case.h. */
#include "case.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "exchange/kinds.h"
#include "options.h"

bool case_draws_narrow = true;

decode_case case_plain(void)
{
    decode_case c;
    memset(&c, 0, sizeof c);
    c.ranks = 1;
    c.threads = 1;
    c.plan = (ta_plan_config)TA_PLAN_CONFIG_INIT;
    c.plan.batch = 1;
    c.plan.query_tokens = 1;
    c.plan.query_heads = 1;
    c.plan.kv_heads = 1;
    c.plan.k_dim = 8;
    c.plan.v_dim = 8;
    c.plan.kv_dtype = TA_F32;
    c.plan.map.kind = TA_SHARD_BLOCK_CYCLIC;
    c.plan.map.block = 1;
    c.lengths[0] = 1;
    c.page_tokens = 1;
    c.want_lse = true;
    c.spare_call_tokens = -1;
    c.query_deviation = c.key_deviation = 1;
    return c;
}

int case_query_tokens(const decode_case *c, int sequence)
{
    return c->ragged ? c->tokens[sequence] : c->plan.query_tokens;
}

int64_t case_first_row(const decode_case *c, int sequence)
{
    int64_t row = 0;
    for (int b = 0; b < sequence; ++b)
        row += case_query_tokens(c, b);
    return row;
}

int64_t case_rows(const decode_case *c)
{
    return case_first_row(c, c->plan.batch);
}

decode_case case_grouped(int dim, int tokens)
{
    decode_case c = case_plain();
    c.plan.query_heads = 4;
    c.plan.kv_heads = 2;
    c.plan.k_dim = c.plan.v_dim = dim;
    c.lengths[0] = tokens;
    return c;
}

static void choose_dtypes(random_source *r, ta_plan_config *plan)
{
    plan->kv_dtype = (ta_dtype)random_int(r, TA_F32, NUMBER_DTYPE_END - 1);
    plan->query_dtype = (ta_dtype)random_int(r, TA_DTYPE_NONE, NUMBER_DTYPE_END - 1);
    plan->out_dtype = (ta_dtype)random_int(r, TA_DTYPE_NONE, NUMBER_DTYPE_END - 1);
}

static void choose_shape(random_source *r, bool large, decode_case *c)
{
    static const int dims[] = {8, 16, 24, 32, 40, 64, 64, 80, 96, 128, 128, 192, 256, 576};
    static const int query_tokens[] = {1, 1, 1, 2, 3, 4, 5, 8, 17, 64};
    static const int group_sizes[] = {1, 1, 2, 3, 4, 5, 7, 8, 13};
    ta_plan_config *plan = &c->plan;
    plan->batch = random_int(r, 1, large ? 2 : 5);
    plan->query_tokens = RANDOM_PICK(r, query_tokens);
    plan->kv_heads = random_int(r, 1, large ? 2 : 4);
    plan->query_heads = plan->kv_heads * RANDOM_PICK(r, group_sizes);
    plan->k_dim = random_one_in(r, 4) ? 8 * random_int(r, 1, 72) : RANDOM_PICK(r, dims);
    plan->v_dim = random_one_in(r, 2) ? plan->k_dim : RANDOM_PICK(r, dims);
    if (random_one_in(r, 5)) {
        c->v_in_k = true;
        plan->k_dim = random_one_in(r, 2) ? 576 : plan->k_dim;
        plan->v_dim = plan->k_dim == 576 ? 512 : 8 * random_int(r, 1, plan->k_dim / 8);
        c->v_offset = random_one_in(r, 2) ? 0 : random_int(r, 0, plan->k_dim - plan->v_dim);
    }
    for (int b = 0; b < plan->batch; ++b) {
        int kind = random_int(r, 0, 3);
        c->lengths[b] = kind == 0 ? 0 : kind == 1 ? random_int(r, 1, 5) : random_int(r, 1, 48);
        if (large)
            c->lengths[b] = random_one_in(r, 4) ? random_int(r, 0, 700) : random_int(r, 700, 9000);
    }
}

static int64_t cost(const decode_case *c)
{
    int64_t tokens = 0;
    for (int b = 0; b < c->plan.batch; ++b)
        tokens += c->lengths[b] + 1;
    return tokens * c->plan.query_tokens * c->plan.query_heads * (c->plan.k_dim + c->plan.v_dim);
}

/* Keep the oracle's work, and so the case's time, within a budget. */
static void shrink(bool large, decode_case *c)
{
    int64_t budget = large ? 30000000 : 1000000;
    while (cost(c) > budget) {
        int group = c->plan.query_heads / c->plan.kv_heads;
        if (c->plan.query_tokens > 3)
            c->plan.query_tokens = (c->plan.query_tokens + 1) / 2;
        else if (group > 2)
            c->plan.query_heads = c->plan.kv_heads * ((group + 1) / 2);
        else if (c->plan.batch > 2)
            --c->plan.batch;
        else if (c->plan.kv_heads > 1)
            c->plan.query_heads = group * --c->plan.kv_heads;
        else
            for (int b = 0; b < c->plan.batch; ++b)
                c->lengths[b] -= c->lengths[b] / 4;
    }
}

static void choose_options(random_source *r, decode_case *c)
{
    static const float scales[] = {0.0f, 0.0f, 0.0f, 0.1f, -0.3f, 1.0f};
    static const float softcaps[] = {0.0f, 0.0f, 0.0f, 2.0f, 20.0f, 50.0f};
    static const double deviations[] = {0.1, 1, 1, 1, 4};
    int longest = 1;
    for (int b = 0; b < c->plan.batch; ++b)
        longest = c->lengths[b] > longest ? c->lengths[b] : longest;
    c->plan.mask = random_one_in(r, 3) ? TA_MASK_FULL : TA_MASK_CAUSAL;
    if (random_one_in(r, 3))
        c->plan.window = random_int(r, 1, longest + 3);
    c->plan.scale = RANDOM_PICK(r, scales);
    c->plan.softcap = RANDOM_PICK(r, softcaps);
    c->alibi = random_one_in(r, 4);
    c->sinks = random_one_in(r, 4);
    c->plan.query_placement = (ta_placement)random_int(r, 0, 2);
    if (c->plan.query_placement == TA_PLACE_ROOT)
        c->plan.query_root = random_int(r, 0, c->ranks - 1);
    c->plan.out_placement = (ta_placement)random_int(r, 0, 2);
    if (c->plan.out_placement == TA_PLACE_ROOT)
        c->plan.out_root = random_int(r, 0, c->ranks - 1);
    c->plan.algorithm = (ta_algorithm)random_int(r, TA_ALGORITHM_AUTO, TA_ALGORITHM_RING_Q);
    c->query_deviation = RANDOM_PICK(r, deviations);
    c->value_mean = random_one_in(r, 3) ? 1 : 0;
    if (random_one_in(r, 12))
        c->special = (case_special)random_int(r, CASE_NAN_QUERY, CASE_INFINITE_VALUE);
}

/* Some of the block-cyclic maps are weighted. With a source of its own, so that a seed draws the
 * rest of its case as ever. */
static void choose_weights(decode_case *c)
{
    random_source own = random_from(c->seed ^ 0x3e19), *r = &own;
    if (!random_one_in(r, 3))
        return;
    c->plan.map.kind = TA_SHARD_WEIGHTED;
    for (int rank = 0; rank < c->ranks; ++rank)
        c->weights[rank] = random_one_in(r, 4) ? 0 : random_int(r, 1, 4);
    c->weights[random_int(r, 0, c->ranks - 1)] = random_int(r, 1, 4);
}

static void choose_map(random_source *r, bool large, decode_case *c)
{
    static const int32_t blocks[] = {0, 1, 2, 3, 4, 16, 64};
    ta_shard_map *map = &c->plan.map;
    map->ranks = random_one_in(r, 2) ? c->ranks : 0;
    if (random_one_in(r, 2)) {
        map->kind = TA_SHARD_BLOCK_CYCLIC;
        map->block = RANDOM_PICK(r, blocks);
        choose_weights(c);
        return;
    }
    map->kind = TA_SHARD_CONTIGUOUS;
    c->bounds = (case_bounds)random_int(r, CASE_BOUNDS_NONE, CASE_BOUNDS_EACH);
    map->block = random_int(r, 1, large ? 3000 : 20);
    if ((c->bounds != CASE_BOUNDS_NONE || c->ranks == 1) && random_one_in(r, 2))
        map->block = 0;
}

static void choose_layout(random_source *r, case_layout *layout)
{
    static const int pads[] = {0, 0, 1, 3, 8, 16};
    memset(layout, 0, sizeof *layout);
    if (random_one_in(r, 3))
        return;
    layout->strides_given = true;
    layout->order = random_int(r, 0, 5);
    layout->pad_head = RANDOM_PICK(r, pads);
    layout->pad_token = RANDOM_PICK(r, pads);
    layout->pad_batch = RANDOM_PICK(r, pads);
    layout->offset = random_one_in(r, 2) ? random_int(r, 0, 7) : 0;
}

static void choose_memory(random_source *r, bool large, decode_case *c)
{
    static const int32_t pages[] = {1, 1, 2, 3, 4, 5, 16, 64};
    c->paged = random_one_in(r, 2);
    c->page_tokens = RANDOM_PICK(r, pages);
    if (large)
        c->page_tokens *= 7;
    c->spare_pages = random_int(r, 0, 3);
    c->orderly_pages = random_one_in(r, 2) ? 0 : random_one_in(r, 2) ? 9 : INT_MAX;
    c->spare_tokens = random_one_in(r, 2) ? random_int(r, 0, 9) : 0;
    choose_layout(r, &c->q);
    choose_layout(r, &c->k);
    choose_layout(r, &c->v);
    choose_layout(r, &c->out);
    c->own_workspace = random_one_in(r, 2);
    c->want_lse = !random_one_in(r, 4);
    c->absent_null = random_one_in(r, 2);
}

/* One of the SIMD levels of this CPU, or its best by default. */
static void choose_simd(random_source *r, decode_case *c)
{
    if (!options_host() || random_one_in(r, 3))
        return;
    const char *level = ta_host_simd_levels();
    int count = 1;
    for (const char *p = level; *p; ++p)
        count += *p == ' ';
    for (int skip = random_int(r, 0, count - 1); skip > 0; --skip)
        level = strchr(level, ' ') + 1;
    snprintf(c->simd, sizeof c->simd, "%.*s", (int)strcspn(level, " "), level);
}

/* Do these devices reach each other's memory? Those of the executor do, unless it was told
 * otherwise; real ones are tried once, and if not why not is printed as a report has it. */
static bool reaches_peers(void)
{
    static int known = -1;
    int simt = !strncmp(options.device, "simt", 4) && !getenv("TA_SIMT_PEERS");
    if (options_host() || simt)
        return true;
    if (known < 0) {
        static bound_worst worst;
        decode_case c = case_plain();
        char failure[1200];
        c.ranks = options.ranks > 1 ? options.ranks : 2;
        c.plan.exchange = TA_EXCHANGE_DIRECT;
        known = case_run(&c, &worst, failure, sizeof failure) ||
                !strstr(failure, ta_exchange_kinds[TA_EXCHANGE_DIRECT].symbol);
        if (!known)
            printf("left out: the direct exchange: %.*s\n", (int)strcspn(failure, "\n"), failure);
    }
    return known;
}

/* Two levels need several ranks on a node, more of them several nodes in a rack. */
bool case_exchange_possible(ta_exchange kind, int ranks, ta_placement out)
{
    switch (kind) {
    case TA_EXCHANGE_DOUBLING:
        return out != TA_PLACE_ROOT;
    case TA_EXCHANGE_TWO_LEVEL:
        return ranks > 2;
    case TA_EXCHANGE_MULTI_LEVEL:
        return ranks > 4;
    case TA_EXCHANGE_ALL_REDUCE:
        return !options.ccl;
    case TA_EXCHANGE_DIRECT:
        return options_direct() && reaches_peers();
    default:
        return true;
    }
}

/* Any kind, and half of the time none in particular. */
static void choose_exchange(random_source *r, decode_case *c)
{
    c->plan.exchange = random_int(r, 0, 1) ? (ta_exchange)random_int(r, 0, TA_EXCHANGE_KINDS - 1)
                                           : TA_EXCHANGE_AUTO;
    c->plan.exchange = options_exchange(c->plan.exchange);
    if (!case_exchange_possible(c->plan.exchange, c->ranks, c->plan.out_placement))
        c->plan.exchange = TA_EXCHANGE_AUTO;
    if (c->plan.exchange == TA_EXCHANGE_DIRECT && options.each) { /* the group can't move queries */
        c->plan.query_placement = TA_PLACE_ALL;
        c->plan.query_root = 0;
    }
    if (c->plan.exchange == TA_EXCHANGE_TWO_LEVEL ||
        c->plan.exchange == TA_EXCHANGE_MULTI_LEVEL) /* with a cluster others could be chosen */
        c->plan.algorithm = TA_ALGORITHM_TREE;
}

/* Some sequences have all query tokens, some one, some none. */
static void choose_tokens(random_source *r, decode_case *c)
{
    int most = c->plan.query_tokens;
    c->ragged = true;
    for (int b = 0; b < c->plan.batch; ++b) {
        int kind = random_int(r, 0, 4);
        c->tokens[b] = kind == 0 ? 0 : kind == 1 ? 1 : kind == 2 ? most : random_int(r, 0, most);
    }
    if (case_rows(c) == 0)
        c->tokens[random_int(r, 0, c->plan.batch - 1)] = most;
}

/* What comes with the call. From a source of its own: a seed's case is otherwise as it was. */
static void choose_call(uint64_t seed, decode_case *c)
{
    random_source source = random_from(seed ^ 0xca11u), *r = &source;
    if (random_one_in(r, 2))
        choose_tokens(r, c);
    if (random_one_in(r, 3))
        c->spare_batch = random_int(r, 1, 4);
    if (random_one_in(r, 3)) {
        int64_t most = (int64_t)(c->plan.batch + c->spare_batch) * c->plan.query_tokens;
        c->spare_call_tokens = random_int(r, 0, (int)(most - case_rows(c)));
    }
    c->call_window = random_one_in(r, 4);
    c->call_softcap = random_one_in(r, 4);
    c->call_alibi = c->alibi && random_one_in(r, 2);
    c->call_sinks = c->sinks && random_one_in(r, 2);
}

/* K and V of 8 bits, and their scales. Likewise from a source of its own. */
static void choose_narrow(uint64_t seed, decode_case *c)
{
    random_source source = random_from(seed ^ 0x8b175u), *r = &source;
    if (!case_draws_narrow || !random_one_in(r, 3))
        return;
    c->plan.kv_dtype = (ta_dtype)random_int(r, NUMBER_DTYPE_END, NUMBER_NARROW_END - 1);
    if (!c->plan.query_dtype)
        c->plan.query_dtype = (ta_dtype)random_int(r, TA_F32, NUMBER_DTYPE_END - 1);
    c->k_scale = (case_scales)random_int(r, CASE_SCALES_NONE, CASE_SCALES_TOKENS);
    c->v_scale = (case_scales)random_int(r, CASE_SCALES_NONE, CASE_SCALES_TOKENS);
}

/* Likewise. */
static void choose_rounding(uint64_t seed, decode_case *c)
{
    random_source source = random_from(seed ^ 0x4e161u), *r = &source;
    if (random_one_in(r, 3))
        c->plan.weights = TA_WEIGHTS_ROUNDED;
}

/* As many places as a sequence has tokens, fewer, or more. */
void case_select(decode_case *c)
{
    random_source source = random_from(c->seed ^ 0x5e1ec7u), *r = &source;
    int32_t longest = 1;
    for (int b = 0; b < c->plan.batch; ++b)
        longest = c->lengths[b] > longest ? c->lengths[b] : longest;
    c->selected = random_one_in(r, 3) ? random_int(r, 1, 5) : random_int(r, 1, longest + 2);
    if (c->selected > 3000) /* lists of all rows are kept */
        c->selected = 3000;
    c->selected_each = random_one_in(r, 2);
}

/* Groups of one to four; some share nothing, some of the others are shorter than the prefix. */
void case_share_prefixes(decode_case *c)
{
    random_source source = random_from(c->seed ^ 0x9ef1f1u), *r = &source;
    int left = 0;
    c->prefixes = true;
    for (int b = 0; b < c->plan.batch; ++b) {
        if (left == 0) {
            left = random_int(r, 1, 4);
            c->group[b] = b;
            c->prefix[b] = random_one_in(r, 4) ? 0 : random_int(r, 0, c->lengths[b]);
        } else {
            c->group[b] = c->group[b - 1];
            c->prefix[b] = c->prefix[b - 1];
        }
        --left;
    }
}

int32_t case_borrowed(const decode_case *c, int sequence)
{
    int32_t shared = c->prefixes && c->group[sequence] != sequence ? c->prefix[sequence] : 0;
    return shared < c->lengths[sequence] ? shared : c->lengths[sequence];
}

/* Rings that pass K and V have neither. */
static void choose_lists(decode_case *c)
{
    random_source source = random_from(c->seed ^ 0x1157u), *r = &source;
    if (c->plan.algorithm == TA_ALGORITHM_RING_KV)
        return;
    if (random_one_in(r, 4))
        case_select(c);
    if (random_one_in(r, 4))
        case_share_prefixes(c);
}

void case_reproducible(decode_case *c, int32_t tile)
{
    c->plan.reproducible_tile = tile;
    for (int b = 0; b < c->plan.batch; ++b)
        c->prefix[b] -= c->prefix[b] % tile;
    if (c->plan.algorithm != TA_ALGORITHM_AUTO)
        c->plan.algorithm = TA_ALGORITHM_TREE;
    if (c->plan.map.block || c->plan.map.kind != TA_SHARD_CONTIGUOUS)
        c->plan.map.block = (c->plan.map.block / tile + 1) * tile;
}

decode_case case_random(uint64_t seed)
{
    return case_random_on(seed, 0);
}

decode_case case_random_on(uint64_t seed, int given_ranks)
{
    static const int ranks[] = {1, 2, 3, 5, 8};
    bool large = seed >= CASE_LARGE_SEEDS;
    random_source source = random_from(seed), *r = &source;
    decode_case c = case_plain();
    c.seed = seed;
    c.ranks = RANDOM_PICK(r, ranks);
    if (given_ranks)
        c.ranks = given_ranks;
    c.threads = options_host() ? random_int(r, 1, 3) : 1;
    choose_simd(r, &c);
    choose_dtypes(r, &c.plan);
    choose_shape(r, large, &c);
    shrink(large, &c);
    choose_options(r, &c);
    choose_map(r, large, &c);
    choose_memory(r, large, &c);
    choose_exchange(r, &c);
    choose_call(seed, &c);
    choose_narrow(seed, &c);
    choose_rounding(seed, &c);
    choose_lists(&c);
    return c;
}

decode_case case_combined(uint64_t seed, int ranks)
{
    decode_case c = case_random_on(seed, ranks);
    random_source source = random_from(seed ^ 0xc0b1u), *r = &source;
    c.plan.kv_dtype = (ta_dtype)random_int(r, NUMBER_DTYPE_END, NUMBER_NARROW_END - 1);
    c.plan.query_dtype = (ta_dtype)random_int(r, TA_F32, NUMBER_DTYPE_END - 1);
    c.k_scale = (case_scales)random_int(r, CASE_SCALES_NONE, CASE_SCALES_TOKENS);
    c.v_scale = (case_scales)random_int(r, CASE_SCALES_NONE, CASE_SCALES_TOKENS);
    c.paged = true;
    c.sinks = true;
    if (!c.plan.window)
        c.plan.window = random_int(r, 1, 40);
    c.plan.check = seed % 7 == 0;
    if (!options_host() && (c.ranks == 1 || options.ccl))
        c.plan.replay = seed % 3 != 0;
    /* Kinds that need a cluster, with which others could be chosen, are drawn with a tree. */
    bool of_cluster =
        c.plan.exchange == TA_EXCHANGE_TWO_LEVEL || c.plan.exchange == TA_EXCHANGE_MULTI_LEVEL;
    if (!of_cluster) /* rings that pass K and V have no lists */
        c.plan.algorithm =
            c.selected || c.prefixes ? TA_ALGORITHM_RING_Q : (ta_algorithm)random_int(r, 1, 3);
    if (seed % 5 == 0 && c.plan.map.kind != TA_SHARD_CONTIGUOUS)
        case_reproducible(&c, 16);
    return c;
}
