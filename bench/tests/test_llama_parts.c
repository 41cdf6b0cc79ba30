/* A rank's part of the weights: the pieces that are read for comparison, what a step reads, and
 * what a rank holds. test_llama_weights.c has the weights themselves. */
#include <string.h>
#include <unity.h>

#include <stdlib.h>

#include "common/elements.h"
#include "common/pages.h"
#include "llama/model_weights.h"

static char error[256];

void setUp(void)
{
}

void tearDown(void)
{
}

static int is_within(const read_piece *piece, const llama_matrix *m)
{
    const char *begin = m->data, *at = piece->start;
    size_t last = (size_t)((m->rows - 1) * m->stride + m->columns) * element_bytes(m->dtype);
    return m->rows > 0 && at >= begin && at + piece->bytes <= begin + last;
}

static int is_in_a_matrix(const read_piece *piece, const llama_part *part)
{
    int found = is_within(piece, &part->head);
    for (int i = 0; i < part->config.layers; i++)
        for (int j = 0; j < LLAMA_LAYER_MATRICES; j++)
            found |= is_within(piece, llama_layer_matrix(&part->layers[i], j));
    return found;
}

/* So many ranks that columns of the MLP are rows of fewer bytes than a word of a reader has. */
static void check_pieces(ta_dtype dtype, int ranks)
{
    llama_config config;
    llama_config_builtin("tiny", &config);
    llama_weights *w =
        llama_weights_random(&config, dtype, 1, 0, 1, 1, PAGES_SMALL, error, sizeof error);
    TEST_ASSERT_NOT_NULL_MESSAGE(w, error);
    for (int rank = 0; rank < ranks; rank++) {
        llama_part part;
        TEST_ASSERT_EQUAL(0, llama_part_make(w, rank, ranks, &part));
        size_t count = llama_part_pieces(&part, NULL);
        read_piece *pieces = calloc(count + 1, sizeof *pieces);
        TEST_ASSERT_EQUAL(count, llama_part_pieces(&part, pieces));
        double bytes = 0;
        for (size_t i = 0; i < count; i++) {
            TEST_ASSERT_TRUE(pieces[i].bytes >= 8 && pieces[i].bytes % 8 == 0);
            TEST_ASSERT_EQUAL(0, (uintptr_t)pieces[i].start % 8);
            TEST_ASSERT_TRUE(is_in_a_matrix(&pieces[i], &part));
            bytes += (double)pieces[i].bytes;
        }
        TEST_ASSERT_TRUE(bytes <= llama_part_bytes(&part));
        TEST_ASSERT_TRUE(ranks > 1 || bytes > 0.99 * llama_part_bytes(&part));
        TEST_ASSERT_NULL(pieces[count].start);
        free(pieces);
        llama_part_free(&part);
    }
    llama_weights_free(w);
}

static void test_pieces(void)
{
    for (int dtype = TA_F32; dtype <= TA_BF16; dtype++) {
        check_pieces((ta_dtype)dtype, 1);
        check_pieces((ta_dtype)dtype, 8);
        check_pieces((ta_dtype)dtype, 60); /* 2 or 3 columns */
        check_pieces((ta_dtype)dtype, 200);
    }
}

/* An embedding that is not the head is held, and not read; one that is the head is held once. */
static void test_what_is_held_and_what_is_read(void)
{
    llama_config config;
    for (int tied = 0; tied < 2; tied++) {
        llama_config_builtin("tiny", &config);
        config.tied = tied;
        double words = 2.0 * config.vocabulary * config.hidden;
        llama_weights *w =
            llama_weights_random(&config, TA_BF16, 1, 0, 1, 1, PAGES_SMALL, error, sizeof error);
        TEST_ASSERT_NOT_NULL_MESSAGE(w, error);
        const llama_part *all = llama_weights_all(w);
        TEST_ASSERT_TRUE(llama_part_bytes(all) == 2 * llama_config_step_elements(&config));
        TEST_ASSERT_TRUE(llama_part_memory(all) == 2 * llama_config_elements(&config));
        TEST_ASSERT_TRUE(llama_part_memory(all) - llama_part_bytes(all) == (tied ? 0 : words));
        llama_part half;
        TEST_ASSERT_EQUAL(0, llama_part_make(w, 0, 2, &half));
        TEST_ASSERT_TRUE(llama_part_memory(&half) ==
                         2 * llama_config_rank_elements(&config, 2)); /* all divide by 2 */
        TEST_ASSERT_TRUE(llama_part_memory(&half) - llama_part_bytes(&half) ==
                         (tied ? words / 2 : words));
        llama_part_free(&half);
        llama_weights_free(w);
    }
}

int main(void)
{
    element_init();
    UNITY_BEGIN();
    RUN_TEST(test_pieces);
    RUN_TEST(test_what_is_held_and_what_is_read);
    return UNITY_END() != 0;
}
