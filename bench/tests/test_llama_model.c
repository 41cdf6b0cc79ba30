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
    int greedy;                          /* words are those that the model chooses */
    float logits[STEPS + 1][MOST_WORDS]; /* of rank 0 */
    int32_t chosen[STEPS + 1];
    int differ; /* ranks whose logits are not those of rank 0 */
    float all[8][STEPS + 1][MOST_WORDS];
} model_run;

static ta_status run_rank(ta_group *group, void *context)
{
    model_run *run = context;
    int rank = ta_group_rank(group), vocabulary = 0;
    llama_part part;
    decoder *d = NULL;
    int32_t word;
    const decoder_options *o = &run->options;
    int divided = o->tensor ? ta_group_size(group) : 1;
    if (llama_part_make(o->weights, o->tensor ? rank : 0, divided, &part) != 0)
        return TA_ERR_NO_MEMORY;
    vocabulary = part.config.vocabulary;
    ta_status status = decoder_create(group, o, &part, &d);
    if (status == TA_OK)
        status = decoder_prefill(d, words, PROMPT, run->all[rank][0]);
    for (int i = 0; status == TA_OK && i < STEPS; i++) {
        word =
            run->greedy ? sample_word(run->all[rank][i], vocabulary, 0, 0, 0) : words[PROMPT + i];
        run->chosen[i] = word;
        /* Every algorithm does each step, the last one's numbers count. */
        for (int a = 0; status == TA_OK && a < o->algorithms; a++)
            status = decoder_step(d, a, word, PROMPT + i, run->all[rank][i + 1]);
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
        run->differ += memcmp(run->all[0], run->all[rank], sizeof run->all[0]) != 0;
    memcpy(run->logits, run->all[0], sizeof run->logits);
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
        .device = "host",
        .threads = 1,
    };
    return run;
}

static double error_of(const model_run *run, int vocabulary)
{
    double worst = 0;
    for (int i = 0; i <= STEPS; i++)
        for (int word = 0; word < vocabulary; word++) {
            double difference = fabs(run->logits[i][word] - exact[PROMPT - 1 + i][word]);
            worst = difference <= worst ? worst : difference;
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

/* Errors of this way of running it, on several numbers of ranks. `most` is what one rank may have:
 * a few times the rounding of the types, which is far below 1, the size of the logits. */
static void check_way(const llama_weights *w, ta_dtype dtype, int tensor,
                      decoder_prefill_kind prefill, double most)
{
    static const int counts[] = {1, 2, 3, 4, 8};
    static const ta_algorithm algorithms[] = {TA_ALGORITHM_TREE, TA_ALGORITHM_RING_KV,
                                              TA_ALGORITHM_RING_Q};
    int vocabulary = llama_weights_all(w)->config.vocabulary;
    double one = 0;
    for (int i = 0; i < 5; i++) {
        for (int a = 0; a < 3; a++) {
            char text[256];
            model_run *run = new_run(w, dtype, tensor, prefill, algorithms[a]);
            run_model(run, counts[i]);
            double now = error_of(run, vocabulary);
            one = counts[i] == 1 && a == 0 ? now : one;
            snprintf(text, sizeof text,
                     "%s, %s, prefill %d, %d ranks, algorithm %d: error %g, on one rank %g",
                     element_name(dtype), tensor ? "tensor" : "replicated", (int)prefill, counts[i],
                     (int)algorithms[a], now, one);
            TEST_ASSERT_TRUE_MESSAGE(now <= 4 * one && now > 0 && one < most, text);
            TEST_ASSERT_EQUAL_MESSAGE(0, run->differ, text);
            free(run);
        }
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
    llama_config_builtin("tiny", &config);
    llama_weights *w = make_model(&config, TA_F32);
    model_run *run = new_run(w, TA_F32, 1, PREFILL_CHUNKS, TA_ALGORITHM_TREE);
    run->options.algorithms = 3;
    run->options.algorithm[1] = TA_ALGORITHM_RING_KV;
    run->options.algorithm[2] = TA_ALGORITHM_RING_Q;
    run_model(run, 3);
    TEST_ASSERT_TRUE(error_of(run, config.vocabulary) < 1e-5);
    free(run);
    llama_weights_free(w);
}

/* The same words, and the same bits, on any number of ranks. */
static void test_reproducible(void)
{
    static const int counts[] = {1, 2, 3, 4, 8};
    llama_config config;
    model_run *runs[5];
    llama_config_builtin("tiny", &config);
    llama_weights *w = make_model(&config, TA_BF16);
    TEST_ASSERT_EQUAL(0, products_use("own", error, sizeof error));
    for (int i = 0; i < 5; i++) {
        runs[i] = new_run(w, TA_BF16, 0, PREFILL_CHUNKS, TA_ALGORITHM_TREE);
        runs[i]->options.reproducible_tile = 16;
        runs[i]->options.block = 16;
        runs[i]->options.threads = 1 + i % 2;
        runs[i]->greedy = 1;
        run_model(runs[i], counts[i]);
        TEST_ASSERT_EQUAL_MEMORY(runs[0]->logits, runs[i]->logits, sizeof runs[0]->logits);
        TEST_ASSERT_EQUAL_MEMORY(runs[0]->chosen, runs[i]->chosen, sizeof runs[0]->chosen);
    }
    for (int i = 0; i < 5; i++)
        free(runs[i]);
    llama_weights_free(w);
}

int main(void)
{
    element_init();
    UNITY_BEGIN();
    RUN_TEST(test_f32);
    RUN_TEST(test_bf16);
    RUN_TEST(test_bias_norms_and_tied_head);
    RUN_TEST(test_algorithms_alternate);
    RUN_TEST(test_reproducible);
    return UNITY_END();
}
