/* Is what the read bandwidth is measured with honest? Every loop reads every word of its pieces and
 * no other, the pieces of a cache are the bytes that a step reads, and pages are of the kind that
 * was asked for. */
#include <stdlib.h>
#include <string.h>
#include <unity.h>

#include "common/bandwidth.h"
#include "common/elements.h"
#include "common/pages.h"
#include "decode/kv_cache.h"

void setUp(void)
{
}

void tearDown(void)
{
}

/* Pieces of these sizes, with as much between them. */
static const size_t sizes[] = {8, 16, 256, 264, 4096, 4096, 4096, 4096, 6144, 512, 512, 24, 65536};

enum { PIECES = sizeof sizes / sizeof sizes[0], WORDS = 32 << 10 };

static uint64_t words[WORDS];
static read_piece pieces[PIECES + READ_MORE];
static char is_read[WORDS];

static void make_pieces(void)
{
    size_t at = 3;
    memset(is_read, 0, sizeof is_read);
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = (read_piece){(const char *)(words + at), sizes[i]};
        memset(is_read + at, 1, sizes[i] / 8);
        at += 2 * (sizes[i] / 8);
    }
    TEST_ASSERT_TRUE(at < WORDS);
    for (size_t i = 0; i < READ_MORE; i++)
        pieces[PIECES + i] = pieces[i % PIECES];
    for (size_t i = 0; i < WORDS; i++)
        words[i] = i * 0x9e3779b97f4a7c15ull;
}

static void test_loops_read_all_and_nothing_else(void)
{
    int count;
    const read_loop *loops = read_loops(&count);
    make_pieces();
    for (int loop = 0; loop < count; loop++) {
        uint64_t before = loops[loop].read(pieces, PIECES);
        for (size_t i = 0; i < WORDS; i += i < 3000 ? 1 : 61) {
            words[i]++;
            int differs = loops[loop].read(pieces, PIECES) != before;
            words[i]--;
            TEST_ASSERT_EQUAL_MESSAGE(is_read[i], differs, loops[loop].name);
        }
    }
}

/* All kinds of caches on one rank and on three, together and apart. */
static void check_pieces(int argc, char **argv)
{
    char error[512] = "";
    int cases;
    bench_machine machine;
    decode_options options;
    kv_arena arena;
    kv_layout layout;
    TEST_ASSERT_EQUAL_MESSAGE(0, options_parse(argc, argv, &options, error, sizeof error), error);
    machine_read(&machine);
    bench_case *row = options_cases(&options, &machine, &cases);
    TEST_ASSERT_EQUAL(1, cases);
    TEST_ASSERT_EQUAL(0, kv_arena_alloc(&arena, (size_t)kv_layout_bytes(&options, row), 0));
    TEST_ASSERT_EQUAL(0, kv_layout_make(&layout, &options, row, &arena));
    char *seen = calloc(arena.bytes, 1);
    size_t all = 0;
    for (int rank = 0; rank < row->ranks; rank++) {
        size_t count;
        read_piece *list = kv_layout_pieces(&layout, rank, rank + 1, &count);
        TEST_ASSERT_NOT_NULL(list);
        for (size_t i = 0; i < count; i++) {
            all += list[i].bytes;
            for (size_t at = 0; at < list[i].bytes; at++)
                TEST_ASSERT_EQUAL(0, seen[list[i].start + at - arena.data]++);
        }
        free(list);
    }
    TEST_ASSERT_EQUAL_DOUBLE(kv_read_bytes(&options, row), (double)all);
    int32_t last = layout.shards[0].tokens - 1; /* is at the end of a piece */
    kv_vectors at = kv_layout_at(&layout, 0, layout.batch - 1, last, row->kv_heads - 1);
    TEST_ASSERT_EQUAL(1, seen[(const char *)at.k - arena.data]);
    TEST_ASSERT_EQUAL(1, seen[(const char *)at.v - arena.data]);
    free(seen);
    kv_layout_free(&layout);
    kv_arena_free(&arena);
    free(row);
}

static void test_pieces_are_what_a_step_reads(void)
{
    char *pages[] = {"1", "5", "16"}, *layouts[] = {"head", "token"}, *ranks[] = {"1", "3"};
    element_init();
    for (int i = 0; i < 12; i++) {
        char *argv[] = {"-b",
                        "77",
                        "--ranks",
                        ranks[i / 6],
                        "--layout",
                        layouts[i % 2],
                        "--page-tokens",
                        pages[i % 3],
                        "--batch",
                        "2",
                        "--heads",
                        "3",
                        "--kv-heads",
                        "3",
                        "--head-dim",
                        "16",
                        "--v-dim",
                        "8"};
        check_pieces(sizeof argv / sizeof argv[0], argv);
    }
    char *whole[] = {"-b", "99", "--ranks", "1", "--heads", "2", "--kv-heads", "2"};
    check_pieces(sizeof whole / sizeof whole[0], whole);
}

static void test_readers_read_a_list_of_any_length(void)
{
    double us[2] = {0, 0};
    make_pieces();
    for (size_t count = 0; count <= PIECES; count += PIECES / 2) {
        reader_team *team = readers_create(2, 2, pieces, count);
        TEST_ASSERT_NOT_NULL(team);
        readers_choose(team, 1);
        readers_sweep(team, 2, us);
        TEST_ASSERT_TRUE(us[0] >= 0 && us[1] >= 0);
        readers_destroy(team);
    }
}

static void test_pages_are_small_where_asked(void)
{
    size_t bytes = 4 * HUGE_PAGE;
    char *memory = pages_map(bytes, PAGES_SMALL, 1);
    TEST_ASSERT_NOT_NULL(memory);
    TEST_ASSERT_EQUAL(0, (uintptr_t)memory % HUGE_PAGE);
    memset(memory, 1, bytes);
    TEST_ASSERT_TRUE(pages_huge_bytes(memory, bytes) <= 0); /* -1: not told */
    pages_unmap(memory, bytes);
    memory = pages_map(bytes, PAGES_HUGE, 0);
    TEST_ASSERT_NOT_NULL(memory);
    memset(memory, 1, bytes); /* huge or not is up to the system */
    TEST_ASSERT_TRUE(pages_huge_bytes(memory, bytes) <= (double)bytes);
    pages_unmap(memory, bytes);
}

int main(void)
{
    UNITY_BEGIN();
    RUN_TEST(test_loops_read_all_and_nothing_else);
    RUN_TEST(test_pieces_are_what_a_step_reads);
    RUN_TEST(test_readers_read_a_list_of_any_length);
    RUN_TEST(test_pages_are_small_where_asked);
    return UNITY_END() != 0;
}
