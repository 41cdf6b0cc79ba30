/* The mistakes that a program can make in a decode step, made: three ranks, and rank 1 makes each
 * of them, unless it says otherwise. What the ranks see is the table in docs/mistakes.md, which
 * must be the same. With the argument "print" the table is printed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "lib/expect.h"
#include "lib/small_step.h"
#include "lib/spoil.h"

#define RANKS 3

static int prints;

void setUp(void)
{
}

void tearDown(void)
{
}

/* ---- What goes wrong ---- */

typedef enum way {
    ONE_RANK,   /* `spoil` on rank 1 */
    ALL_RANKS,  /* on all of them */
    CHECKED,    /* on rank 1, in checked mode */
    PLAN_ORDER, /* two plans in the other order */
    APPEND,     /* on rank 1, in ta_append() of tokens that are scattered by heads */
    COMBINE,    /* on rank 1, in ta_combine() */
} way;

typedef struct mistake {
    const char *text;
    way way;
    void (*spoil)(small_step *step);
} mistake;

static int32_t pages[SMALL_BATCH * SMALL_TOKENS];

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

/* What the ways APPEND and COMBINE give. */
static __thread ta_append_input new_tokens;
static __thread ta_lse_base lse_base;

SPOIL(no_new_values, (void)step; new_tokens.v.data = NULL)
SPOIL(no_input_size, (void)step; new_tokens.size = 0)
SPOIL(other_dtype, (void)step; new_tokens.dtype = TA_F16)
SPOIL(bad_source, (void)step; new_tokens.source = (ta_append_source)3)
SPOIL(other_base, (void)step; lse_base = TA_LSE_2)
SPOIL(bad_base, (void)step; lse_base = (ta_lse_base)10)
SPOIL(a_window, step->call.window = 5)

static const mistake mistakes[] = {
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
    {"two plans called in another order", PLAN_ORDER, nothing},
    {"all ranks forgot to count the new token", ALL_RANKS, all_behind},
    {"a negative length", ONE_RANK, negative_length},
    {"a length that is too long", ALL_RANKS, long_length},
    {"no lengths", ONE_RANK, no_lengths},
    {"a plan for another batch", ONE_RANK, other_batch},
    {"a plan with another window", ONE_RANK, other_window},
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
    {"the output is in K, in checked mode", CHECKED, out_in_keys},
    {"the output is in V, in checked mode", CHECKED, out_in_values},
    {"append: one rank is a token ahead", APPEND, one_ahead},
    {"append: fewer sequences in the call", APPEND, fewer_sequences},
    {"append: new tokens of another type", APPEND, other_dtype},
    {"append: a length that is too long", APPEND, long_length},
    {"append: no new values", APPEND, no_new_values},
    {"append: an input without its size", APPEND, no_input_size},
    {"append: a source that there is not", APPEND, bad_source},
    {"combine: one rank is in another layer's call, with tags", COMBINE, other_tag},
    {"combine: fewer sequences in the call", COMBINE, fewer_sequences},
    {"combine: no output of this rank's shard", COMBINE, no_query},
    {"combine: the base as a number", COMBINE, bad_base},
    {"combine: a natural logarithm, said to be to the base 2", COMBINE, other_base},
    {"combine: a window", COMBINE, a_window},
};

/* ---- What is seen ---- */

typedef struct trial {
    const mistake *mistake;
    ta_status status[RANKS];
    char said[RANKS][512];
} trial;

static int is_wrong(const trial *t, int rank)
{
    return rank == 1 || t->mistake->way == ALL_RANKS;
}

/* New tokens of each sequence, of this rank's heads: some numbers of the query. */
static ta_status append(small_step *step, ta_plan *plan)
{
    return ta_append(plan, &new_tokens, &step->kv, &step->call, NULL);
}

/* Some numbers of the query as the output of this rank's shard, with equal weights. */
static ta_status combine(small_step *step, ta_plan *plan)
{
    float part_lse[SMALL_ROWS] = {0};
    return ta_combine(plan, &step->q, part_lse, lse_base, &step->out, step->lse, &step->call, NULL);
}

static void make_combine_config(ta_plan_config *config)
{
    *config = (ta_plan_config)TA_PLAN_CONFIG_INIT;
    config->combine_only = 1;
    config->batch = SMALL_BATCH;
    config->query_tokens = SMALL_QUERY_TOKENS;
    config->query_heads = SMALL_HEADS;
    config->v_dim = SMALL_V_DIM;
    config->query_dtype = TA_F32;
}

/* What the rank does, up to the first call that fails. */
static ta_status attempt(const trial *t, ta_group *group, ta_device *device, small_step *step)
{
    way kind = t->mistake->way;
    int odd = step->rank == 1;
    ta_plan *plans[2] = {NULL, NULL};
    ta_status status = TA_OK;
    for (int i = 0; i < 1 + (kind == PLAN_ORDER) && status == TA_OK; ++i)
        status = ta_plan_create(group, device, &step->config, &plans[i]);
    if (status == TA_OK)
        status = kind == APPEND    ? append(step, plans[0])
                 : kind == COMBINE ? combine(step, plans[0])
                                   : small_step_decode(step, plans[kind == PLAN_ORDER && odd]);
    ta_plan_destroy(plans[0]);
    ta_plan_destroy(plans[1]);
    return status;
}

static ta_status mistaken_rank(ta_group *group, void *context)
{
    trial *t = context;
    int rank = ta_group_rank(group);
    ta_device_config one_thread = TA_DEVICE_CONFIG_INIT;
    ta_device *device;
    small_step step;
    one_thread.threads = 1;
    TA_TRY(ta_device_open("host", &one_thread, &device));
    small_step_init(&step, rank, RANKS);
    step.config.check = t->mistake->way == CHECKED;
    step.call.tag = 4;
    step.config.append_scattered = t->mistake->way == APPEND;
    if (t->mistake->way == COMBINE)
        make_combine_config(&step.config);
    new_tokens = (ta_append_input)TA_APPEND_INPUT_INIT;
    new_tokens.source = TA_APPEND_HEADS;
    new_tokens.k.data = new_tokens.v.data = step.query;
    lse_base = TA_LSE_E;
    if (is_wrong(t, rank))
        t->mistake->spoil(&step);
    t->status[rank] = attempt(t, group, device, &step);
    snprintf(t->said[rank], sizeof t->said[rank], "%s",
             t->status[rank] == TA_OK ? "" : ta_last_error());
    ta_device_close(device);
    return TA_OK;
}

/* A row of the table. Addresses are left out, which are never the same. */
static void write_row(const trial *t, char *row, size_t capacity)
{
    const char *said = t->said[1][0] ? t->said[1] : t->said[0];
    size_t at = (size_t)snprintf(row, capacity, "| %s | %s | %s | ", t->mistake->text,
                                 ta_status_name(t->status[1]), ta_status_name(t->status[0]));
    for (; *said && at + 8 < capacity; ++said) {
        row[at++] = *said;
        if (strncmp(said, "0x", 2) != 0)
            continue;
        at += (size_t)snprintf(row + at, capacity - at, "…");
        ++said;
        while (strspn(said + 1, "0123456789abcdef") > 0)
            ++said;
    }
    snprintf(row + at, capacity - at, " |");
}

static char *read_page(void)
{
    static char page[65536];
    const char *path = getenv("TA_MISTAKES");
    FILE *file = path ? fopen(path, "r") : NULL;
    TEST_ASSERT_NOT_NULL_MESSAGE(file, "TA_MISTAKES must name docs/mistakes.md");
    page[fread(page, 1, sizeof page - 1, file)] = 0;
    fclose(file);
    return page;
}

static void test_table(void)
{
    const char *table = prints ? NULL : read_page();
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; ++i) {
        trial t = {.mistake = &mistakes[i]};
        char row[1024];
        for (int p = 0; p < SMALL_BATCH * SMALL_TOKENS; ++p)
            pages[p] = p;
        EXPECT_OK(ta_group_run_threads(RANKS, NULL, mistaken_rank, &t));
        write_row(&t, row, sizeof row);
        if (prints)
            printf("%s\n", row);
        else if (!strstr(table, row))
            TEST_FAIL_MESSAGE(row);
    }
}

int main(int argc, char **argv)
{
    prints = argc > 1 && strcmp(argv[1], "print") == 0;
    UNITY_BEGIN();
    RUN_TEST(test_table);
    return UNITY_END() != 0;
}
