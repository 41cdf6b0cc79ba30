/* The whole model on several ranks, against double: prompt and decode steps, tree and rings,
 * weights replicated and divided. The error on any number of ranks is at most 4 times that on
 * one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "common/elements.h"
#include "common/pages.h"
#include "llama/decoder.h"
#include "llama/products.h"
#include "llama/sample.h"
#include "llama_reference.h"

/* With blocks of 8 tokens some of 8 ranks have few, one has none for most of the time. */
enum { PROMPT = 43, STEPS = 7, WORDS = PROMPT + STEPS, MOST_WORDS = 256 };
enum { ALGORITHMS = 3 };

/* --device, --group and --matmul, as those of treeattn-bench llama; --cache is the type of the
 * cache that test_all_ranks has on a GPU. */
static const char *device = "host", *products, *cache_name = "f32";
static int ccl;

static char error[512];
static int32_t words[WORDS];
static double exact[WORDS][MOST_WORDS];

void setUp(void)
{
}

void tearDown(void)
{
}

typedef struct model_run {
    decoder_options options;
    int greedy; /* words are those that the model chooses */
    int32_t chosen[STEPS + 1];
    int differ;                                         /* ranks whose logits are not rank 0's */
    float logits[8][ALGORITHMS][STEPS + 1][MOST_WORDS]; /* of each rank and algorithm */
} model_run;

static ta_status run_rank(ta_group *group, void *context)
{
    model_run *run = context;
    int rank = ta_group_rank(group), vocabulary = 0;
    llama_part part;
    decoder *d = NULL;
    int32_t word;
    decoder_options own = run->options;
    const decoder_options *o = &own;
    int divided = o->tensor ? ta_group_size(group) : 1;
    own.gpu_each = ccl;
    if (llama_part_make(o->weights, o->tensor ? rank : 0, divided, &part) != 0)
        return TA_ERR_NO_MEMORY;
    vocabulary = part.config.vocabulary;
    ta_status status = decoder_create(group, o, &part, &d);
    if (status == TA_OK)
        status = decoder_prefill(d, words, PROMPT, run->logits[rank][0][0]);
    for (int a = 1; a < o->algorithms; a++)
        memcpy(run->logits[rank][a][0], run->logits[rank][0][0], sizeof run->logits[0][0][0]);
    for (int i = 0; status == TA_OK && i < STEPS; i++) {
        word = run->greedy ? sample_word(run->logits[rank][0][i], vocabulary, 0, 0, 0)
                           : words[PROMPT + i];
        run->chosen[i] = word;
        for (int a = 0; status == TA_OK && a < o->algorithms; a++)
            status = decoder_step(d, a, word, PROMPT + i, run->logits[rank][a][i + 1]);
    }
    decoder_destroy(d);
    llama_part_free(&part);
    return status;
}

static void run_model(model_run *run, int ranks)
{
    ta_status status = ta_group_run_threads(ranks, NULL, run_rank, run);
    TEST_ASSERT_EQUAL_MESSAGE(TA_OK, status, ta_last_error());
    for (int rank = 1; rank < ranks; rank++)
        run->differ += memcmp(run->logits[0], run->logits[rank], sizeof run->logits[0]) != 0;
}

static model_run *new_run(const llama_weights *weights, ta_dtype dtype, int tensor,
                          decoder_prefill_kind prefill, ta_algorithm algorithm)
{
    model_run *run = calloc(1, sizeof *run);
    run->options = (decoder_options){
        .weights = weights,
        .tensor = tensor,
        .prefill = prefill,
        .cache_dtype = dtype,
        .tokens = WORDS,
        .block = 8,
        .page_tokens = 4,
        .chunk = 10,
        .algorithms = 1,
        .algorithm = {algorithm},
        .device = device,
        .products = products,
        .ccl = ccl,
        .threads = 1,
    };
    return run;
}

/* The largest of an algorithm; NaN if one of them is. */
static double error_of(const model_run *run, int algorithm, int vocabulary)
{
    const float(*logits)[MOST_WORDS] = run->logits[0][algorithm];
    double worst = 0;
    for (int i = 0; i <= STEPS; i++)
        for (int word = 0; word < vocabulary; word++) {
            double difference = fabs(logits[i][word] - exact[PROMPT - 1 + i][word]);
            worst = isnan(worst) || difference <= worst ? worst : difference;
        }
    return worst;
}

static llama_weights *make_model(llama_config *config, ta_dtype dtype)
{
    llama_weights *w =
        llama_weights_random(config, dtype, 7, 0, 1, 1, PAGES_SMALL, error, sizeof error);
    TEST_ASSERT_NOT_NULL_MESSAGE(w, error);
    for (int i = 0; i < WORDS; i++)
        words[i] = (i * 131 + 17) % config->vocabulary;
    double *logits = malloc((size_t)(WORDS * config->vocabulary) * sizeof *logits);
    reference_logits(llama_weights_all(w), words, WORDS, logits);
    for (int i = 0; i < WORDS; i++)
        memcpy(exact[i], logits + i * config->vocabulary,
               (size_t)config->vocabulary * sizeof *logits);
    free(logits);
    return w;
}

static llama_weights *make_tiny(llama_config *config, ta_dtype dtype)
{
    llama_config_builtin("tiny", config);
    return make_model(config, dtype);
}

/* Errors of this way of running it, on several numbers of ranks. `most` is what one rank may have:
 * a few times the rounding of the types, which is far below 1, the size of the logits. Each
 * algorithm has a run of its own on the host; on a GPU they take turns in one, to save time. */
static void check_way(const llama_weights *w, ta_dtype dtype, int tensor,
                      decoder_prefill_kind prefill, double most)
{
    static const int counts[] = {1, 2, 3, 4, 8};
    static const ta_algorithm algorithms[ALGORITHMS] = {TA_ALGORITHM_TREE, TA_ALGORITHM_RING_KV,
                                                        TA_ALGORITHM_RING_Q};
    int vocabulary = llama_weights_all(w)->config.vocabulary;
    int together = strcmp(device, "host") == 0 ? 1 : ALGORITHMS;
    double one = 0;
    for (int i = 0; i < 5 * ALGORITHMS; i += together) {
        int ranks = counts[i / ALGORITHMS];
        model_run *run = new_run(w, dtype, tensor, prefill, algorithms[i % ALGORITHMS]);
        run->options.algorithms = together;
        for (int a = 1; a < together; a++)
            run->options.algorithm[a] = algorithms[a];
        run_model(run, ranks);
        for (int a = 0; a < together; a++) {
            char text[256];
            double now = error_of(run, a, vocabulary);
            one = i + a == 0 ? now : one;
            snprintf(text, sizeof text,
                     "%s, %s, prefill %d, %d ranks, algorithm %d: error %g, on one rank %g",
                     element_name(dtype), tensor ? "tensor" : "replicated", (int)prefill, ranks,
                     (int)run->options.algorithm[a], now, one);
            TEST_ASSERT_TRUE_MESSAGE(now <= 4 * one && now > 0 && one < most, text);
            TEST_ASSERT_EQUAL_MESSAGE(0, run->differ, text);
        }
        free(run);
    }
}

static void check_model(llama_config *config, ta_dtype dtype, double most)
{
    llama_weights *w = make_model(config, dtype);
    check_way(w, dtype, 0, PREFILL_GRID, most);
    check_way(w, dtype, 0, PREFILL_CHUNKS, most);
    check_way(w, dtype, 1, PREFILL_CHUNKS, most);
    llama_weights_free(w);
}

/* One logit that is no number, between others that are. */
static void test_a_nan_is_seen(void)
{
    model_run *run = calloc(1, sizeof *run);
    memset(exact, 0, sizeof exact);
    run->logits[0][0][1][3] = NAN;
    run->logits[0][0][2][5] = 1;
    TEST_ASSERT_TRUE(isnan(error_of(run, 0, 100)));
    run->logits[0][0][1][3] = 0.5f;
    TEST_ASSERT_TRUE(error_of(run, 0, 100) == 1);
    free(run);
}

static void test_f32(void)
{
    llama_config config;
    llama_config_builtin("tiny", &config);
    check_model(&config, TA_F32, 1e-5);
}

static void test_bf16(void)
{
    llama_config config;
    llama_config_builtin("tiny", &config);
    check_model(&config, TA_BF16, 0.1);
}

/* What Qwen 2 and 3 have, and a head that is the embedding; heads and ranks that do not divide. */
static void test_bias_norms_and_tied_head(void)
{
    llama_config config;
    llama_config_builtin("tiny", &config);
    config.tied = config.qkv_bias = config.qk_norm = 1;
    config.heads = 6;
    config.kv_heads = 3;
    config.rope.scaled = 0;
    check_model(&config, TA_F16, 0.02);
}

/* Several algorithms take turns at the same step, and change nothing for one another. */
static void test_algorithms_alternate(void)
{
    llama_config config;
    llama_weights *w = make_tiny(&config, TA_F32);
    model_run *run = new_run(w, TA_F32, 1, PREFILL_CHUNKS, TA_ALGORITHM_TREE);
    run->options.algorithms = 3;
    run->options.algorithm[1] = TA_ALGORITHM_RING_KV;
    run->options.algorithm[2] = TA_ALGORITHM_RING_Q;
    run_model(run, 3);
    for (int a = 0; a < ALGORITHMS; a++)
        TEST_ASSERT_TRUE(error_of(run, a, config.vocabulary) < 1e-5);
    free(run);
    llama_weights_free(w);
}

/* The same words, and the same bits, on so many ranks. */
static void check_same_bits(const int *ranks, int count)
{
    llama_config config;
    model_run *runs[5];
    llama_weights *w = make_tiny(&config, TA_BF16);
    for (int i = 0; i < count; i++) {
        runs[i] = new_run(w, TA_BF16, 0, PREFILL_CHUNKS, TA_ALGORITHM_TREE);
        runs[i]->options.reproducible_tile = 16;
        runs[i]->options.block = 16;
        runs[i]->options.threads = 1 + i % 2;
        runs[i]->greedy = 1;
        run_model(runs[i], ranks[i]);
        TEST_ASSERT_EQUAL_MEMORY(runs[0]->logits[0], runs[i]->logits[0], sizeof runs[0]->logits[0]);
        TEST_ASSERT_EQUAL_MEMORY(runs[0]->chosen, runs[i]->chosen, sizeof runs[0]->chosen);
    }
    for (int i = 0; i < count; i++)
        free(runs[i]);
    llama_weights_free(w);
}

static void test_reproducible(void)
{
    TEST_ASSERT_EQUAL(0, products_use("own", error, sizeof error));
    check_same_bits((const int[]){1, 2, 3, 4, 8}, 5);
}

/* A cache of 8 bits, weights of 16 or 32: what it rounds is the cache alone, so that the bound is
 * that of the cache's type, whatever the weights are. */
static void check_narrow(ta_dtype cache_dtype, double most)
{
    llama_config config;
    llama_weights *w = make_tiny(&config, TA_F32);
    check_way(w, cache_dtype, 0, PREFILL_GRID, most);
    check_way(w, cache_dtype, 0, PREFILL_CHUNKS, most);
    check_way(w, cache_dtype, 1, PREFILL_CHUNKS, most);
    llama_weights_free(w);
}

static void test_e4m3(void)
{
    check_narrow(TA_E4M3, 0.25);
}

static void test_e5m2(void)
{
    check_narrow(TA_E5M2, 0.75);
}

/* A ring over expanded heads has the numbers of one over native heads. */
static void test_expanded_heads(void)
{
    llama_config config;
    llama_weights *w = make_tiny(&config, TA_F32);
    for (int prefill = PREFILL_GRID; prefill <= PREFILL_CHUNKS; prefill++) {
        for (int ranks = 1; ranks <= 4; ranks += 3) {
            model_run *run =
                new_run(w, TA_F32, 0, (decoder_prefill_kind)prefill, TA_ALGORITHM_TREE);
            run->options.algorithms = 2;
            run->options.algorithm[1] = TA_ALGORITHM_RING_KV;
            run->options.expanded[1] = 1;
            run_model(run, ranks);
            for (int a = 0; a < 2; a++)
                TEST_ASSERT_TRUE(error_of(run, a, config.vocabulary) < 1e-5);
            TEST_ASSERT_EQUAL(0, run->differ);
            free(run);
        }
    }
    llama_weights_free(w);
}

/* ---- On a GPU ------------------------------------------------------------------------------ */

/* One way on some numbers of ranks: fewer than on the host, since this takes longer. The error is
 * at most 4 times that of the host on one rank. */
static void check_on_device(ta_dtype weights, ta_dtype cache, int tensor,
                            decoder_prefill_kind prefill, ta_algorithm algorithm, int expanded,
                            int ranks)
{
    char text[256];
    llama_config config;
    llama_config_builtin("tiny", &config);
    config.tied = config.qkv_bias = config.qk_norm = weights == TA_F16;
    llama_weights *w = make_model(&config, weights);
    model_run *run = new_run(w, cache, tensor, prefill, algorithm);
    run->options.expanded[0] = expanded;
    run->greedy = 0;
    model_run *host = new_run(w, cache, 0, prefill, TA_ALGORITHM_TREE);
    host->options.device = "host";
    host->options.ccl = 0;
    int was = ccl;
    ccl = 0;
    run_model(host, 1);
    ccl = was;
    run_model(run, ranks);
    double one = error_of(host, 0, config.vocabulary), now = error_of(run, 0, config.vocabulary);
    snprintf(text, sizeof text, "%s, cache %s, %s, prefill %d, %d ranks: error %g, on the host %g",
             element_name(weights), element_name(cache), tensor ? "tensor" : "replicated",
             (int)prefill, ranks, now, one);
    TEST_ASSERT_TRUE_MESSAGE(now <= 4 * one && now > 0, text);
    TEST_ASSERT_EQUAL_MESSAGE(0, run->differ, text);
    free(host);
    free(run);
    llama_weights_free(w);
}

static void test_one_rank(void)
{
    check_on_device(TA_F32, TA_F32, 0, PREFILL_GRID, TA_ALGORITHM_TREE, 0, 1);
    check_on_device(TA_BF16, TA_BF16, 0, PREFILL_CHUNKS, TA_ALGORITHM_TREE, 0, 1);
    check_on_device(TA_F16, TA_F16, 0, PREFILL_GRID, TA_ALGORITHM_TREE, 0, 1);
    check_on_device(TA_BF16, TA_E4M3, 0, PREFILL_GRID, TA_ALGORITHM_TREE, 0, 1);
    check_on_device(TA_F32, TA_E5M2, 0, PREFILL_CHUNKS, TA_ALGORITHM_TREE, 0, 1);
}

/* Every number of ranks, algorithm and way of dividing weights, with the cache's type of --cache.
 * The bounds are the host's. */
static void test_all_ranks(void)
{
    static const struct {
        ta_dtype weights, cache;
        double most;
    } kinds[] = {{TA_F32, TA_F32, 1e-5}, {TA_BF16, TA_BF16, 0.1}, {TA_F32, TA_E4M3, 0.25}};
    llama_config config;
    int found = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(cache_name, element_name(kinds[i].cache)) != 0)
            continue;
        llama_weights *w = make_tiny(&config, kinds[i].weights);
        check_way(w, kinds[i].cache, 0, PREFILL_GRID, kinds[i].most);
        check_way(w, kinds[i].cache, 1, PREFILL_CHUNKS, kinds[i].most);
        llama_weights_free(w);
        found = 1;
    }
    TEST_ASSERT_TRUE_MESSAGE(found, "--cache must be f32, bf16 or e4m3");
}

static void test_ranks(void)
{
    check_on_device(TA_F32, TA_F32, 0, PREFILL_GRID, TA_ALGORITHM_TREE, 0, 3);
    check_on_device(TA_F32, TA_F32, 1, PREFILL_CHUNKS, TA_ALGORITHM_TREE, 0, 3);
    check_on_device(TA_BF16, TA_BF16, 1, PREFILL_CHUNKS, TA_ALGORITHM_RING_Q, 0, 2);
    check_on_device(TA_F16, TA_F16, 1, PREFILL_CHUNKS, TA_ALGORITHM_RING_KV, 0, 4);
    check_on_device(TA_F32, TA_F32, 0, PREFILL_GRID, TA_ALGORITHM_RING_KV, 1, 2);
    check_on_device(TA_BF16, TA_E4M3, 1, PREFILL_CHUNKS, TA_ALGORITHM_TREE, 0, 2);
    check_on_device(TA_F32, TA_F32, 0, PREFILL_GRID, TA_ALGORITHM_TREE, 0, 8);
}

/* The device's own choice is the host's. */
static ta_status choose_rank(ta_group *group, void *context)
{
    model_run *run = context;
    decoder *d = NULL;
    int32_t best = -1;
    llama_part part;
    if (llama_part_make(run->options.weights, 0, 1, &part) != 0)
        return TA_ERR_NO_MEMORY;
    run->options.gpu_each = 0;
    ta_status status = decoder_create(group, &run->options, &part, &d);
    if (status == TA_OK)
        status = decoder_prefill(d, words, PROMPT, run->logits[0][0][0]);
    if (status == TA_OK)
        status = decoder_best(d, &best);
    run->chosen[0] = best;
    decoder_destroy(d);
    llama_part_free(&part);
    return status;
}

static void test_choice_on_the_device(void)
{
    llama_config config;
    llama_weights *w = make_tiny(&config, TA_F32);
    model_run *run = new_run(w, TA_F32, 0, PREFILL_CHUNKS, TA_ALGORITHM_TREE);
    run->options.ccl = 0;
    TEST_ASSERT_EQUAL_MESSAGE(TA_OK, ta_group_run_threads(1, NULL, choose_rank, run),
                              ta_last_error());
    TEST_ASSERT_EQUAL(sample_greedy(run->logits[0][0][0], config.vocabulary), run->chosen[0]);
    free(run);
    llama_weights_free(w);
}

static void test_reproducible_on_device(void)
{
    const char *before = products;
    products = "own";
    check_same_bits((const int[]){1, 2, 3, 4, 8}, 5);
    products = before;
}

static int test_device(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_one_rank);
    RUN_TEST(test_ranks);
    RUN_TEST(test_all_ranks);
    RUN_TEST(test_choice_on_the_device);
    RUN_TEST(test_reproducible_on_device);
    return UNITY_END() != 0;
}

int main(int argc, char **argv)
{
    element_init();
    for (int i = 1; i + 1 < argc; i += 2) {
        device = strcmp(argv[i], "--device") == 0 ? argv[i + 1] : device;
        products = strcmp(argv[i], "--matmul") == 0 ? argv[i + 1] : products;
        cache_name = strcmp(argv[i], "--cache") == 0 ? argv[i + 1] : cache_name;
        ccl |= strcmp(argv[i], "--group") == 0 && strcmp(argv[i + 1], "ccl") == 0;
    }
    if (strcmp(device, "host") != 0)
        return test_device();
    UNITY_BEGIN();
    RUN_TEST(test_a_nan_is_seen);
    RUN_TEST(test_e4m3);
    RUN_TEST(test_e5m2);
    RUN_TEST(test_expanded_heads);
    RUN_TEST(test_choice_on_the_device);
    RUN_TEST(test_f32);
    RUN_TEST(test_bf16);
    RUN_TEST(test_bias_norms_and_tied_head);
    RUN_TEST(test_algorithms_alternate);
    RUN_TEST(test_reproducible);
    return UNITY_END() != 0;
}
